"""What a rank of a conformance job does: train cells of the matrix with the product's engine and hand back the outcome.

Shapes: B batch, L length.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import deepspeed
import torch
from torch import Tensor

from scse_dist.checkpoint.manifest import Progress
from scse_dist.checkpoint.save import save_checkpoint
from scse_dist.checkpoint.weights import load_weights
from scse_dist.data.manifest import Manifest, Tokenizer
from scse_dist.model import LoopedLM, build_model
from scse_dist.model.loss import IGNORE
from scse_dist.model.methods.scse import Scse
from scse_dist.parallel import comm
from scse_dist.parallel.engine import Engine, StepVerdict
from scse_dist.parallel.env import World
from tests.conformance.cases import (
    LENGTH,
    LR_BY_STEP,
    VOCAB_SIZE,
    Cell,
    Outcome,
    batches,
    initial_model,
    model_section,
    num_loops_by_step,
    run_config,
)

DATA = Manifest(
    corpus="none",
    sources=(),
    filters=(),
    tokenizer=Tokenizer(file="none", vocab_size=VOCAB_SIZE, end_of_text_id=0, xxh3_128=""),
    window=LENGTH,
    windows_per_record=1,
    token_dtype="uint16",
    split_seed=0,
    splits={},
)
"""A checkpoint names its data; here the batches come from elsewhere."""


def train_cells(world: World, cells: list[Cell], folder: Path) -> dict[Cell, Outcome]:
    """Trains one cell after the other in this job; ``folder`` takes their files."""
    return {cell: train_cell(world, cell, folder / cell.name) for cell in cells}


def train_cell(world: World, cell: Cell, folder: Path) -> Outcome:
    outcome = Outcome()
    folder.mkdir(exist_ok=True)
    config = run_config(cell, world.size, folder)
    with planted(cell.fault):
        engine = Engine(initial_model(cell.method), config, world)
        count_block_calls(engine.model, outcome)
        for step, (inputs_BL, labels_BL) in enumerate(batches()):
            num_loops = num_loops_by_step(cell.method)[step]
            run_step(engine, world, inputs_BL, labels_BL, num_loops, LR_BY_STEP[step], outcome)
    outcome.weights = whole_weights(engine.model)
    saved = save_checkpoint(folder, engine, Progress(step=1), config, DATA)
    outcome.saved_weights = weights_in(saved, cell.method)
    outcome.is_tied = engine.model.embedding.token is engine.model.readout.token
    return outcome


def run_step(
    engine: Engine, world: World, inputs_BL: Tensor, labels_BL: Tensor, num_loops: int, lr: float, outcome: Outcome
) -> None:
    """One optimizer step of a global batch, shared out as the product shares its samples."""
    num_tokens = int((labels_BL != IGNORE).sum())
    size = len(inputs_BL) // (world.size * engine.grad_accum_steps)
    total, verdict = torch.zeros((), dtype=torch.float64), StepVerdict(applied=False, grad_norm=0.0)
    for microbatch in range(engine.grad_accum_steps):
        start = (microbatch * world.size + world.rank) * size
        mine = slice(start, start + size)
        total += engine.forward_backward(inputs_BL[mine], labels_BL[mine], num_loops, num_tokens).double()
        verdict = engine.step(lr)
    outcome.losses.append(comm.sum_over_ranks(total).item() / num_tokens)
    outcome.grad_norms.append(verdict.grad_norm)
    outcome.applied.append(verdict.applied)


def whole_weights(model: LoopedLM) -> dict[str, Tensor]:
    """All weights on every rank, gathered if they are sharded."""
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def weights_in(checkpoint: Path, method: str) -> dict[str, Tensor]:
    model = build_model(model_section(method))
    load_weights(model, checkpoint)
    return model.state_dict()


def count_block_calls(model: LoopedLM, outcome: Outcome) -> None:
    def count(*_: Any) -> None:
        outcome.num_block_calls += 1

    for block in model.unroll.blocks:
        block.register_forward_pre_hook(count)


@contextlib.contextmanager
def planted(fault: str | None) -> Iterator[None]:
    """Damages the product for the time of a cell; the product itself knows nothing of it."""
    if fault is None:
        yield
        return
    target, attribute, damaged = {
        "rank_local_depth": (Engine, "forward_backward", _rank_local_depth(Engine.forward_backward)),
        "mean_of_means": (Engine, "forward_backward", _mean_of_means(Engine.forward_backward)),
        "mask_per_position": (Scse, "transition", _mask_per_position),
    }[fault]
    with mock.patch.object(target, attribute, damaged):
        yield


def _rank_local_depth(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def damaged(engine: Engine, inputs_BL: Tensor, labels_BL: Tensor, num_loops: int, num_step_tokens: int) -> Tensor:
        return whole(engine, inputs_BL, labels_BL, num_loops + engine.world.rank, num_step_tokens)

    return damaged


def _mean_of_means(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def damaged(engine: Engine, inputs_BL: Tensor, labels_BL: Tensor, num_loops: int, num_step_tokens: int) -> Tensor:
        num_own_tokens = max(1, int((labels_BL != IGNORE).sum()))
        num_parts = engine.world.size * engine.grad_accum_steps
        return whole(engine, inputs_BL, labels_BL, num_loops, num_own_tokens * num_parts)

    return damaged


def _mask_per_position(method: Any, deviation_BLE: Tensor, context: Any, step: int, block: Any) -> Tensor:
    update_BLE = method.step_scale * block(deviation_BLE)
    active_BL1 = deviation_BLE.detach().square().sum(-1, keepdim=True) > method.mask_eps
    return deviation_BLE + torch.where(active_BL1, update_BLE, 0.0)
