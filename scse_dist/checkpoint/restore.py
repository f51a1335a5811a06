"""Going on from the newest whole checkpoint."""

import math
from collections.abc import Callable
from pathlib import Path

from scse_dist.checkpoint.manifest import (
    ENGINE_FOLDER,
    CheckpointManifest,
    Progress,
    faults,
    published,
    read_checkpoint,
    sweep_partial,
)
from scse_dist.checkpoint.shard_files import ShardFiles
from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.errors import UserError
from scse_dist.parallel import comm
from scse_dist.parallel.engine import Engine


def restore_newest(
    checkpoints: Path, engine: Engine, config: RunConfig, data: Manifest, say: Callable[[str], None]
) -> Progress | None:
    """Loads the newest checkpoint whose hashes hold into the engine; None if there is none at all.

    Raises:
        UserError: on every rank: none of the checkpoints is whole, or the newest does not fit this run.
    """
    comm.on_first_rank(lambda: sweep_partial(checkpoints))
    candidates = comm.on_first_rank(lambda: published(checkpoints))
    for folder in candidates:
        try:
            manifest = comm.on_first_rank(lambda folder=folder: read_checkpoint(folder))
        except UserError as error:
            say(f"WARNING: {error}; falling back to the checkpoint before it")
            continue
        comm.on_first_rank(lambda folder=folder, manifest=manifest: _check_fit(folder, manifest, engine, config, data))
        found = _faults_on_any_rank(folder, manifest, engine)
        if not found:
            engine.load(folder, ENGINE_FOLDER, ShardFiles(folder))
            say(f"resuming from {folder} (step {manifest.progress.step})")
            return manifest.progress
        say(f"WARNING: {found[0]}; falling back to the checkpoint before it")
    if candidates:
        raise UserError(
            f"{checkpoints}: none of {len(candidates)} checkpoints is whole; restore one from a backup, "
            "or remove the folder to start from step 0"
        )
    return None


def _check_fit(folder: Path, manifest: CheckpointManifest, engine: Engine, config: RunConfig, data: Manifest) -> None:
    for what, theirs, ours, way_out in (
        ("model.method.name", manifest.method, config.model.method.name, "use the run's own recipe"),
        ("data fingerprint", manifest.data_fingerprint, data.fingerprint, "point data.path at the run's own data"),
        ("parallel.zero_stage", manifest.zero_stage, config.parallel.zero_stage, f"use {manifest.zero_stage}"),
        ("number of ranks", manifest.world_size, engine.world.size, f"use --nproc {manifest.world_size}"),
    ):
        if theirs != ours:
            raise UserError(f"{folder}: was saved with {what} {theirs}, this run has {ours}; {way_out}")


def _faults_on_any_rank(folder: Path, manifest: CheckpointManifest, engine: Engine) -> list[str]:
    """Each rank hashes its share of the files."""
    share = math.ceil(len(manifest.files) / engine.world.size)
    mine = manifest.files[engine.world.rank * share : (engine.world.rank + 1) * share]
    return [fault for found in comm.gather_objects(faults(folder, mine)) for fault in found]
