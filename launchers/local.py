"""Starts N ranks of one command on this machine and ends with all of them. Imports no torch: it must be fast."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from launchers import guard, tied
from scse_dist.errors import ExitCode, UserError

GRACE_S = 5.0
"""How long the other ranks may go on after one has ended badly: a user's error ends all of them by itself."""
POLL_S = 0.05
LINES_SHOWN = 20
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def launch(command: list[str], nproc: int, log_dir: Path | None = None) -> int:
    """Runs ``nproc`` copies of a command as ranks 0 .. nproc - 1 of one job and waits for them.

    Rank 0 keeps this process's stdout and stderr. The others write to ``log_dir/rank-00001.log`` and so on (appended),
    or nowhere without a ``log_dir``; the last lines of the one that failed first are shown. SIGINT, SIGTERM, SIGUSR1
    and SIGUSR2 are passed on to each rank once; a second SIGINT kills. Call it from the main thread.

    Returns:
        An ``ExitCode``: USER_ERROR if any rank ended so; LOST_RANK or FAULT after what the first bad ending was (a
        signal and LOST_RANK, or anything else); RESUME if any rank ended so; DONE.

    Raises:
        UserError: ``log_dir`` cannot be written.
    """
    port = free_port()
    ranks: list[_Rank] = []
    ended: list[_Rank] = []
    with ExitStack() as files, _received_signals() as received, _guard() as guarded_groups:
        # Rank 0 keeps the terminal, so that it can show its progress there.
        logs = [None] + [files.enter_context(_open_log(number, log_dir)) for number in range(1, nproc)]
        try:
            for number, log in enumerate(logs):
                process = _start(command, _rank_environment(number, nproc, port), log)
                ranks.append(_Rank(number, process, log))
                guarded_groups.write(b"%d\n" % process.pid)
            _watch(ranks, ended, received)
        finally:
            for rank in ranks:
                rank.kill()
                rank.process.wait()
        _mend_terminal(ended)
        _explain(ended, nproc)
    return _exit_code(ended)


def default_nproc(device: str = "auto") -> int:
    """One rank per CUDA device that this process may see, at least one; one on the CPU."""
    return 1 if device == "cpu" else max(1, num_gpus())


def num_gpus() -> int:
    """CUDA devices that this process may see."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    num_devices = sum(line.startswith("GPU ") for line in listing.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and num_devices:
        num_devices = sum(entry.strip() not in ("", "-1") for entry in visible.split(","))
    return num_devices


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class _Rank:
    """One process of the job. It is not reaped before all have ended: until then its id, which is also its process
    group's, cannot be given to a stranger."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], log: IO[bytes] | None) -> None:
        self.number = number
        self.process = process
        self.log = log
        self.log_start = os.fstat(log.fileno()).st_size if log else 0
        self.code: int | None = None
        """Exit status, or the signal's number negated, once it has ended."""
        self.was_killed = False
        """Whether it ended because this launcher ended it."""

    @property
    def ended_badly(self) -> bool:
        return not self.was_killed and self.code not in (None, ExitCode.DONE, ExitCode.RESUME)

    def has_ended(self) -> bool:
        if self.code is None:
            end = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is not None:
                self.code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return self.code is not None

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if not self.has_ended():
            self.was_killed = True
            self.send(signal.SIGKILL)

    def last_lines(self) -> str:
        """The end of what this launch added to the log, with a heading; empty for a rank on the terminal."""
        if self.log is None:
            return ""
        size = os.fstat(self.log.fileno()).st_size
        start = max(self.log_start, size - 64 * 1024)
        lines = os.pread(self.log.fileno(), size - start, start).decode("utf-8", errors="replace").splitlines()
        where = f" (all of them in {self.log.name})" if isinstance(self.log.name, str) else ""
        return "\n".join([f"; its last lines{where}:", *lines[-LINES_SHOWN:]]) if lines else ""


