"""DeepSpeed's settings from ours: its file holds what it alone owns, the recipe the rest. Imports no torch."""

import json
from pathlib import Path
from typing import Any

from ds_configs import stage_file
from scse_dist.config.accumulation import accumulation_steps
from scse_dist.config.schema import RunConfig
from scse_dist.errors import UserError

OWNED_BY_RECIPE = {
    "train_batch_size": "train.global_batch_size",
    "train_micro_batch_size_per_gpu": "train.microbatch_size",
    "gradient_accumulation_steps": "train.global_batch_size",
    "gradient_clipping": "optim.grad_clip",
    "bf16": "precision",
    "fp16": "precision",
    "torch_autocast": "precision",
    "amp": "precision",
    "data_types": "precision",
    "activation_checkpointing": "parallel.recompute",
    "tensorboard": "telemetry.tensorboard",
    "steps_per_print": "telemetry.log_every",
    "optimizer": "optim",
    "scheduler": "optim",
}
"""DeepSpeed's keys that say what the recipe already says."""
_OFF = {"enabled": False}
"""A section that says no more than its absence."""


def deepspeed_config(config: RunConfig, world_size: int) -> dict[str, Any]:
    """The stage's file with what the recipe owns filled in.

    Raises:
        UserError: unreadable, another stage than the recipe's, or a key that contradicts the recipe.
    """
    path = Path(config.parallel.ds_config or stage_file(config.parallel.zero_stage))
    try:
        settings: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"parallel.ds_config={path}: {' '.join(str(error).split())}; give a DeepSpeed JSON file"
        ) from error
    if not isinstance(settings, dict) or not isinstance(settings.get("zero_optimization"), dict):
        raise UserError(f"parallel.ds_config={path}: has no zero_optimization section; see ds_configs/ for examples")
    stage = settings["zero_optimization"].get("stage")
    if stage != config.parallel.zero_stage:
        raise UserError(
            f"parallel.ds_config={path}: zero_optimization.stage={stage!r} contradicts "
            f"parallel.zero_stage={config.parallel.zero_stage}; make them agree"
        )
    ours = _owned_settings(config, world_size)
    said_by_recipe = ours | {"gradient_clipping": config.optim.grad_clip}
    for key, owner in OWNED_BY_RECIPE.items():
        if key in settings and settings[key] != said_by_recipe.get(key, _OFF):
            raise UserError(
                f"parallel.ds_config={path}: {key}={json.dumps(settings[key])} contradicts the recipe's {owner}; "
                f"remove it from the file"
            )
    return settings | ours


def steps_like_plain_pytorch(config: RunConfig) -> bool:
    """Whether DeepSpeed leaves clipping to us: stage 0 without master weights, where it also reports no norm."""
    return config.parallel.zero_stage == 0 and config.precision != "bf16"


def _owned_settings(config: RunConfig, world_size: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "train_batch_size": config.train.global_batch_size,
        "train_micro_batch_size_per_gpu": config.train.microbatch_size,
        "gradient_accumulation_steps": accumulation_steps(config, world_size),
        "gradient_clipping": 0.0 if steps_like_plain_pytorch(config) else config.optim.grad_clip,
        "steps_per_print": 2**31,
    }
    if config.precision == "bf16":
        settings["bf16"] = {"enabled": True}
        # Stage 0 knows no other accumulator than the parameters' own.
        settings["data_types"] = {"grad_accum_dtype": "fp32" if config.parallel.zero_stage else "bf16"}
    elif config.precision == "bf16_autocast":
        settings["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
    return settings
