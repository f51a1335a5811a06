"""Where this process stands among its peers: environment variables, device, process group.

torchrun, ``launchers.local`` and DeepSpeed's launcher set RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR/PORT; without
them the process is a world of one, which still needs a group because DeepSpeed wants one.
"""

import atexit
import os
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist

from scse_dist.errors import LostRank, UserError

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""A collective that waits longer counts its missing peers as lost."""


@dataclass(frozen=True)
class World:
    """One process's place in the job."""

    rank: int
    local_rank: int
    """Among the ranks of this machine."""
    size: int
    local_size: int
    device: torch.device
    backend: str
    """``gloo`` on the CPU, ``nccl`` on CUDA."""


def init_world(device: str = "auto", backend: str = "auto") -> World:
    """Joins the process group that the launcher's variables describe, or makes one of a single process.

    Args:
        device: auto (CUDA where there is some and the backend allows it), cpu or cuda.
        backend: auto, gloo (moves CPU tensors) or nccl (moves CUDA tensors).

    Raises:
        UserError: device or backend not to be had here, variables missing or contradictory, too few GPUs.
        LostRank: not all peers arrived within COLLECTIVE_TIMEOUT.
    """
    kind, backend = _choose(device, backend)
    _translate_local_size()
    store = None if "RANK" in os.environ else _become_alone()
    rank, size, local_rank, local_size = _read_places()
    if kind == "cuda":
        _take_gpu(local_rank, local_size)
    try:
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT, store=store, rank=rank, world_size=size)
        host_group()
    except dist.DistError as error:
        meeting_point = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise LostRank(f"rank {rank} of {size} did not meet its peers at {meeting_point}: {error}") from error
    # With a living gloo group about one exit in ten ends in SIGABRT, and the exit code is lost.
    atexit.register(teardown)
    place = torch.device("cuda", local_rank) if kind == "cuda" else torch.device("cpu")
    return World(rank, local_rank, size, local_size, place, backend)


def teardown() -> None:
    """Leaves the process group. Harmless without one, and after a peer is lost."""
    host_group.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()


@cache
def host_group() -> dist.ProcessGroup | None:
    """The group that moves CPU tensors, so that flags and objects wait for no device; None is the main group."""
    if dist.get_backend() != "nccl":
        return None
    group = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
    assert isinstance(group, dist.ProcessGroup)
    return group


def _choose(device: str, backend: str) -> tuple[str, str]:
    """The pair (device type, backend): (cpu, gloo) or (cuda, nccl)."""
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise UserError("parallel.device=cuda: torch finds no CUDA device here; set parallel.device=cpu")
    if backend == "nccl" and not has_cuda:
        raise UserError("parallel.backend=nccl needs CUDA, and torch finds none here; set parallel.backend=gloo")
    if (device, backend) in (("cpu", "nccl"), ("cuda", "gloo")):
        raise UserError(f"parallel.backend={backend} cannot serve parallel.device={device}; leave one of them at auto")
    on_cuda = has_cuda and device != "cpu" and backend != "gloo"
    return ("cuda", "nccl") if on_cuda else ("cpu", "gloo")


def _translate_local_size() -> None:
    """DeepSpeed's launcher says LOCAL_SIZE. Left in place, it makes DeepSpeed leave 69 MB per rank in /dev/shm."""
    local_size = os.environ.pop("LOCAL_SIZE", None)
    if local_size is not None:
        os.environ.setdefault("LOCAL_WORLD_SIZE", local_size)


def _become_alone() -> dist.Store:  # pyright: ignore[reportPrivateImportUsage]
    """A world of one: its store, and the variables that DeepSpeed and streaming look for."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} without RANK: unset it, or start through "
            "`scse-dist train --nproc N`, torchrun or deepspeed"
        )
    store = dist.TCPStore("127.0.0.1", port=0, world_size=1, is_master=True)  # pyright: ignore[reportPrivateImportUsage]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    return store


def _read_places() -> tuple[int, int, int, int]:
    """(rank, size, local rank, local size)."""
    for name in ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise UserError(f"RANK={os.environ['RANK']} without {name}: let a launcher set both, or unset RANK")
    rank, size = _read_number("RANK"), _read_number("WORLD_SIZE")
    local_rank, local_size = _read_number("LOCAL_RANK"), _read_number("LOCAL_WORLD_SIZE")
    _read_number("MASTER_PORT")
    if rank >= size:
        raise UserError(f"RANK={rank} must be below WORLD_SIZE={size}; correct the launcher's variables")
    if local_rank >= local_size or local_size > size:
        raise UserError(
            f"LOCAL_RANK={local_rank} of LOCAL_WORLD_SIZE={local_size} does not fit WORLD_SIZE={size}; "
            "correct the launcher's variables"
        )
    return rank, size, local_rank, local_size


def _read_number(name: str) -> int:
    value = os.environ[name]
    if not value.isdecimal():
        raise UserError(f"{name}={value!r} is not a number; correct the launcher's variables")
    return int(value)


def _take_gpu(local_rank: int, local_size: int) -> None:
    num_gpus = torch.cuda.device_count()
    if local_size > num_gpus:
        raise UserError(
            f"LOCAL_WORLD_SIZE={local_size} exceeds the {num_gpus} CUDA devices of this machine; "
            f"start at most {num_gpus} ranks here or set parallel.device=cpu"
        )
    torch.cuda.set_device(local_rank)
