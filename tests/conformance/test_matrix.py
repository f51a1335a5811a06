"""Every way to spread a training run computes what one plain process computes.

ZeRO stages x recomputation x accumulation x world size (48 cells), then the other methods and small buckets. T goes
3, 1, 8, 2, 8, 3 within each of them. All cells of a world size share one job, in one process per rank.
"""

import itertools

import pytest
import torch

from tests.conformance.cases import NUM_EXAMPLES, Cell, Outcome, num_loops_by_step, reference_history
from tests.conformance.compare import TOLERANCE, deviation
from tests.conformance.reference import History
from tests.conformance.worker import train_cells
from tests.helpers.dist import run_ranks
from tests.model.models import METHODS

STAGES = (0, 1, 2, 3)
MATRIX = [
    Cell(stage, recompute, accumulation)
    for stage, recompute, accumulation in itertools.product(STAGES, ("none", "every_loop", "every_k_loops"), (1, 3))
]
OTHER_METHODS = [
    Cell(stage, "every_k_loops", 3, method=method) for stage in STAGES for method in METHODS if method != "scse"
]
SMALL_BUCKETS = [Cell(stage, "every_loop", 3, tight=True) for stage in (1, 2, 3)]
CELLS = {1: MATRIX, 2: MATRIX + OTHER_METHODS + SMALL_BUCKETS}
ALL = [pytest.param(nproc, cell, id=f"{nproc}-{cell.name}") for nproc, cells in CELLS.items() for cell in cells]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[Cell, Outcome]]:
    jobs = {}
    for nproc, cells in CELLS.items():
        ranks = run_ranks(train_cells, nproc, cells, tmp_path_factory.mktemp(f"{nproc}-ranks"), timeout=280)
        _assert_same_on_all_ranks(ranks)
        jobs[nproc] = ranks[0]
    return jobs


@pytest.fixture(scope="module")
def references() -> dict[str, History]:
    return {method: reference_history(method) for method in METHODS}


@pytest.mark.parametrize(("nproc", "cell"), ALL)
def test_a_cell_trains_like_the_reference(nproc: int, cell: Cell, outcomes: dict, references: dict):
    found = deviation(outcomes[nproc][cell], references[cell.method])
    assert max(found) < TOLERANCE, found


@pytest.mark.parametrize(("nproc", "cell"), ALL)
def test_the_embeddings_stay_tied_and_a_checkpoint_holds_the_weights(nproc: int, cell: Cell, outcomes: dict):
    outcome = outcomes[nproc][cell]
    assert outcome.is_tied
    assert torch.equal(outcome.weights["embedding.token"], outcome.weights["readout.token"])
    assert outcome.weights.keys() == outcome.saved_weights.keys()
    assert all(torch.equal(tensor, outcome.saved_weights[name]) for name, tensor in outcome.weights.items())
    assert all(outcome.applied)


@pytest.mark.parametrize(("nproc", "cell"), ALL)
def test_recomputation_is_what_the_policy_says(nproc: int, cell: Cell, outcomes: dict):
    passes = 1 if cell.recompute == "none" else 2
    assert outcomes[nproc][cell].num_block_calls == passes * cell.accumulation * sum(num_loops_by_step(cell.method))


def test_the_task_is_one_in_which_faults_would_show(references: dict):
    """The clip acts in some steps and not in all; weights move by far more than the tolerance."""
    assert NUM_EXAMPLES % (2 * 3) == 0
    norms = references["scse"].grad_norms
    assert min(norms) < 1.8 < max(norms)
    start, end = references["scse"].losses[0], references["scse"].losses[-1]
    assert end < start - 0.05


def _assert_same_on_all_ranks(ranks: list[dict[Cell, Outcome]]) -> None:
    for cell, outcome in ranks[0].items():
        for other in (rank[cell] for rank in ranks[1:]):
            assert (other.losses, other.grad_norms, other.applied) == (
                outcome.losses,
                outcome.grad_norms,
                outcome.applied,
            ), cell.name
            assert all(torch.equal(tensor, other.weights[name]) for name, tensor in outcome.weights.items()), cell.name
