"""Signals that ask a run to stop: they only set a flag, which the ranks compare at the next step boundary."""

import signal
import sys
from types import FrameType

from scse_dist.errors import ExitCode
from scse_dist.parallel import comm

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class StopRequest:
    """Collects stop signals from its creation on."""

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        for number in SIGNALS:
            signal.signal(number, self._note)

    def agreed(self) -> bool:
        """Whether any rank was asked to stop; collective, the same answer on all ranks."""
        return comm.any_rank(self._received is not None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._received == signal.SIGINT:
            sys.exit(ExitCode.LOST_RANK)  # asked twice: at once, published checkpoints are whole anyway
        self._received = signal.Signals(number)
