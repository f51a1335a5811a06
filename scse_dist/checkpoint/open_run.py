"""A trained run, opened for everything that is not training."""

from pathlib import Path
from typing import NamedTuple

import torch

from scse_dist.checkpoint.manifest import MANIFEST, CheckpointManifest
from scse_dist.checkpoint.weights import find_checkpoint, load_weights
from scse_dist.config import RunConfig, read_config
from scse_dist.data.manifest import Manifest
from scse_dist.errors import UserError
from scse_dist.model import LoopedLM, build_model
from scse_dist.run_folder import RunFolder


class OpenRun(NamedTuple):
    """A run's model with the weights of one checkpoint, computing in fp32 and in evaluation mode."""

    folder: RunFolder
    config: RunConfig
    model: LoopedLM
    checkpoint: Path
    saved: CheckpointManifest


def check_data(run: OpenRun, data: Manifest) -> None:
    """Whether this is the data the run was trained on, wherever it lies now.

    Raises:
        UserError: another fingerprint.
    """
    if data.fingerprint != run.saved.data_fingerprint:
        raise UserError(
            f"data.path={run.config.data.path}: is not the data {run.folder.path} was trained on (another "
            "fingerprint); put the run's own data there"
        )


def open_run(path: Path, step: int | None, device: torch.device) -> OpenRun:
    """Opens a run folder, or one of its checkpoint folders.

    Raises:
        UserError: no run there, no such checkpoint, a damaged file.
    """
    is_checkpoint = (path / MANIFEST).is_file()
    if is_checkpoint and step is not None:
        raise UserError(f"--step={step}: {path} is already one checkpoint; give the run folder instead")
    folder = RunFolder(path.resolve().parent.parent if is_checkpoint else path)
    if not folder.config.is_file():
        raise UserError(f"{path}: not a run folder (no {folder.config.name} in it); give a training run's run.dir")
    config = read_config(folder.config)
    checkpoint = path if is_checkpoint else find_checkpoint(folder.checkpoints, step)
    model = build_model(config.model, config.seed)
    saved = load_weights(model, checkpoint)
    return OpenRun(folder, config, model.to(device).eval().requires_grad_(False), checkpoint, saved)
