"""Trains the tokenizer. The only place in this package that imports sentencepiece."""

import io
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import sentencepiece
import xxhash

from scse_dist.data import manifest
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError

FILE = "tokenizer.model"
END_OF_TEXT = "<|endoftext|>"

# Enough for stable pieces (more text changed the bytes per token by 2 %), and training time grows with it.
_SAMPLE_BYTES_PER_PIECE = 1200
_MIN_SAMPLE_BYTES = 1_000_000
_LONGEST_SAMPLE_CHARS = 100_000
_NUM_ROUND_TRIPS = 200

# Part of the result: sums of floats in another number of threads give other pieces.
_NUM_THREADS = 2


def train_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> tuple[Tokenizer, manifest.Tokenizer]:
    """Trains a unigram SentencePiece model on the beginning of ``texts`` and writes it to ``folder``.

    Whitespace, newlines and characters outside the vocabulary are kept (the latter as bytes): decoding gives the text
    back. The same texts give the same file.

    Args:
        texts: in an order that makes the first ones a fair sample.
        vocab_size: number of tokens, the 256 bytes and end-of-text among them.

    Raises:
        UserError: more tokens than the text supports, or fewer than it needs.
    """
    sample = _sample(texts, max(vocab_size * _SAMPLE_BYTES_PER_PIECE, _MIN_SAMPLE_BYTES))
    model = _train(sample, vocab_size)
    tokenizer = Tokenizer(model)
    for text in islice(sample, _NUM_ROUND_TRIPS):
        _check_round_trip(tokenizer, text)
    (folder / FILE).write_bytes(model)
    return tokenizer, manifest.Tokenizer(
        file=FILE,
        vocab_size=tokenizer.vocab_size,
        end_of_text_id=tokenizer.end_of_text_id,
        xxh3_128=xxhash.xxh3_128_hexdigest(model),
    )


def _sample(texts: Iterable[str], max_bytes: int) -> list[str]:
    sample: list[str] = []
    size = 0
    for text in texts:
        sample.append(text[:_LONGEST_SAMPLE_CHARS])
        size += len(sample[-1].encode())
        if size >= max_bytes:
            break
    return sample


def _train(sample: list[str], vocab_size: int) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=4 * _LONGEST_SAMPLE_CHARS + 1,  # in bytes; longer ones would be left out
            unk_id=0,
            eos_id=1,
            bos_id=-1,
            pad_id=-1,
            eos_piece=END_OF_TEXT,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if most := re.search(r"too high \(\d+\)\D*(\d+)", str(error)):
            raise UserError(
                f"vocab_size={vocab_size} is more than the text supports; choose {most[1]} or less, or give more text"
            ) from error
        if fewest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise UserError(
                f"vocab_size={vocab_size} is too small for the characters of the text; choose {fewest[1]} or more"
            ) from error
        raise
    return model.getvalue()


def _check_round_trip(tokenizer: Tokenizer, text: str) -> None:
    decoded = tokenizer.decode(tokenizer.encode(text))
    if decoded != text:
        differing = (i for i, (a, b) in enumerate(zip(text, decoded, strict=False)) if a != b)
        at = next(differing, min(len(text), len(decoded)))
        around = slice(max(at - 10, 0), at + 10)
        raise RuntimeError(f"the tokenizer changes text: {text[around]!r} became {decoded[around]!r}")
