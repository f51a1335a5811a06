"""Outlives a launcher for a moment and ends what its ranks left behind. A script of its own, run by path.

The kernel ends the ranks when their launcher dies (see ``launchers.local``), but not the processes that they started:
loader workers, compilers. Each rank leads a process group whose id arrives here on stdin, one a line; the end of the
stream means that the launcher is done or gone. What is still there a moment later is killed.
"""

import os
import signal
import sys
import time

GRACE_S = 1.0  # a killed rank's resource tracker needs some milliseconds to unlink shared memory
POLL_S = 0.02


def exists(group: int) -> bool:
    """Whether the process group has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Waits for the launcher's end, then for the groups', then kills them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    groups = [int(line) for line in sys.stdin]
    deadline = time.monotonic() + GRACE_S
    while (groups := [group for group in groups if exists(group)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for group in groups:
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
