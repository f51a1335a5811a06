"""Writes records as MDS shards. The only place in this package that imports streaming."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from scse_dist.data.manifest import Shard
from scse_dist.files import hash_file

COLUMN = "tokens"
SHARD_BYTES = 16_000_000


def write_shards(folder: Path, records: Iterable[np.ndarray], dtype: str) -> tuple[Shard, ...]:
    """Writes 1-D token records as the column ``tokens``, at most about 16 MB a file.

    Args:
        folder: must not exist yet.
        dtype: uint16 or uint32.

    Returns:
        All files with sizes and hashes as they lie on the disk: the shards in order, then the index.
    """
    from streaming import MDSWriter  # takes seconds, which a bad source should not cost

    writer = MDSWriter(
        out=os.fspath(folder),
        columns={COLUMN: f"ndarray:{dtype}"},
        hashes=["xxh3_128"],
        size_limit=SHARD_BYTES,
        max_workers=1,
    )
    try:
        for record in records:
            writer.write({COLUMN: record})
        writer.finish()
    finally:
        writer.cancel_future_jobs()  # ends its upload threads, which an error would leave waiting
    files = [*sorted(folder.glob("shard.*.mds")), folder / "index.json"]
    return tuple(_describe(file) for file in files)


def _describe(file: Path) -> Shard:
    num_bytes, digest = hash_file(file)
    return Shard(file=file.name, num_bytes=num_bytes, xxh3_128=digest)
