"""What a checkpoint folder holds, and which folder is the newest whole one. Imports no torch.

checkpoints/step-00000500/manifest.json   written last, lists every file with size and hash
                          engine/...      one or two files per rank
checkpoints/latest                        names the newest; a hint, the folders are the truth
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from scse_dist.errors import UserError
from scse_dist.files import hash_file

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
LATEST = "latest"
ENGINE_FOLDER = "engine"


class Progress(BaseModel):
    """How far a run has come; depth, order of samples and dropout follow from ``step`` and need no state."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    step: int = 0
    """Optimizer steps gone through, applied or skipped."""
    num_applied: int = 0
    """Steps that changed the parameters; the learning rate is a function of this count."""
    num_skipped: int = 0
    """Steps whose gradient was not finite."""
    num_tokens: int = 0
    """Tokens that were predicted, over all ranks."""
    num_samples: int = 0
    """Windows read, over all ranks: the position in the data."""


class CheckpointFile(BaseModel):
    """One listed file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_bytes: int
    xxh3_128: str


class CheckpointManifest(BaseModel):
    """Everything that is known about a checkpoint without opening its files."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format_version: int = FORMAT_VERSION
    progress: Progress
    world_size: int
    zero_stage: int
    method: str
    data_fingerprint: str
    tokenizer_hash: str
    versions: dict[str, str]
    git_revision: str | None
    files: tuple[CheckpointFile, ...]


def step_folder(checkpoints: Path, step: int) -> Path:
    """The folder of a step's checkpoint."""
    return checkpoints / f"step-{step:08d}"


def published(checkpoints: Path) -> list[Path]:
    """Folders with a manifest, newest first; a copy under another name is none of the run's."""
    folders = [path.parent for path in checkpoints.glob(f"step-*/{MANIFEST}")]
    return sorted(filter(_is_named_by_step, folders), key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """The step that a checkpoint's folder is named after."""
    return int(folder.name.removeprefix("step-"))


def _is_named_by_step(folder: Path) -> bool:
    return folder.name.removeprefix("step-").isdecimal() and folder == step_folder(folder.parent, step_of(folder))


def sweep_partial(checkpoints: Path) -> None:
    """Removes what a killed save left behind; links are never followed."""
    for leftover in checkpoints.glob(".step-*.partial"):
        if leftover.is_symlink():
            leftover.unlink()
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def read_checkpoint(folder: Path) -> CheckpointManifest:
    """Reads a checkpoint's manifest.

    Raises:
        UserError: missing, damaged or of another format.
    """
    path = folder / MANIFEST
    try:
        manifest = CheckpointManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a folder such as checkpoints/step-00000500") from error
    except (ValidationError, ValueError) as error:
        raise UserError(f"{path}: damaged or of another version of scse-dist") from error
    if manifest.progress.step != step_of(folder):
        raise UserError(f"{path}: is of step {manifest.progress.step}, not the one its folder is named after")
    if not manifest.files:
        raise UserError(f"{path}: lists no files; use another checkpoint (--step N)")
    if manifest.format_version != FORMAT_VERSION:
        raise UserError(f"{path}: format_version={manifest.format_version}, this program reads {FORMAT_VERSION}")
    return manifest


def faults(folder: Path, files: Iterable[CheckpointFile]) -> list[str]:
    """What is wrong with listed files, a line each; empty if nothing is."""
    found = []
    for entry in files:
        path = folder / entry.name
        try:
            if hash_file(path) != (entry.num_bytes, entry.xxh3_128):
                found.append(f"{path}: size or hash differs from the manifest")
        except OSError as error:
            found.append(f"{path}: {error.strerror}")
    return found
