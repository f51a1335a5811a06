"""Whole weights out of a sharded checkpoint, for everything that is not training."""

from pathlib import Path

import torch
from torch import Tensor

from scse_dist.checkpoint.manifest import ENGINE_FOLDER, CheckpointManifest, faults, published, read_checkpoint, step_of
from scse_dist.checkpoint.shard_files import ShardFiles
from scse_dist.errors import UserError
from scse_dist.model.lm import LoopedLM


def find_checkpoint(checkpoints: Path, step: int | None) -> Path:
    """The newest checkpoint, or the one of a step.

    Raises:
        UserError: there is none.
    """
    found = {step_of(folder): folder for folder in published(checkpoints)}
    if not found:
        raise UserError(f"{checkpoints}: holds no checkpoint; train the run first")
    wanted = max(found) if step is None else step
    if wanted not in found:
        raise UserError(f"{checkpoints}: has no checkpoint of step {step}; it has {', '.join(map(str, sorted(found)))}")
    return found[wanted]


def load_weights(model: LoopedLM, checkpoint: Path) -> CheckpointManifest:
    """Fills an unsharded model from a checkpoint of any ZeRO stage, in fp32.

    Raises:
        UserError: a file is missing or damaged, or the shapes are not this model's.
    """
    manifest = read_checkpoint(checkpoint)
    found = faults(checkpoint, manifest.files)
    if found:
        raise UserError(f"{found[0]}; use another checkpoint (--step N)")
    state = _sharded_weights(checkpoint) if manifest.zero_stage == 3 else _whole_weights(checkpoint)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{checkpoint}: does not fit the run's model ({reason})") from error
    return manifest


def _whole_weights(checkpoint: Path) -> dict[str, Tensor]:
    """Up to stage 2 rank 0's file holds all parameters."""
    path = checkpoint / ENGINE_FOLDER / "mp_rank_00_model_states.pt"
    return ShardFiles(checkpoint).load(str(path), map_location="cpu")["module"]


def _sharded_weights(checkpoint: Path) -> dict[str, Tensor]:
    """At stage 3 each rank's file holds one piece of every parameter group, parameter after parameter."""
    files, folder = ShardFiles(checkpoint), checkpoint / ENGINE_FOLDER
    models = [files.load(str(path), "cpu") for path in sorted(folder.glob("zero_pp_rank_*_model_states.pt"))]
    optims = [files.load(str(path), "cpu") for path in sorted(folder.glob("*_optim_states.pt"))]
    flat = [state["optimizer_state_dict"]["fp32_flat_groups"] for state in optims]
    state: dict[str, Tensor] = {}
    for group, shapes in enumerate(models[0]["param_shapes"]):
        offset = 0
        for name, shape in shapes.items():
            piece = -(-shape.numel() // len(flat))
            pieces = [rank[group][offset : offset + piece] for rank in flat]
            state[name] = torch.cat(pieces)[: shape.numel()].view(shape)
            offset += piece
    for alias, name in models[0]["shared_params"].items():
        state[alias] = state[name]
    return state
