import gzip
import json
import lzma
import re
from pathlib import Path

import pytest

from data_prep.documents import TXT_DOCUMENT_CHARS, find_files, read_documents
from scse_dist.errors import UserError
from tests.data_prep.texts import paragraphs, write_jsonl

NOWHERE = Path("nowhere")


def message_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        list(read_documents(path))
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def test_a_file_reads_the_same_plain_and_compressed(tmp_path: Path) -> None:
    lines = b'{"text": "one"}\n\n{"text": "two \\u00e9\\n", "url": 3}\n'
    for name, data in [
        ("a.jsonl", lines),
        ("a.jsonl.gz", gzip.compress(lines)),
        ("a.jsonl.xz", lzma.compress(lines)),
    ]:
        (tmp_path / name).write_bytes(data)
        assert list(read_documents(tmp_path / name)) == ["one", "two é\n"]


def test_a_book_is_divided_at_blank_lines_and_nothing_is_lost(tmp_path: Path) -> None:
    parts = paragraphs()[:400]
    book = tmp_path / "a book.txt"
    book.write_text("\n\n".join(parts), encoding="utf-8")
    documents = list(read_documents(book))
    assert max(map(len, documents)) <= TXT_DOCUMENT_CHARS
    assert len(documents) > sum(map(len, parts)) / TXT_DOCUMENT_CHARS
    assert "\n\n".join(documents) == "\n\n".join(parts)
    for document in documents:
        assert document.split("\n\n")[0] in parts


def test_a_long_paragraph_is_cut_at_line_ends_and_a_long_line_anywhere(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(f"line {i}" for i in range(2000)), encoding="utf-8")
    documents = list(read_documents(lines))
    assert len(documents) > 1
    assert all(line.startswith("line ") for document in documents for line in document.split("\n"))

    endless = tmp_path / "endless.txt"
    endless.write_text("é" * (2 * TXT_DOCUMENT_CHARS + 5), encoding="utf-8")
    assert [len(document) for document in read_documents(endless)] == [TXT_DOCUMENT_CHARS, TXT_DOCUMENT_CHARS, 5]


def test_byte_order_mark_and_windows_line_ends_leave_no_trace_in_txt(tmp_path: Path) -> None:
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\r\ntwo\r\n")
    assert list(read_documents(path)) == ["one\n\ntwo"]
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a\\r\\nb"}\r\n{"text": "c"}\r\n')
    assert list(read_documents(path)) == ["a\r\nb", "c"]


def test_folder_path_and_quoted_pattern_find_the_same_files(tmp_path: Path) -> None:
    folder = tmp_path / "näive földer"
    (folder / "inner").mkdir(parents=True)
    names = ["b.txt", "a.jsonl", "inner/c.txt.gz", "inner/d d.jsonl.xz"]
    for name in [*names, "README.md", ".hidden.txt"]:
        (folder / name).write_bytes(b"")
    expected = sorted(folder / name for name in names)
    assert find_files([str(folder)], NOWHERE) == expected
    assert (
        sorted(find_files([str(folder / "*.txt"), str(folder / "**/*.[jx]*"), str(folder / "inner/c*")], NOWHERE))
        == expected
    )
    assert find_files([str(folder / name) for name in names] * 2, NOWHERE) == [folder / name for name in names]


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    path = tmp_path / "part[1].txt"
    path.write_text("text")
    assert find_files([str(path)], NOWHERE) == [path]


def test_results_are_no_sources(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "text.jsonl", ["text"])
    (tmp_path / "out").mkdir()
    write_jsonl(tmp_path / "out" / "passages.jsonl", ["a result"])
    assert find_files([str(tmp_path)], tmp_path / "out") == [tmp_path / "text.jsonl"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("missing.txt", "no such file"),
        ("*.jsonl", "nothing matches"),
        ("folder", r"no \.txt, \.jsonl .* in this folder"),
        ("notes.pdf", r"notes\.pdf: unknown kind of file; known: \.txt, \.jsonl \(each also \.gz, \.xz\)"),
        ("n*", r"notes\.pdf: unknown kind"),
    ],
)
def test_sources_that_are_not_there_or_not_readable(tmp_path: Path, source: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.pdf").touch()
    with pytest.raises(UserError, match=expected):
        find_files([str(tmp_path / source)], NOWHERE)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"text": "cut', r":2: not valid JSON: Unterminated string starting at \(column 10\)"),
        (b'{"content": "x"}', r":2: no field `text`"),
        (b'["text"]', r":2: no field `text`"),
        (b'{"text": null}', r":2: `text` is a NoneType, not a string"),
        (b'{"text": "a \\ud800 b"}', r":2: `text` holds half a surrogate pair"),
        (b'{"text": "caf\xe9"}', r":2: not UTF-8 \(byte 0xE9 at position 14\)"),
        (b"[" * 100_000, r":2: not valid JSON"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, expected: str, suffix: str) -> None:
    data = b'{"text": "good"}\n' + line + b"\n"
    path = tmp_path / f"texts.jsonl{suffix}"
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](data))
    assert re.search(expected, message_of(path))


def test_text_that_is_not_utf8_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"good\n" * 5000 + b"caf\xe9\n")
    assert ":5001: not UTF-8 (byte 0xE9 at position 4)" in message_of(path)
    path.write_text("wide", encoding="utf-16")
    assert ":1: not UTF-8" in message_of(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_compression(tmp_path: Path, suffix: str) -> None:
    compress = gzip.compress if suffix == ".gz" else lzma.compress
    whole = compress("".join(json.dumps({"text": text}) + "\n" for text in paragraphs()[:300]).encode())
    path = tmp_path / f"texts.jsonl{suffix}"
    flipped = bytes([*whole[:2000], whole[2000] ^ 255, *whole[2001:]])
    for data in (whole[: len(whole) // 2], b"not compressed at all", flipped):
        path.write_bytes(data)
        assert re.search(r"damaged or incomplete|not valid JSON|not UTF-8", message_of(path))
    path.write_bytes(whole[: len(whole) // 2])
    assert f"damaged or incomplete {suffix} file" in message_of(path)


def test_an_unreadable_file(tmp_path: Path) -> None:
    assert "No such file" in message_of(tmp_path / "gone.txt")
