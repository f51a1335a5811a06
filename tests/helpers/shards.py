"""A data folder made of given tokens, without the preparation that real text goes through."""

from pathlib import Path

import numpy as np
from streaming import MDSWriter

from scse_dist.data.manifest import Manifest, Shard, Split, Tokenizer
from scse_dist.files import hash_file


def write_data_folder(
    folder: Path, splits: dict[str, np.ndarray], window: int, *, vocab_size: int = 256, windows_per_record: int = 4
) -> Manifest:
    """Shards and manifest of splits that are given as one array of tokens each; the tokenizer is a placeholder."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.model").write_bytes(b"placeholder")
    _, tokenizer_hash = hash_file(folder / "tokenizer.model")
    manifest = Manifest(
        corpus="given tokens",
        sources=(),
        filters=(),
        tokenizer=Tokenizer(file="tokenizer.model", vocab_size=vocab_size, end_of_text_id=0, xxh3_128=tokenizer_hash),
        window=window,
        windows_per_record=windows_per_record,
        token_dtype="uint16",
        split_seed=0,
        splits={
            name: _write_split(folder / name, tokens, window, windows_per_record) for name, tokens in splits.items()
        },
    )
    manifest.save(folder)
    return manifest


def _write_split(folder: Path, tokens: np.ndarray, window: int, windows_per_record: int) -> Split:
    num_windows = (len(tokens) - 1) // window
    stride = window * windows_per_record
    end = num_windows * window + 1
    with MDSWriter(
        out=str(folder), columns={"tokens": "ndarray:uint16"}, hashes=["xxh3_128"], size_limit=4096
    ) as writer:
        for start in range(0, end - 1, stride):
            writer.write({"tokens": tokens[start : min(start + stride + 1, end)].astype(np.uint16)})
    files = [*sorted(folder.glob("shard.*.mds")), folder / "index.json"]
    entries = [(file.name, *hash_file(file)) for file in files]
    return Split(
        num_documents=1,
        num_text_bytes=len(tokens),
        num_tokens=len(tokens),
        num_windows=num_windows,
        num_dropped_tokens=len(tokens) - end,
        shards=tuple(Shard(file=name, num_bytes=size, xxh3_128=digest) for name, size, digest in entries),
    )
