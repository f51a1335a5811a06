"""The one small training task that all cells of the matrix, and the reference, work on."""

import json
import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from scse_dist.config.methods import AnyMethodConfig, ScseConfig, UnsharedConfig
from scse_dist.config.schema import DepthSection, ModelSection, OptimSection, ParallelSection, RunConfig, TrainSection
from scse_dist.model import LoopedLM, build_model
from scse_dist.model.loss import IGNORE
from tests.conformance import reference
from tests.model.models import METHODS, formula_of
from tests.model.names import to_formula

NUM_STEPS = 6
NUM_LAYERS = 3
LR_BY_STEP = (2e-3, 4e-3, 6e-3, 6e-3, 4e-3, 2e-3)
NUM_EXAMPLES, LENGTH, VOCAB_SIZE, WIDTH = 12, 8, 40, 32

OPTIM = OptimSection(betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1, grad_clip=1.8)


@dataclass(frozen=True)
class Cell:
    """How the task is spread over ranks."""

    zero_stage: int = 0
    recompute: str = "none"
    accumulation: int = 1
    method: str = "scse"
    precision: str = "fp32"
    tight: bool = False
    """Buckets smaller than a matrix and nothing kept gathered, as a large model would have it."""
    fault: str | None = None

    @property
    def name(self) -> str:
        parts = (self.method, f"zero{self.zero_stage}", self.recompute, f"x{self.accumulation}", self.precision)
        return "-".join([*parts, *(["tight"] if self.tight else []), *([self.fault] if self.fault else [])])


@dataclass
class Outcome:
    """What a cell did: one entry a step, and the whole weights at the end."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    applied: list[bool] = field(default_factory=list)
    num_block_calls: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    saved_weights: dict[str, Tensor] = field(default_factory=dict)
    """The same after they went through a checkpoint."""
    is_tied: bool = False


def num_loops_by_step(method: str) -> tuple[int, ...]:
    """Every depth the issue names, in an order that makes it rise and fall; an unshared model has one depth."""
    return (NUM_LAYERS,) * NUM_STEPS if method == "unshared" else (3, 1, 8, 2, 8, 3)


def method_config(method: str) -> AnyMethodConfig:
    # The threshold lies between the squared norm of a position (at most 0.009) and of an example (at least 0.024), so
    # that a mask of another granularity acts differently.
    special = {"scse": ScseConfig(mask_eps=0.015), "unshared": UnsharedConfig(num_layers=NUM_LAYERS)}
    return special.get(method, METHODS[method])


def model_section(method: str) -> ModelSection:
    return ModelSection(
        width=WIDTH,
        num_heads=4,
        ffn_width=48,
        vocab_size=VOCAB_SIZE,
        num_positions=LENGTH,
        method=method_config(method),
    )


def run_config(cell: Cell, world_size: int, folder: Path) -> RunConfig:
    """The product's configuration of a cell; ``folder`` takes its DeepSpeed file if it has one of its own."""
    depth = DepthSection()
    if cell.method == "unshared":
        depth = DepthSection(schedule="fixed", min=NUM_LAYERS, max=NUM_LAYERS)
    return RunConfig(
        precision=cell.precision,  # pyright: ignore[reportArgumentType]
        model=model_section(cell.method),
        depth=depth,
        train=TrainSection(
            global_batch_size=NUM_EXAMPLES, microbatch_size=NUM_EXAMPLES // (world_size * cell.accumulation)
        ),
        optim=OPTIM,
        parallel=ParallelSection.model_validate(
            {
                "zero_stage": cell.zero_stage,
                "recompute": cell.recompute,
                "recompute_interval": 2 if cell.recompute == "every_k_loops" else None,
                "ds_config": str(_write_tight_config(cell.zero_stage, folder)) if cell.tight else None,
            }
        ),
    )


def _write_tight_config(zero_stage: int, folder: Path) -> Path:
    zero: dict[str, int | bool] = {"stage": zero_stage, "reduce_bucket_size": 1000}
    if zero_stage == 3:
        zero |= {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0}
        zero |= {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}
    elif zero_stage:
        zero |= {"allgather_bucket_size": 1000, "overlap_comm": False}
    path = folder / f"tight{zero_stage}-{os.getpid()}.json"  # each rank its own: none reads what another is writing
    path.write_text(json.dumps({"zero_optimization": zero}))
    return path


def initial_model(method: str) -> LoopedLM:
    """Default initial weights, but gains other than 1, so that a decay of gains would show."""
    model = build_model(model_section(method), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.mul_(torch.empty_like(parameter).uniform_(0.5, 1.5, generator=generator))
    return model


def batches() -> list[tuple[Tensor, Tensor]]:
    """A global batch of inputs and labels a step. Example n has n of its labels ignored, the last two all of them, so
    that ranks and microbatches score different numbers of tokens, one of them none."""
    made = []
    for step in range(NUM_STEPS):
        generator = torch.Generator().manual_seed(100 + step)
        tokens_BW = torch.randint(0, VOCAB_SIZE, (NUM_EXAMPLES, LENGTH + 1), generator=generator)
        inputs_BL, labels_BL = tokens_BW[:, :-1].contiguous(), tokens_BW[:, 1:].clone()
        for example in range(NUM_EXAMPLES):
            labels_BL[example, : LENGTH if example >= NUM_EXAMPLES - 2 else example % LENGTH] = IGNORE
        made.append((inputs_BL, labels_BL))
    return made


@cache
def reference_history(method: str) -> reference.History:
    """What the reference makes of the task (two seconds, so once a process)."""
    optimizer = reference.Optimizer(LR_BY_STEP, OPTIM.betas, OPTIM.eps, OPTIM.weight_decay, OPTIM.grad_clip)
    initial = to_formula(initial_model(method).state_dict())
    return reference.train(formula_of(model_section(method)), initial, optimizer, batches(), num_loops_by_step(method))
