"""Texts on the disk instead of in memory, read again in the order of their keys."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np


class Spool:
    """A temporary file of texts, removed at the end of a ``with`` block; memory holds 24 bytes for each of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._keys, self._starts, self._lengths = array("Q"), array("Q"), array("Q")
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def append(self, key: int, text: bytes) -> None:
        """Adds one UTF-8 text."""
        self._file.write(text)
        self._keys.append(key)
        self._starts.append(self.num_bytes)
        self._lengths.append(len(text))
        self.num_bytes += len(text)

    def __iter__(self) -> Iterator[str]:
        """All texts by ascending key."""
        self._file.flush()
        with self._path.open("rb") as file:
            for index in np.argsort(np.array(self._keys, np.uint64)):
                file.seek(self._starts[index])
                yield file.read(self._lengths[index]).decode()

    def batches(self, max_chars: int) -> Iterator[list[str]]:
        """All texts by ascending key, in lists that end at the first text to reach ``max_chars``."""
        batch: list[str] = []
        size = 0
        for text in self:
            batch.append(text)
            size += len(text)
            if size >= max_chars:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Removes the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)
