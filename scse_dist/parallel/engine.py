"""DeepSpeed, and nothing else of the engine: the only file that imports it.

DeepSpeed shards and reduces; what it would decide on its own (learning rate, accumulation, which steps count) comes
from outside, so that every ZeRO stage trains exactly like one process of plain PyTorch.

Shapes: B batch, L length.
"""

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scse_dist.config.accumulation import accumulation_steps
from scse_dist.config.deepspeed import deepspeed_config, steps_like_plain_pytorch
from scse_dist.config.schema import RunConfig
from scse_dist.model.lm import LoopedLM, LoopedLMOutput
from scse_dist.model.unroll import Unroll
from scse_dist.parallel import comm
from scse_dist.parallel.accelerator import name_accelerator
from scse_dist.parallel.env import World

name_accelerator()

import deepspeed  # noqa: E402 (it looks for an accelerator while it is imported)
from deepspeed.utils import set_z3_leaf_modules  # noqa: E402


class StepVerdict(NamedTuple):
    """What became of an optimizer step; equal on all ranks."""

    applied: bool
    """False if the gradient was not finite and the parameters stayed as they were."""
    grad_norm: float
    """Global norm before clipping; not finite if the step was skipped."""


class Engine:
    """A model and its optimizer, sharded as the configuration says."""

    def __init__(self, model: LoopedLM, config: RunConfig, world: World):
        self.world = world
        self.grad_accum_steps = accumulation_steps(config, world.size)
        self._grad_clip = config.optim.grad_clip
        self._plain = steps_like_plain_pytorch(config)
        model.unroll.loops_per_segment = config.parallel.loops_per_segment
        set_z3_leaf_modules(model, [Unroll])
        _quiet_deepspeed()
        _skip_shared_memory_op()
        self._engine: Any = deepspeed.initialize(
            model=model,
            optimizer=build_optimizer(model, config),
            config=deepspeed_config(config, world.size),
            dist_init_required=False,
        )[0]
        if config.precision == "bf16" and config.parallel.zero_stage == 0:
            # This optimizer steps once with zero gradients when it is built, and Adam's bias correction counts that.
            for state in self._engine.optimizer.state.values():
                state["step"].zero_()
        self._engine._copy_recovery_script = lambda save_path: None  # its scripts would lie beside what we list
        if hasattr(self._engine.optimizer, "check_grad_overflow"):
            # Off by default in fp32, where ZeRO-1/2 would then write NaN into every parameter.
            self._engine.optimizer.check_grad_overflow = True

    @property
    def model(self) -> LoopedLM:
        """The (possibly sharded) model; call it on all ranks alike."""
        return self._engine.module

    def forward_backward(self, input_ids_BL: Tensor, labels_BL: Tensor, num_loops: int, num_step_tokens: int) -> Tensor:
        """Accumulates the gradient of one microbatch towards the mean over the step's tokens.

        Args:
            num_step_tokens: scored tokens of the whole global batch, so that a mean of means never arises.

        Returns:
            The microbatch's summed loss on this rank, detached.
        """
        self._engine.train()
        with comm.peers_needed():
            output: LoopedLMOutput = self._engine(input_ids_BL, num_loops, labels_BL=labels_BL)
            assert output.loss_sum is not None
            # DeepSpeed averages over ranks what has to be summed.
            self._engine.backward(output.loss_sum * (self.world.size / num_step_tokens), scale_wrt_gas=False)
        return output.loss_sum.detach()

    def step(self, lr: float) -> StepVerdict:
        """Clips and applies the accumulated gradient; call it after every microbatch of a step but act on the last.

        A gradient that is not finite leaves parameters and optimizer as they were.
        """
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        if not self._engine.is_gradient_accumulation_boundary():
            self._engine.step()
            return StepVerdict(applied=False, grad_norm=math.nan)
        plain_norm = self._clip_unsharded() if self._plain else None
        with comm.peers_needed():
            self._engine.step()
        grad_norm = plain_norm if plain_norm is not None else float(self._engine.get_global_grad_norm())
        return StepVerdict(applied=self._engine.was_step_applied() and math.isfinite(grad_norm), grad_norm=grad_norm)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[LoopedLM]:
        """The model in evaluation mode, without gradients."""
        with torch.no_grad(), self._autocast(), comm.peers_needed():
            yield self._engine.module.eval()

    def save(self, folder: Path, tag: str, files: Any) -> None:
        """Writes this rank's shards below ``folder/tag`` through ``files``; collective."""
        self._engine.checkpoint_engine = files
        with comm.peers_needed():
            self._engine.save_checkpoint(str(folder), tag=tag, save_latest=False)

    def load(self, folder: Path, tag: str, files: Any) -> None:
        """Restores model and optimizer from ``folder/tag`` through ``files``; collective."""
        self._engine.checkpoint_engine = files
        with comm.peers_needed():
            loaded, _ = self._engine.load_checkpoint(str(folder), tag=tag)
        assert loaded is not None, f"DeepSpeed loaded nothing from {folder / tag}"

    def _clip_unsharded(self) -> float:
        """Stage 0 without master weights: DeepSpeed reports no norm and applies gradients that are not finite."""
        parameters = [p for p in self._engine.module.parameters() if p.grad is not None]
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        value = float(norm)
        if not math.isfinite(value):
            for parameter in parameters:
                parameter.grad = None
        elif self._grad_clip:
            torch.nn.utils.clip_grads_with_norm_(parameters, self._grad_clip, norm)
        return value

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if not self._engine.torch_autocast_enabled():
            return contextlib.nullcontext()
        return torch.autocast(self.world.device.type, dtype=self._engine.torch_autocast_dtype())


def build_optimizer(model: LoopedLM, config: RunConfig) -> torch.optim.AdamW:
    """AdamW that decays matrices only; gains, scalars and (by default) embeddings are left alone."""
    embeddings = {id(model.embedding.token), id(model.embedding.position)}
    decays: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        is_matrix = parameter.ndim >= 2 and (config.optim.decay_embeddings or id(parameter) not in embeddings)
        decays[is_matrix].append(parameter)
    optim = config.optim
    groups = [
        {"params": decays[True], "weight_decay": optim.weight_decay},
        {"params": decays[False], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)


def _quiet_deepspeed() -> None:
    """One line per layer of DeepSpeed is not what a user reads; its warnings stay."""
    from deepspeed.utils import logger

    logger.setLevel(logging.WARNING)
    # DeepSpeed still uses the older names of two collectives.
    warnings.filterwarnings("ignore", message=".*is deprecated.*_single", category=FutureWarning)


def _skip_shared_memory_op() -> None:
    """Keeps DeepSpeed from compiling its shared-memory collectives, which takes a C++ compiler and 90 seconds.

    They only serve when all ranks of a job share one machine, and leave files in /dev/shm behind.
    """
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False
