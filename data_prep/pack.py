"""From token documents to records of fixed windows: pure functions.

Shapes: R windows per record, L predicted tokens per window. A record holds R * L + 1 tokens and begins with the last
token of the record before it, so every token but the very first is predicted exactly once.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np


def num_windows(num_tokens: int, window: int) -> int:
    """Whole windows in a stream; the first token of the stream is context only."""
    return max(num_tokens - 1, 0) // window


def num_dropped_tokens(num_tokens: int, window: int) -> int:
    """Tokens after the last whole window; all of them where there is no window at all."""
    windows = num_windows(num_tokens, window)
    return num_tokens - (windows * window + 1) if windows else num_tokens


def token_dtype(vocab_size: int) -> Literal["uint16", "uint32"]:
    """The smallest type of the shards that holds every token id."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


def pack(
    documents: Iterable[Sequence[int]], end_of_text_id: int, window: int, windows_per_record: int, dtype: str
) -> Iterator[np.ndarray]:
    """Joins documents, each closed by ``end_of_text_id``, and cuts the stream into records.

    Args:
        documents: token ids without end-of-text.
        window: predicted tokens per window (L).
        windows_per_record: windows in all records but the last, which may have fewer (R).
        dtype: of the records.

    Yields:
        1-D arrays of n * L + 1 tokens, with n = R except in the last one.
    """
    record_size = windows_per_record * window + 1
    pending: list[np.ndarray] = []
    size = 0
    for document in documents:
        pending.append(np.array([*document, end_of_text_id], dtype))
        size += len(pending[-1])
        if size >= record_size:
            stream = np.concatenate(pending)
            start = 0
            while size - start >= record_size:
                yield stream[start : start + record_size]
                start += record_size - 1
            pending, size = [stream[start:]], size - start
    rest = num_windows(size, window)
    if rest:
        yield np.concatenate(pending)[: rest * window + 1]
