"""What a rank of a job with poisoned losses does: one rank's loss turns NaN, then infinite, then all is well again."""

import math
from pathlib import Path
from typing import Any

from scse_dist.model.lm import LoopedLMOutput
from scse_dist.parallel.engine import Engine
from scse_dist.parallel.env import World
from tests.conformance.cases import LR_BY_STEP, Cell, Outcome, batches, initial_model, num_loops_by_step, run_config
from tests.conformance.worker import run_step, train_cells, whole_weights

POISON_BY_STEP = {1: math.nan, 2: math.inf}


def train_and_poison(
    world: World, healthy: list[Cell], poisoned: list[Cell], folder: Path
) -> tuple[dict[Cell, Outcome], dict[Cell, tuple[Outcome, Outcome]]]:
    """Trains the healthy cells as they are, and each of the others twice: steps 0 to 3 of which 1 and 2 are poisoned,
    and the same without steps 1 and 2."""
    pairs = {
        cell: (_train(world, cell, (0, 1, 2, 3), folder), _train(world, cell, (0, 3), folder)) for cell in poisoned
    }
    return train_cells(world, healthy, folder), pairs


def _train(world: World, cell: Cell, steps: tuple[int, ...], folder: Path) -> Outcome:
    outcome = Outcome()
    engine = Engine(initial_model(cell.method), run_config(cell, world.size, folder), world)
    factor = 1.0

    def spoil(_module: Any, _inputs: Any, output: LoopedLMOutput) -> LoopedLMOutput:
        assert output.loss_sum is not None
        return output._replace(loss_sum=output.loss_sum * factor)

    engine.model.readout.register_forward_hook(spoil)
    for step in steps:
        factor = POISON_BY_STEP.get(step, 1.0) if world.rank == 1 else 1.0
        num_loops = num_loops_by_step(cell.method)[step]
        run_step(engine, world, *batches()[step], num_loops, LR_BY_STEP[step], outcome)
    outcome.weights = whole_weights(engine.model)
    return outcome
