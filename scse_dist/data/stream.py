"""Windows of tokens from MDS shards: the only importer of streaming.

Streaming's part is to know the shards and their format; which window comes when is decided in ``order`` (its own
ordering materialises the epoch and repeats samples to even out ranks).

Shapes: B batch, W window + 1 tokens.
"""

import bisect
import json
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from streaming.base.format.mds.reader import MDSReader
from torch import Tensor

from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest, Shard, Split
from scse_dist.data.order import window_at
from scse_dist.errors import UserError
from scse_dist.files import hash_file

_CACHED_RECORDS = 256
_WAY_OUT = "restore the file or prepare the data again"


class WindowReader:
    """Random access to the windows of one split."""

    def __init__(self, folder: Path, manifest: Manifest, split: str, window: int | None = None, *, verify: bool = True):
        """Opens a split.

        Args:
            folder: data folder that holds ``manifest``.
            window: predicted tokens per sample; divides the shards' window, which is the default.
            verify: hash each shard file at its first use.

        Raises:
            UserError: no such split, or a damaged index.
        """
        if split not in manifest.splits:
            raise UserError(f"{folder}: has no split {split!r}; it has {', '.join(manifest.splits)}")
        window = window or manifest.window
        assert manifest.window % window == 0, "resolve the config first"
        self.window = window
        self._split: Split = manifest.splits[split]
        self._folder = folder / split
        self._pieces_per_window = manifest.window // window
        self._windows_per_record = manifest.windows_per_record * self._pieces_per_window
        self._verify = verify
        self._shards = self._open_shards(split)
        self._first_record = [0, *accumulate(shard.samples for shard in self._shards)]
        self._verified: dict[int, tuple[int, int, int]] = {}
        self._records: OrderedDict[int, np.ndarray] = OrderedDict()

    def __len__(self) -> int:
        """Windows of the split."""
        return self._split.num_windows * self._pieces_per_window

    def window_W(self, index: int) -> np.ndarray:
        """The ``window + 1`` tokens of one window; consecutive windows share one token."""
        record, place = divmod(index, self._windows_per_record)
        start = place * self.window
        return self._record(record)[start : start + self.window + 1]

    def batch_BW(self, indices: list[int]) -> Tensor:
        """Several windows as int64 tokens; inputs are all but the last, labels all but the first."""
        return torch.from_numpy(np.stack([self.window_W(index) for index in indices]).astype(np.int64))

    def _open_shards(self, split: str) -> list[MDSReader]:
        index = self._folder / "index.json"
        self._check_file(self._split.shards[-1], always_hash=True)
        try:
            entries = json.loads(index.read_text(encoding="utf-8"))["shards"]
            return [MDSReader.from_json(str(self._folder.parent), split, entry) for entry in entries]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{index}: unreadable ({error}); restore the file or prepare the data again") from error

    def _record(self, record: int) -> np.ndarray:
        if record in self._records:
            self._records.move_to_end(record)
            return self._records[record]
        shard = bisect.bisect_right(self._first_record, record) - 1
        self._check_shard(shard)
        tokens = self._shards[shard][record - self._first_record[shard]]["tokens"]
        self._records[record] = tokens
        if len(self._records) > _CACHED_RECORDS:
            self._records.popitem(last=False)
        return tokens

    def _check_shard(self, shard: int) -> None:
        """Checks a file when it is first used and whenever it is no longer the one that was checked."""
        entry = self._split.shards[shard]
        path = self._folder / entry.file
        try:
            status = path.stat()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; {_WAY_OUT}") from error
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._verified.get(shard) != seen:
            self._check_file(entry)
            self._verified[shard] = seen

    def _check_file(self, entry: Shard, *, always_hash: bool = False) -> None:
        path = self._folder / entry.file
        try:
            hashed = self._verify or always_hash
            size, digest = hash_file(path) if hashed else (path.stat().st_size, entry.xxh3_128)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; {_WAY_OUT}") from error
        if size != entry.num_bytes:
            raise UserError(f"{path}: {size} bytes, the manifest says {entry.num_bytes}; {_WAY_OUT}")
        if digest != entry.xxh3_128:
            raise UserError(f"{path}: its content is not what the manifest says (xxh3_128); {_WAY_OUT}")


class TrainingBatches:
    """Which windows each rank reads at each step; the only state is the step."""

    def __init__(self, reader: WindowReader, config: RunConfig, rank: int, world_size: int):
        self._reader = reader
        self._seed = config.seed
        self._global_batch = config.train.global_batch_size
        self._microbatch = config.train.microbatch_size
        self._rank = rank
        self._world_size = world_size

    def samples(self, step: int, microbatch: int) -> list[int]:
        """Numbers, counted over the whole run, of the samples in one microbatch of this rank."""
        first = step * self._global_batch + (microbatch * self._world_size + self._rank) * self._microbatch
        return list(range(first, first + self._microbatch))

    def batch_BW(self, step: int, microbatch: int) -> Tensor:
        """Tokens [microbatch_size, window + 1] of one microbatch, on the CPU."""
        windows = [window_at(sample, len(self._reader), self._seed) for sample in self.samples(step, microbatch)]
        return self._reader.batch_BW(windows)
