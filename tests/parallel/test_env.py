import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from launchers.local import free_port
from scse_dist.errors import ExitCode, LostRank, UserError
from scse_dist.parallel import env
from scse_dist.parallel.env import World, init_world, teardown
from tests.helpers.dist import ROOT, run_ranks

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT")
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


@pytest.fixture(autouse=True)
def untouched_environment() -> Iterator[None]:
    before = dict(os.environ)
    for name in VARIABLES:
        os.environ.pop(name, None)
    yield
    teardown()
    os.environ.clear()
    os.environ.update(before)


def be_first_of(size: int) -> None:
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def test_a_process_without_a_launcher_is_a_world_of_one() -> None:
    assert init_world("cpu") == World(0, 0, 1, 1, torch.device("cpu"), "gloo")
    total = torch.tensor([3.0])
    dist.all_reduce(total)
    assert total.item() == 3
    assert {name for name in VARIABLES if name in os.environ} == {*VARIABLES} - {"LOCAL_SIZE"}
    teardown()
    assert not dist.is_initialized()
    teardown()
    assert init_world("cpu").size == 1  # the variables stand now, as if a launcher had set them


def describe(world: World) -> tuple[World, int]:
    return world, dist.get_rank()


def test_ranks_know_their_places() -> None:
    described = run_ranks(describe, 2)
    assert described == [(World(rank, rank, 2, 2, torch.device("cpu"), "gloo"), rank) for rank in range(2)]


def test_deepspeeds_name_for_the_local_size_is_translated_and_removed() -> None:
    be_first_of(1)
    os.environ["LOCAL_SIZE"] = "1"
    del os.environ["LOCAL_WORLD_SIZE"]
    assert init_world("cpu").local_size == 1
    assert os.environ["LOCAL_WORLD_SIZE"] == "1"
    assert "LOCAL_SIZE" not in os.environ


def test_a_group_is_left_at_exit() -> None:
    """With a living gloo group about one exit in ten ends in SIGABRT, so the exit code would not be the process's."""
    code = """
import atexit, sys
import torch.distributed as dist
atexit.register(lambda: print("in a group:", dist.is_initialized()))  # the first one registered runs last
from scse_dist.parallel.env import init_world
init_world("cpu")
sys.exit(2)
"""
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (ExitCode.USER_ERROR, "in a group: False\n"), finished.stderr


def test_peers_that_never_come_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "COLLECTIVE_TIMEOUT", timedelta(seconds=1))
    be_first_of(2)
    with pytest.raises(LostRank, match=r"rank 0 of 2 did not meet its peers at 127\.0\.0\.1:\d+"):
        init_world("cpu")


@without_cuda
@pytest.mark.parametrize(
    ("device", "backend", "message"),
    [
        ("cuda", "auto", "parallel.device=cuda: torch finds no CUDA device here; set parallel.device=cpu"),
        ("auto", "nccl", "parallel.backend=nccl needs CUDA, .*; set parallel.backend=gloo"),
        ("cpu", "nccl", "parallel.backend=nccl needs CUDA, .*; set parallel.backend=gloo"),
    ],
)
def test_cuda_that_is_not_there_is_refused(device: str, backend: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        init_world(device, backend)


@pytest.mark.parametrize(("device", "backend"), [("cpu", "nccl"), ("cuda", "gloo")])
def test_a_backend_that_cannot_serve_the_device_is_refused(
    device: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError, match=f"parallel.backend={backend} cannot serve parallel.device={device}"):
        init_world(device, backend)


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    be_first_of(3)
    with pytest.raises(UserError, match=r"LOCAL_WORLD_SIZE=3 exceeds the 2 CUDA devices .*; start at most 2 ranks"):
        init_world()


@pytest.mark.parametrize("missing", ["WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_an_incomplete_launch_names_the_missing_variable(missing: str) -> None:
    be_first_of(1)
    del os.environ[missing]
    with pytest.raises(UserError, match=f"RANK=0 without {missing}: "):
        init_world("cpu")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"RANK": "1"}, "RANK=1 must be below WORLD_SIZE=1"),
        ({"RANK": "first"}, "RANK='first' is not a number"),
        ({"RANK": "-1"}, "RANK='-1' is not a number"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT='http' is not a number"),
        ({"LOCAL_RANK": "1"}, "LOCAL_RANK=1 of LOCAL_WORLD_SIZE=1 does not fit WORLD_SIZE=1"),
        ({"LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=0 of LOCAL_WORLD_SIZE=2 does not fit WORLD_SIZE=1"),
    ],
)
def test_contradictory_variables_are_refused(wrong: dict[str, str], message: str) -> None:
    be_first_of(1)
    os.environ |= wrong
    with pytest.raises(UserError, match=message):
        init_world("cpu")


def test_a_world_size_without_a_rank_is_refused() -> None:
    os.environ["WORLD_SIZE"] = "4"
    with pytest.raises(UserError, match="WORLD_SIZE=4 without RANK: unset it, or start through"):
        init_world("cpu")
    assert not dist.is_initialized()
