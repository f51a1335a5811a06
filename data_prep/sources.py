"""The entry of one input file in the manifest: how much it holds, and a hash that tells whether it changed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import xxhash

from data_prep.documents import read_documents
from scse_dist.data.manifest import Source


@dataclass(frozen=True)
class Input:
    """A file and what it is for."""

    file: Path
    group: Literal["corpus", "heldout"]


@dataclass
class Tally:
    """Counts and hashes the documents of one file as they pass by, those included that are left out later."""

    num_documents: int = 0
    num_bytes: int = 0
    _hash: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)

    def add(self, text: bytes) -> None:
        """Takes one UTF-8 document into account."""
        self.num_documents += 1
        self.num_bytes += len(text)
        self._hash.update(len(text).to_bytes(8, "little"))  # so that no shift of text between documents goes unseen
        self._hash.update(text)

    def source(self, given: Input) -> Source:
        """The entry for the manifest."""
        return Source(
            name=given.file.name,
            split_group=given.group,
            num_documents=self.num_documents,
            num_bytes=self.num_bytes,
            xxh3_128=self._hash.hexdigest(),
        )


def describe(given: Input) -> Source:
    """Reads a whole file for its entry alone."""
    tally = Tally()
    for document in read_documents(given.file):
        tally.add(document.encode())
    return tally.source(given)
