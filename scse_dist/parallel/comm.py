"""Small collectives between ranks. In a world of one (with or without a process group) they return what they are given.

Flags, counts and objects travel as CPU tensors through gloo, so that they never wait for a device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from scse_dist.errors import LostRank, UserError
from scse_dist.parallel.env import host_group

T = TypeVar("T")

_SIGNS_OF_A_LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "remote process exited",
    "communicator was aborted",
)
"""What gloo (a plain RuntimeError) and NCCL say when a peer is gone or no longer answers."""


@contextmanager
def peers_needed() -> Iterator[None]:
    """Around collectives, ours and other libraries': an error that means a peer is gone becomes LostRank."""
    try:
        yield
    except RuntimeError as error:
        is_store_error = isinstance(error, dist.DistStoreError | dist.DistNetworkError)
        if is_store_error or any(sign in str(error) for sign in _SIGNS_OF_A_LOST_PEER):
            first_line = str(error).partition("\n")[0]
            raise LostRank(f"rank {dist.get_rank()} lost a peer in a collective: {first_line}") from error
        raise


def world_size() -> int:
    """Number of ranks; 1 without a process group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """The elementwise sum of all ranks' tensors in their own dtype, on their own device; the argument is left alone.

    Raises:
        LostRank: a peer is gone.
    """
    total = values.detach().clone()
    if world_size() > 1:
        with peers_needed():
            dist.all_reduce(total, group=host_group() if total.device.type == "cpu" else None)
    return total


def gather_ints(value: int) -> list[int]:
    """Each rank's number, in the order of the ranks.

    Raises:
        LostRank: a peer is gone.
    """
    if world_size() == 1:
        return [value]
    gathered = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size())]
    with peers_needed():
        dist.all_gather(gathered, torch.tensor([value]), group=host_group())
    return [int(entry) for entry in gathered]


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on at least one rank.

    Raises:
        LostRank: a peer is gone.
    """
    return any(gather_ints(int(flag)))


def same_on_all_ranks(value: int) -> bool:
    """Whether all ranks hold the same number.

    Raises:
        LostRank: a peer is gone.
    """
    return len(set(gather_ints(value))) == 1


def gather_objects(value: T) -> list[T]:
    """Each rank's object (pickled on the way), in the order of the ranks.

    Raises:
        LostRank: a peer is gone.
    """
    if world_size() == 1:
        return [value]
    gathered: list[T] = [value] * world_size()
    with peers_needed():
        dist.all_gather_object(gathered, value, group=host_group())
    return gathered


def broadcast_object(value: T, source: int = 0) -> T:
    """The object of rank ``source``; what the others give is ignored.

    Raises:
        LostRank: a peer is gone.
    """
    if world_size() == 1:
        return value
    holder = [value]
    with peers_needed():
        dist.broadcast_object_list(holder, src=source, group=host_group())
    return holder[0]


def on_first_rank(action: Callable[[], T]) -> T:
    """Runs ``action`` on rank 0 alone and gives its result to all.

    Raises:
        UserError: on every rank, if the action raised one.
        RuntimeError: on the others, if it raised anything else; rank 0 raises that itself.
        LostRank: a peer is gone.
    """
    result: T | None = None
    failure: Exception | None = None
    if world_size() == 1 or dist.get_rank() == 0:
        try:
            result = action()
        except Exception as error:  # whatever it is, the others must hear of it or they wait for ever
            failure = error
    result, message, is_users = broadcast_object((result, failure and str(failure), isinstance(failure, UserError)))
    if failure is not None:
        raise failure
    if message is not None:
        raise UserError(message) if is_users else RuntimeError(f"rank 0 failed: {message}")
    return cast(T, result)


def on_every_rank(action: Callable[[], T]) -> T:
    """Runs ``action`` on each rank for itself; a user's error on one of them becomes the same error on all.

    Raises:
        UserError: on every rank, the first one that any rank raised.
        LostRank: a peer is gone.
    """
    result: T | None = None
    message: str | None = None
    try:
        result = action()
    except UserError as error:
        message = str(error)
    if any_rank(message is not None):
        raise UserError(next(text for text in gather_objects(message) if text is not None))
    return cast(T, result)
