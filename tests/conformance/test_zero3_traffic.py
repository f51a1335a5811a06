"""At ZeRO-3 the traffic of a step depends on its microbatches and on nothing else: not on the number of loops, not on
recomputation, not on how many steps went before."""

import pytest

from tests.conformance.cases import Cell, initial_model
from tests.conformance.traffic import measure
from tests.helpers.dist import run_ranks

NUM_STEPS = 50
SHIPPED = Cell(3, "every_loop")
RELEASED = Cell(3, "every_loop", tight=True)
"""Nothing stays gathered between two uses."""
NO_RECOMPUTATION = Cell(3, "none", tight=True)


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, dict[str, list[int]]]:
    cells = [SHIPPED, RELEASED, NO_RECOMPUTATION]
    return run_ranks(measure, 2, cells, NUM_STEPS, tmp_path_factory.mktemp("traffic"), timeout=280)[0]


@pytest.mark.parametrize("cell", [SHIPPED, RELEASED], ids=lambda cell: cell.name)
def test_gathered_bytes_are_bounded_and_do_not_depend_on_the_depth(cell: Cell, traffic: dict):
    found = traffic[cell]
    assert set(found["num_loops"]) == set(range(1, 9))
    settled = found["gathered_bytes"][1:]  # DeepSpeed records its trace in the first step
    assert len(set(settled)) == 1, sorted(set(settled))
    assert len(set(found["gathers"][1:])) == 1
    model = initial_model("scse")
    whole = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    shared = model.embedding.token.numel() * model.embedding.token.element_size()
    # Each module gathers its own once forwards and once backwards; the token table belongs to two modules.
    bound = 2 * whole if cell == SHIPPED else 2 * (whole + shared)
    assert 0 < settled[0] <= bound
    assert found["gathered_bytes"][0] <= 4 * whole
    assert cell == SHIPPED or settled[0] >= 2 * whole  # all of them were counted


def test_recomputation_gathers_nothing_again(traffic: dict):
    assert traffic[RELEASED]["gathered_bytes"][1:] == traffic[NO_RECOMPUTATION]["gathered_bytes"][1:]


@pytest.mark.parametrize("cell", [SHIPPED, RELEASED, NO_RECOMPUTATION], ids=lambda cell: cell.name)
def test_the_stack_of_deepspeed_hooks_does_not_grow(cell: Cell, traffic: dict):
    assert len(set(traffic[cell]["hook_stack"])) == 1
