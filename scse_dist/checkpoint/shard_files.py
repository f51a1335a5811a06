"""How single checkpoint files are written and read: hashed and flushed to disk on the way out, data only on the way in.

DeepSpeed calls this in place of its own writer.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import torch
import xxhash

from scse_dist.parallel.accelerator import name_accelerator


class FileEntry(NamedTuple):
    """A file of a checkpoint as its manifest lists it."""

    name: str
    """Relative to the checkpoint's folder."""
    num_bytes: int
    xxh3_128: str


class ShardFiles:
    """Writes a rank's files below ``root`` and remembers what it wrote.

    A failure is kept instead of raised, because a rank that left DeepSpeed's collective save early would leave the
    others waiting; ``failure`` is looked at when all of them are through.
    """

    name = "scse-dist"

    def __init__(self, root: Path):
        self.root = root
        self.written: list[FileEntry] = []
        self.failure: OSError | None = None

    def save(self, state_dict: Any, path: str) -> None:
        """Writes one file and flushes it to disk."""
        try:
            with open(path, "wb") as file:
                hashed = _HashingWriter(file)
                torch.save(state_dict, cast(Any, hashed))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.failure = error
        except RuntimeError as error:
            # torch's zip writer turns the file's OSError into its own kind when it closes.
            if not isinstance(error.__context__, OSError):
                raise
            self.failure = error.__context__
        else:
            name = str(Path(path).relative_to(self.root))
            self.written.append(FileEntry(name, hashed.num_bytes, hashed.digest.hexdigest()))

    def load(self, path: str, map_location: Any = None) -> Any:
        """Reads one file; only tensors, plain containers and DeepSpeed's loss scaler are accepted."""
        with _known_types():
            return torch.load(path, map_location=map_location, weights_only=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Folders are made before the ranks start."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def create(self, info: Any) -> None:
        """Nothing to announce."""

    def commit(self, info: Any) -> bool:
        """Publication happens elsewhere, by a rename."""
        return True

    def is_data_parallel_writer(self, dp_rank: int) -> bool:
        """Rank 0 writes what all ranks share."""
        return dp_rank == 0

    def is_decoupled(self) -> bool:
        """The files are on disk when ``save`` returns."""
        return False

    def preserves_storage_sharing(self) -> bool:
        """As ``torch.save`` does."""
        return True


class _HashingWriter:
    """A file that knows the hash of all that went through it; torch.save writes strictly from front to back."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.digest = xxhash.xxh3_128()
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.num_bytes += memoryview(data).nbytes
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


@contextlib.contextmanager
def _known_types() -> Iterator[None]:
    """DeepSpeed pickles a few small objects of its own beside the tensors."""
    name_accelerator()
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    with torch.serialization.safe_globals([LossScaler, DynamicLossScaler, ZeroStageEnum, fragment_address]):
        yield