def _open_log(rank: int, log_dir: Path | None) -> IO[bytes]:
    if log_dir is None:
        return tempfile.TemporaryFile()
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        return open(str(log_dir / f"rank-{rank:05d}.log"), "ab+")
    except OSError as error:
        raise UserError(f"{log_dir}: cannot write logs here ({error.strerror}); choose another run.dir") from error


def _rank_environment(rank: int, nproc: int, port: int) -> dict[str, str]:
    num_cores = len(os.sched_getaffinity(0))
    defaults = {
        "OMP_NUM_THREADS": str(max(1, num_cores // nproc)),
        "PYTHONUNBUFFERED": "1",  # the last lines of a killed rank are the ones that matter
    }
    place = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return defaults | dict(os.environ) | place


def _start(command: list[str], environment: dict[str, str], log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", tied.__file__, str(os.getpid()), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # a terminal's Ctrl-C reaches the launcher only, which passes it on once
    )


@contextmanager
def _received_signals() -> Iterator[deque[int]]:
    """The signals to be passed on, in order of arrival. A signal that was ignored (nohup, background jobs) stays so."""
    received: deque[int] = deque()
    taken = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in taken}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _guard() -> Iterator[IO[bytes]]:
    """A process that ends what ranks leave behind, even if this one is killed; yields a stream for their group ids."""
    command = [sys.executable, "-I", "-S", guard.__file__]
    with subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        yield process.stdin


def _watch(ranks: list[_Rank], ended: list[_Rank], received: deque[int]) -> None:
    """Returns when all ranks have ended; ``ended`` holds them in that order."""
    num_interrupts = 0
    deadline = float("inf")
    while living := [rank for rank in ranks if rank not in ended]:
        while received:
            number = received.popleft()
            num_interrupts += number == signal.SIGINT
            for rank in living:
                if num_interrupts > 1:
                    rank.kill()
                else:
                    rank.send(number)
        if time.monotonic() > deadline:
            for rank in living:
                rank.kill()
        ended += [rank for rank in living if rank.has_ended()]
        if deadline == float("inf") and any(rank.ended_badly for rank in ended):
            deadline = time.monotonic() + GRACE_S
        time.sleep(POLL_S)


def _exit_code(ended: list[_Rank]) -> int:
    own = [rank.code for rank in ended if not rank.was_killed]
    if ExitCode.USER_ERROR in own:
        return ExitCode.USER_ERROR
    first_bad = next((rank.code for rank in ended if rank.ended_badly), None)
    if first_bad is not None:  # the later ones are its consequences
        return ExitCode.LOST_RANK if first_bad < 0 or first_bad == ExitCode.LOST_RANK else ExitCode.FAULT
    if len(own) < len(ended):
        return ExitCode.LOST_RANK
    return ExitCode.RESUME if ExitCode.RESUME in own else ExitCode.DONE


def _mend_terminal(ended: list[_Rank]) -> None:
    """A live line of progress hides the cursor, and a killed rank 0 could not bring it back."""
    if sys.stdout.isatty() and any(rank.number == 0 and (rank.code or 0) < 0 for rank in ended):
        print("\x1b[?25h", end="", flush=True)


def _explain(ended: list[_Rank], nproc: int) -> None:
    """Says on stderr which rank failed first and how, unless rank 0 has said it on the terminal."""
    first_bad = next((rank for rank in ended if rank.ended_badly), None)
    if first_bad is None or first_bad.code is None:
        return
    told = {rank.code for rank in ended if rank.number == 0 and not rank.was_killed}
    if first_bad.code > 0 and (first_bad.number == 0 or told == {ExitCode.USER_ERROR}):
        return
    how = f"exit code {first_bad.code}" if first_bad.code > 0 else signal.Signals(-first_bad.code).name
    print(f"rank {first_bad.number} of {nproc} ended with {how}{first_bad.last_lines()}", file=sys.stderr)
