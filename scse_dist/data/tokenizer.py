"""Text to token ids and back, without loss. The only place in this package that imports sentencepiece; no torch."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Self

import sentencepiece

from scse_dist.data import manifest
from scse_dist.errors import UserError
from scse_dist.files import hash_file

# SentencePiece writes a space as this character and so cannot tell the two apart: the character itself travels as the
# three byte tokens of its UTF-8 form.
_META_SPACE = "\u2581"

# No token reaches from a character that is not a space into a space, so a text cut there has the same best tokens (ties
# may fall otherwise), and one huge document neither fills the memory nor keeps all threads but one waiting.
_CUT = re.compile(r"(?<! ) ")
_SEGMENT_CHARS = 1_000_000


class Tokenizer:
    """A SentencePiece model: ``decode(encode(text)) == text`` for every text that UTF-8 can hold."""

    def __init__(self, model: bytes) -> None:
        """Args:
            model: a serialised SentencePiece model with byte fallback and the end-of-text token in the place of EOS.

        Raises:
            ValueError: not such a model.
        """
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError("not a SentencePiece model") from error
        self._meta_space_ids = [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in _META_SPACE.encode()]
        if self.end_of_text_id < 0 or not all(map(self._model.is_byte, self._meta_space_ids)):
            raise ValueError("a SentencePiece model without byte fallback or without an end-of-text token")

    @classmethod
    def load(cls, data_folder: Path, entry: manifest.Tokenizer) -> Self:
        """The tokenizer of prepared data.

        Raises:
            UserError: missing, or another one than the shards were written with.
        """
        path = data_folder / entry.file
        tokenizer = cls.load_file(path)
        if hash_file(path)[1] != entry.xxh3_128:
            raise UserError(f"{path}: not the tokenizer that the shards were written with; prepare the data again")
        return tokenizer

    @classmethod
    def load_file(cls, path: Path) -> Self:
        """A tokenizer file wherever it lies, such as the copy in a run folder.

        Raises:
            UserError: missing, unreadable or not ours.
        """
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}; the tokenizer is needed to read the tokens") from error
        except ValueError as error:
            raise UserError(f"{path}: {error}; `scse-dist prepare` makes the right one") from error

    @property
    def vocab_size(self) -> int:
        """Number of different tokens (V)."""
        return self._model.vocab_size()

    @property
    def end_of_text_id(self) -> int:
        """The token after every document; no text encodes to it, and it decodes to nothing."""
        return self._model.eos_id()

    def encode(self, text: str) -> list[int]:
        """Token ids of one text, without the end-of-text token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], num_threads: int = 1) -> list[list[int]]:
        """Token ids of several texts; the same for any number of threads."""
        segments = [list(_segments(text)) for text in texts]
        encoded = iter(self._model.encode([part for parts in segments for part in parts], num_threads=num_threads))
        return [list(chain.from_iterable(self._ids(part, next(encoded)) for part in parts)) for parts in segments]

    def _ids(self, part: str, encoded: list[int]) -> list[int]:
        return self._meta_space_ids if part == _META_SPACE else encoded

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; incomplete UTF-8 at the edges of a cut sequence becomes U+FFFD."""
        return self._model.decode(list(ids))


def _segments(text: str) -> Iterator[str]:
    for part in re.split(f"({_META_SPACE})", text):
        start = 0
        while cut := _CUT.search(part, start + _SEGMENT_CHARS):
            yield part[start : cut.start()]
            start = cut.start()
        yield part[start:]
