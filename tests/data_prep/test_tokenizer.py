import dataclasses
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep.tokenizer import END_OF_TEXT, train_tokenizer
from scse_dist.data import manifest
from scse_dist.data import tokenizer as tokenizer_module
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError
from tests.data_prep.texts import paragraphs

VOCAB_SIZE = 700
TEXTS = paragraphs()[:600]


@dataclasses.dataclass
class Trained:
    folder: Path
    tokenizer: Tokenizer
    entry: manifest.Tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("tokenizer")
    return Trained(folder, *train_tokenizer(TEXTS, VOCAB_SIZE, folder))


odd_pieces = st.sampled_from(
    [
        "\u2581",
        " ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "\0",
        "\ufeff",
        "\u2585",
        "\u2047",
        "<0x0A>",
        "<unk>",
        END_OF_TEXT,
        "é",
        "👩‍👩‍👧",
        "the ",
    ]
)


@given(st.lists(st.one_of(odd_pieces, st.text())).map("".join))
@example("\u2581 \u2581\u2581a \u2581")
@example("\U0010ffff\x7f\x80")
@example("  indented:\n\n\treturn\tx  \n")
def test_any_text_comes_back(trained: Trained, text: str) -> None:
    ids = trained.tokenizer.encode(text)
    assert trained.tokenizer.decode(ids) == text
    assert trained.tokenizer.end_of_text_id not in ids
    assert all(0 <= token < VOCAB_SIZE for token in ids)


def test_real_text_comes_back_in_far_fewer_tokens_than_bytes(trained: Trained) -> None:
    texts = TEXTS
    encoded = trained.tokenizer.encode_batch(texts)
    assert [trained.tokenizer.decode(ids) for ids in encoded] == texts
    assert sum(map(len, encoded)) < 0.6 * sum(len(text.encode()) for text in texts)


def test_threads_and_batches_change_nothing(trained: Trained) -> None:
    texts = ["", *TEXTS[:200], "a\u2581b", ""]
    expected = [trained.tokenizer.encode(text) for text in texts]
    assert trained.tokenizer.encode_batch(texts, num_threads=3) == expected
    assert trained.tokenizer.encode_batch([]) == []


def test_a_huge_document_is_cut_where_no_token_is(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n\n".join(TEXTS[:300])
    whole = trained.tokenizer.encode(text)
    monkeypatch.setattr(tokenizer_module, "_SEGMENT_CHARS", 50)
    assert len(list(tokenizer_module._segments(text))) > len(text) / 100
    cut = trained.tokenizer.encode(text)
    assert len(cut) == len(whole)
    assert trained.tokenizer.decode(cut) == text


def test_the_same_texts_give_the_same_file(trained: Trained, tmp_path: Path) -> None:
    _, entry = train_tokenizer(TEXTS, VOCAB_SIZE, tmp_path)
    assert entry == trained.entry
    assert (tmp_path / entry.file).read_bytes() == (trained.folder / entry.file).read_bytes()


def test_only_the_beginning_of_the_texts_is_read(trained: Trained, tmp_path: Path) -> None:
    def endless():
        while True:
            yield from TEXTS

    assert train_tokenizer(endless(), VOCAB_SIZE, tmp_path)[1].vocab_size == VOCAB_SIZE


def test_the_saved_file_is_the_tokenizer(trained: Trained) -> None:
    loaded = Tokenizer.load(trained.folder, trained.entry)
    assert loaded.vocab_size == trained.entry.vocab_size == VOCAB_SIZE
    assert loaded.end_of_text_id == trained.entry.end_of_text_id
    assert loaded.encode("a new text") == trained.tokenizer.encode("a new text")
    assert loaded.decode([loaded.end_of_text_id]) == ""


def test_a_vocabulary_the_text_cannot_fill_names_one_that_it_can(tmp_path: Path) -> None:
    texts = TEXTS[:20]
    with pytest.raises(
        UserError, match=r"vocab_size=50000 is more than the text supports; choose \d+ or less"
    ) as caught:
        train_tokenizer(texts, 50_000, tmp_path)
    assert not list(tmp_path.iterdir())
    possible = int(str(caught.value).split("choose ")[1].split()[0])
    assert train_tokenizer(texts, possible, tmp_path)[1].vocab_size == possible


def test_a_vocabulary_too_small_for_the_characters_names_one_that_is_not(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"vocab_size=100 is too small .* choose \d+ or more") as caught:
        train_tokenizer(TEXTS, 100, tmp_path)
    possible = int(str(caught.value).split("choose ")[1].split()[0])
    assert train_tokenizer(TEXTS, possible, tmp_path)[1].vocab_size == possible


def test_a_missing_changed_or_foreign_file_is_refused(trained: Trained, tmp_path: Path) -> None:
    path = tmp_path / trained.entry.file
    with pytest.raises(UserError, match=r"tokenizer\.model: No such file"):
        Tokenizer.load(tmp_path, trained.entry)
    for garbage in (b"", b"garbage", b"\0" * 1000):
        path.write_bytes(garbage)
        with pytest.raises(UserError, match=r"tokenizer\.model: .*`scse-dist prepare`"):
            Tokenizer.load_file(path)
    train_tokenizer(TEXTS[:300], 400, tmp_path)
    with pytest.raises(UserError, match="not the tokenizer that the shards were written with"):
        Tokenizer.load(tmp_path, trained.entry)
    with pytest.raises(UserError, match="Is a directory"):
        Tokenizer.load_file(tmp_path)
