"""Which split a document belongs to, and its place there: a pure function of its text and the split seed."""

import xxhash

TRAIN, VALIDATION, TEST, HELDOUT = "train", "validation", "test", "heldout"

_KEYS = 2**64


def content_digest(text: bytes) -> bytes:
    """Equal for equal texts; 16 bytes."""
    return xxhash.xxh3_128_digest(text)


def split_key(digest: bytes, split_seed: int) -> int:
    """A draw from 0..2^64-1 that the content decides. It chooses the split, and documents are written in its order, so
    that the beginning of a split is a fair sample of the corpus whatever the order of the files."""
    return xxhash.xxh3_64_intdigest(digest, seed=split_seed)


def split_of(key: int, validation_fraction: float, test_fraction: float) -> str:
    """The split of a corpus document with this key; fractions are of the documents."""
    position = key / _KEYS
    if position < test_fraction:
        return TEST
    return VALIDATION if position < test_fraction + validation_fraction else TRAIN
