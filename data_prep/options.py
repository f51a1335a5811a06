"""What a user can choose when data is prepared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scse_dist.errors import UserError


@dataclass(frozen=True)
class PrepareOptions:
    """Settings of ``prepare``.

    Raises:
        UserError: a number out of range.
    """

    sources: Sequence[str]
    """Paths, folders or globs of .txt and .jsonl files, also .gz and .xz; divided into train, validation and test."""
    out: Path
    """The data folder to make."""
    heldout_sources: Sequence[str] = ()
    """Text for the split ``heldout``: never trained on, not even where the corpus repeats it."""
    corpus: str = "corpus"
    """Name in records and figures."""
    vocab_size: int = 4096
    """Tokens (V), the 256 bytes and end-of-text among them."""
    window: int = 128
    """Predicted tokens per window (L)."""
    windows_per_record: int = 64
    """Windows in one sample of the shards (R)."""
    workers: int = 1
    """Threads that turn text into tokens; the result does not depend on it."""
    split_seed: int = 0
    """Decides, with the text of a document, its split and its place there."""
    validation_fraction: float = 0.02
    """Share of the corpus documents; enough from about 10 MB of text, less will do from 1 GB."""
    test_fraction: float = 0.04
    """Share of the corpus documents; the passages come from it too."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "window", "windows_per_record", "workers"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must be 1 or more")
        for name in ("validation_fraction", "test_fraction"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must lie between 0 and 1, for example 0.02")
        if self.validation_fraction + self.test_fraction >= 1:
            raise UserError(
                f"validation_fraction={self.validation_fraction} and test_fraction={self.test_fraction} "
                "leave nothing to train on"
            )
        if not 0 <= self.split_seed < 2**64:
            raise UserError(f"split_seed={self.split_seed} must lie between 0 and 2^64 - 1")
