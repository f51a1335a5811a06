import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scse_dist.errors import LostRank, UserError
from scse_dist.parallel import comm
from scse_dist.parallel.env import World
from tests.helpers.dist import run_ranks

FINE = 2.0**-40
"""Lost next to 1 in fp32, kept in fp64."""


def refuse() -> None:
    raise UserError("data.path=nowhere: no such folder")


def use_everything(world: World) -> dict[str, object]:
    mine = torch.tensor([1 + FINE, float(world.rank)], dtype=torch.float64)
    summed = comm.sum_over_ranks(mine)
    with pytest.raises(UserError, match=r"data\.path=nowhere"):
        comm.on_first_rank(refuse)
    comm.gather_ints(0)
    return {
        "size": comm.world_size(),
        "sum": summed.tolist(),
        "kept": mine.tolist() == [1 + FINE, world.rank],
        "int_sum": comm.sum_over_ranks(torch.tensor([2**53 + 1 + world.rank])).tolist(),
        "ints": comm.gather_ints(-(2**62) + world.rank),
        "any": [comm.any_rank(world.rank == 1), comm.any_rank(False)],
        "same": [comm.same_on_all_ranks(7), comm.same_on_all_ranks(world.rank)],
        "objects": comm.gather_objects({"rank": world.rank}),
        "broadcast": [comm.broadcast_object(f"of {world.rank}"), comm.broadcast_object(f"of {world.rank}", source=1)],
        "first": comm.on_first_rank(lambda: os.environ["RANK"]),
    }


def test_two_ranks_exchange_sums_flags_and_objects() -> None:
    expected = {
        "size": 2,
        "sum": [2 + 2 * FINE, 1.0],
        "kept": True,
        "int_sum": [2**54 + 3],
        "ints": [-(2**62), -(2**62) + 1],
        "any": [True, False],
        "same": [True, False],
        "objects": [{"rank": 0}, {"rank": 1}],
        "broadcast": ["of 0", "of 1"],
        "first": "0",
    }
    assert run_ranks(use_everything, 2) == [expected, expected]


def test_alone_everything_comes_back_without_a_group() -> None:
    values = torch.tensor([1.5])
    summed = comm.sum_over_ranks(values)
    assert torch.equal(summed, values)
    assert summed is not values
    assert comm.world_size() == 1
    assert comm.gather_ints(3) == [3]
    assert comm.any_rank(True)
    assert not comm.any_rank(False)
    assert comm.same_on_all_ranks(5)
    assert comm.gather_objects("x") == ["x"]
    assert comm.broadcast_object("x") == "x"
    assert comm.on_first_rank(lambda: 4) == 4
    with pytest.raises(UserError, match=r"data\.path=nowhere"):
        comm.on_first_rank(refuse)
    comm.gather_ints(0)


COLLECTIVES: dict[str, Callable[[], object]] = {
    "sum_over_ranks": lambda: comm.sum_over_ranks(torch.ones(2)),
    "gather_ints": lambda: comm.gather_ints(1),
    "gather_objects": lambda: comm.gather_objects("x"),
    "broadcast_object": lambda: comm.broadcast_object("x", source=1),
}


def lose_rank_1(world: World, report: Path) -> None:
    comm.gather_ints(0)
    if world.rank == 1:
        time.sleep(0.5)  # the other one is waiting by then
        os.kill(os.getpid(), signal.SIGKILL)
    for name, collective in COLLECTIVES.items():
        with pytest.raises(LostRank, match=r"rank 0 lost a peer in a collective: .*"):
            collective()
        with report.open("a") as file:
            file.write(f"{name}\n")


def test_a_killed_peer_is_a_lost_rank_in_every_collective(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 70"):
        run_ranks(lose_rank_1, 2, tmp_path / "report")
    assert (tmp_path / "report").read_text().split() == list(COLLECTIVES)


def test_other_errors_in_a_collective_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="sizes differ"), comm.peers_needed():
        raise RuntimeError("sizes differ")
