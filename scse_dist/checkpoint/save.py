"""Publishing a checkpoint: temporary folder, shards on disk, manifest last, one rename."""

import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from scse_dist.checkpoint.manifest import (
    ENGINE_FOLDER,
    LATEST,
    MANIFEST,
    CheckpointFile,
    CheckpointManifest,
    Progress,
    published,
    step_folder,
    step_of,
)
from scse_dist.checkpoint.shard_files import ShardFiles
from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.errors import UserError
from scse_dist.files import write_atomically
from scse_dist.parallel import comm
from scse_dist.parallel.engine import Engine


def save_checkpoint(checkpoints: Path, engine: Engine, progress: Progress, config: RunConfig, data: Manifest) -> Path:
    """Saves on all ranks; the folder appears whole or not at all, and earlier ones stay as they were.

    Raises:
        UserError: on every rank, if any rank could not write.
    """
    final = step_folder(checkpoints, progress.step)
    partial = checkpoints / f".{final.name}.partial"
    comm.on_first_rank(lambda: _make_empty(partial))
    files = ShardFiles(partial)
    engine.save(partial, ENGINE_FOLDER, files)
    reports = comm.gather_objects((files.written, files.failure and _reason(files.failure)))
    comm.on_first_rank(lambda: _publish(partial, final, reports, _describe(engine, progress, config, data)))
    comm.on_first_rank(lambda: retain(final, config.checkpoint.keep_last))
    return final


def _make_empty(partial: Path) -> None:
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / ENGINE_FOLDER).mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{partial.parent}: {_reason(error)}; no checkpoint was written") from error


def _publish(partial: Path, final: Path, reports: list, manifest: CheckpointManifest) -> None:
    failures = [f"rank {rank}: {failure}" for rank, (_, failure) in enumerate(reports) if failure]
    try:
        if failures:
            raise UserError(f"{final}: not saved ({'; '.join(failures)}); earlier checkpoints are as they were")
        entries = [CheckpointFile(**entry._asdict()) for written, _ in reports for entry in written]
        manifest = manifest.model_copy(update={"files": tuple(sorted(entries, key=lambda e: e.name))})
        write_atomically(partial / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        _flush_folder(partial / ENGINE_FOLDER)
        _flush_folder(partial)
        shutil.rmtree(final, ignore_errors=True)  # the same step, saved before and found damaged since
        partial.rename(final)
        _flush_folder(final.parent)
        write_atomically(final.parent / LATEST, final.name + "\n")
    except OSError as error:
        raise UserError(f"{final}: not saved ({_reason(error)}); earlier checkpoints are as they were") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def retain(saved: Path, keep_last: int) -> None:
    """Removes the oldest; a folder that loses its manifest first can never be taken for a whole one.

    Later steps do not count: they were found damaged when the run fell back to an earlier one.
    """
    up_to_now = [folder for folder in published(saved.parent) if step_of(folder) <= step_of(saved)]
    for surplus in up_to_now[keep_last:] if keep_last else []:
        if not surplus.is_symlink():
            (surplus / MANIFEST).unlink()
            shutil.rmtree(surplus, ignore_errors=True)


def _describe(engine: Engine, progress: Progress, config: RunConfig, data: Manifest) -> CheckpointManifest:
    return CheckpointManifest(
        progress=progress,
        world_size=engine.world.size,
        zero_stage=config.parallel.zero_stage,
        method=config.model.method.name,
        data_fingerprint=data.fingerprint,
        tokenizer_hash=data.tokenizer.xxh3_128,
        versions={name: version(name) for name in ("torch", "deepspeed", "numpy")},
        git_revision=_git_revision(),
        files=(),
    )


def _git_revision() -> str | None:
    """Revision of the checkout this code runs from, if it is one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
