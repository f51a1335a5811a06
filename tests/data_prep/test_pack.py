from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_prep.pack import num_dropped_tokens, num_windows, pack, token_dtype

END = 1
documents = st.lists(st.lists(st.integers(2, 400), max_size=40), max_size=12)
windows = st.integers(1, 9)


@given(documents, windows, st.integers(1, 5))
def test_records_joined_at_their_shared_token_are_the_stream(
    docs: list[list[int]], window: int, windows_per_record: int
) -> None:
    stream = [token for doc in docs for token in [*doc, END]]
    records = [record.tolist() for record in pack(docs, END, window, windows_per_record, "uint16")]

    joined = records[0] + [token for record in records[1:] for token in record[1:]] if records else []
    dropped = num_dropped_tokens(len(stream), window)
    assert joined == stream[: len(stream) - dropped]
    assert len(joined) + dropped == len(stream)
    assert 0 <= dropped <= window
    assert [len(record) for record in records[:-1]] == [windows_per_record * window + 1] * (len(records) - 1)
    if records:
        assert (len(records[-1]) - 1) % window == 0
        assert window + 1 <= len(records[-1]) <= windows_per_record * window + 1
        assert all(before[-1] == after[0] for before, after in pairwise(records))


@given(st.integers(0, 300), windows, st.integers(1, 5))
def test_every_token_but_the_first_is_predicted_exactly_once(size: int, window: int, windows_per_record: int) -> None:
    numbered = [list(range(2, 2 + size))] if size else []  # each token has its own number, so it can be recognised
    predicted: Counter[int] = Counter()
    total_windows = 0
    for record in pack(numbered, END, window, windows_per_record, "uint16"):
        for start in range(0, len(record) - 1, window):
            predicted.update(record[start + 1 : start + window + 1].tolist())
            total_windows += 1
    stream = [*range(2, 2 + size), END] if size else []
    assert total_windows == num_windows(len(stream), window)
    assert predicted == Counter(stream[1 : total_windows * window + 1])


def test_one_long_document_fills_many_records() -> None:
    records = list(pack([list(range(2, 103))], END, window=10, windows_per_record=2, dtype="uint32"))
    assert [len(record) for record in records] == [21] * 5
    assert all(record.dtype == np.uint32 for record in records)


def test_token_ids_fit_their_type() -> None:
    assert token_dtype(2**16) == "uint16"
    assert token_dtype(2**16 + 1) == "uint32"
