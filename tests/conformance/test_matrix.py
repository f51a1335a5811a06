"""Every way to spread a training run computes what one plain process computes.

ZeRO stages x recomputation x accumulation x world size (48 cells), then the other methods and small buckets. T goes
3, 1, 8, 2, 8, 3 within each of them. The cells of a job share its processes, so that the whole matrix takes a minute;
the slow jobs add a third rank and the matrix of every other method.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.conformance.cases import NUM_EXAMPLES, OPTIM, Cell, Outcome, num_loops_by_step, reference_history
from tests.conformance.compare import TOLERANCE, deviation
from tests.conformance.worker import train_cells
from tests.helpers.dist import run_ranks
from tests.model.models import METHODS

STAGES = (0, 1, 2, 3)
MATRIX = [
    Cell(stage, recompute, accumulation)
    for stage, recompute, accumulation in itertools.product(STAGES, ("none", "every_loop", "every_k_loops"), (1, 3))
]
OTHERS = [method for method in METHODS if method != "scse"]
OTHER_METHODS = [Cell(stage, "every_k_loops", 3, method=method) for stage in STAGES for method in OTHERS]
SMALL_BUCKETS = [Cell(stage, "every_loop", 3, tight=True) for stage in (1, 2, 3)]

JOBS = {"1-rank": (1, MATRIX), "2-ranks": (2, MATRIX + OTHER_METHODS + SMALL_BUCKETS)}
SLOW_JOBS = {"3-ranks": (3, [cell for cell in MATRIX if cell.accumulation == 1])} | {
    f"2-ranks-{method}": (2, [replace(cell, method=method) for cell in MATRIX]) for method in OTHERS
}
ALL = [
    pytest.param(job, cell, id=f"{job}-{cell.name}", marks=[pytest.mark.slow] if job in SLOW_JOBS else [])
    for job, (_, cells) in (JOBS | SLOW_JOBS).items()
    for cell in cells
]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Stands in for all compilers and notes who calls them, while the jobs run."""
    folder = tmp_path_factory.mktemp("builds")
    (folder / "bin").mkdir()
    (folder / "calls").touch()
    for name in ("c++", "g++", "cc", "gcc", "clang++", "ninja", "nvcc"):
        compiler = folder / "bin" / name
        compiler.write_text(f"#!/bin/sh\necho {name} $@ >> {folder}/calls\nexit 1\n")
        compiler.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder / "extensions"))
        yield folder


@pytest.fixture(scope="module")
def run_job(tmp_path_factory: pytest.TempPathFactory, builds: Path) -> Callable[[str], dict[Cell, Outcome]]:
    """Runs a job when the first of its cells is asked for."""

    @cache
    def run(job: str) -> dict[Cell, Outcome]:
        nproc, cells = (JOBS | SLOW_JOBS)[job]
        ranks = run_ranks(train_cells, nproc, cells, tmp_path_factory.mktemp(job), timeout=280)
        _assert_same_on_all_ranks(ranks)
        return ranks[0]

    return run


@pytest.mark.parametrize(("job", "cell"), ALL)
def test_a_cell_trains_like_the_reference(job: str, cell: Cell, run_job: Callable):
    found = deviation(run_job(job)[cell], reference_history(cell.method))
    assert max(found) < TOLERANCE, found


@pytest.mark.parametrize(("job", "cell"), ALL)
def test_the_embeddings_stay_tied_and_a_checkpoint_holds_the_weights(job: str, cell: Cell, run_job: Callable):
    outcome = run_job(job)[cell]
    assert outcome.is_tied
    assert torch.equal(outcome.weights["embedding.token"], outcome.weights["readout.token"])
    assert outcome.weights.keys() == outcome.saved_weights.keys()
    assert all(torch.equal(tensor, outcome.saved_weights[name]) for name, tensor in outcome.weights.items())
    assert all(outcome.applied)


@pytest.mark.parametrize(("job", "cell"), ALL)
def test_recomputation_is_what_the_policy_says(job: str, cell: Cell, run_job: Callable):
    passes = 1 if cell.recompute == "none" else 2
    assert run_job(job)[cell].num_block_calls == passes * cell.accumulation * sum(num_loops_by_step(cell.method))


def test_no_build_is_started_and_no_shared_memory_left(run_job: Callable, builds: Path):
    """All jobs went well with compilers that fail; DeepSpeed only asks, when it is imported, whether there is one."""
    assert [len(run_job(job)) for job in JOBS] == [24, 43]
    assert not (builds / "extensions").exists()
    calls = (builds / "calls").read_text().splitlines()
    assert not [call for call in calls if "/test.c " not in call]
    assert not list(Path("/dev/shm").glob("*deepspeed*"))


def test_the_task_is_one_in_which_faults_would_show():
    """The clip acts in some steps and not in all; weights move by far more than the tolerance."""
    assert NUM_EXAMPLES % (2 * 3) == 0
    history = reference_history("scse")
    assert min(history.grad_norms) < OPTIM.grad_clip < max(history.grad_norms)
    assert history.losses[-1] < history.losses[0] - 0.05


def _assert_same_on_all_ranks(ranks: list[dict[Cell, Outcome]]) -> None:
    for cell, outcome in ranks[0].items():
        for other in (rank[cell] for rank in ranks[1:]):
            assert (other.losses, other.grad_norms, other.applied) == (
                outcome.losses,
                outcome.grad_norms,
                outcome.applied,
            ), cell.name
            assert all(torch.equal(tensor, other.weights[name]) for name, tensor in outcome.weights.items()), cell.name
