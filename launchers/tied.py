"""Becomes another command that the kernel ends together with its launcher. A script of its own, run by path.

Usage: ``python tied.py LAUNCHER_PID COMMAND [ARGUMENT ...]``. A wrapper, because running Python between fork and exec
is not safe in a process with threads; the tie survives the exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ties this process to its parent, checks that the parent is still the launcher, and becomes the command."""
    launcher, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it died before the kernel knew of the tie
        os.kill(os.getpid(), signal.SIGKILL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
