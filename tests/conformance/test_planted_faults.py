"""The comparison finds what it is there to find: each fault, planted in the product for the test, makes it fail."""

import pytest

from tests.conformance.cases import Cell, Outcome, reference_history
from tests.conformance.compare import TOLERANCE, deviation
from tests.conformance.worker import train_cells
from tests.helpers.dist import run_ranks

FAULTS = ("rank_local_depth", "mean_of_means", "mask_per_position")
FAULTY = [Cell(stage, "every_loop", 3, fault=fault) for fault in FAULTS for stage in (0, 2)]
SOUND = Cell(2, "every_loop", 3)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Outcome]:
    return run_ranks(train_cells, 2, [*FAULTY, SOUND], tmp_path_factory.mktemp("faults"), timeout=280)[0]


@pytest.mark.parametrize("cell", FAULTY, ids=lambda cell: cell.name)
def test_a_planted_fault_is_far_outside_the_tolerance(cell: Cell, outcomes: dict):
    found = deviation(outcomes[cell], reference_history(cell.method))
    assert found.loss > 100 * TOLERANCE
    assert found.grad_norm > 1000 * TOLERANCE
    assert found.weights > 1000 * TOLERANCE


def test_the_same_job_without_a_fault_is_inside(outcomes: dict):
    assert max(deviation(outcomes[SOUND], reference_history("scse"))) < TOLERANCE
