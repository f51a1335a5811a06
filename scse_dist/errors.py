"""What the outside sees when something ends: exit codes and the one-line errors that lead to them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of every ``scse-dist`` process and of its launcher."""

    DONE = 0
    FAULT = 1  # a fault of ours
    USER_ERROR = 2
    LOST_RANK = 70  # a rank died, or a watchdog ended the job: start it again
    RESUME = 75  # checkpointed on request: start it again


class UserError(Exception):
    """A mistake that the user can mend: one line naming the key or file, the value and the way out."""


class LostRank(Exception):
    """A peer process disappeared while this one was waiting for it."""
