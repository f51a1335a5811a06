"""Reads documents from .txt and .jsonl files, plain or compressed, one after the other.

A line of ``.jsonl`` is one document, its field ``text``. A ``.txt`` file is divided, so that one big book still spreads
over the splits: paragraphs (separated by blank lines) are gathered into documents of up to ``TXT_DOCUMENT_CHARS``
characters. A longer paragraph is cut at a line end, a longer line after that many characters.
"""

import glob
import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from scse_dist.errors import UserError

TXT_DOCUMENT_CHARS = 4000
KINDS = (".txt", ".jsonl")
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_KNOWN = ", ".join(KINDS) + " (each also .gz, .xz)"


def find_files(sources: Sequence[str], out: Path) -> list[Path]:
    """The files meant by paths, folders (searched through all levels) and globs, each once; sorted within a source.

    A folder may hold other files and hidden ones; they are left out. A path or a glob names its files, so an unknown
    kind is an error. What lies in ``out`` is a result and no source.

    Raises:
        UserError: nothing there, or a kind of file that cannot be read.
    """
    files: dict[Path, Path] = {}
    for source in sources:
        path = Path(source).expanduser()
        found = _in_folder(path) if path.is_dir() else _named(path)
        found = [file for file in found if out.resolve() not in file.resolve().parents]
        if not found:
            if path.is_dir():
                raise UserError(f"{source}: no {_KNOWN} file in this folder")
            raise UserError(f"{source}: no such file, and nothing matches it as a pattern")
        for file in found:
            if _kind(file) not in KINDS:
                raise UserError(f"{file}: unknown kind of file; known: {_KNOWN}")
            files.setdefault(file.resolve(), file)
    return list(files.values())


def read_documents(path: Path) -> Iterator[str]:
    """The documents of one file; blank ones too.

    Raises:
        UserError: naming file and line: not UTF-8, damaged compression, broken JSON, no ``text`` in it.
    """
    read = _read_txt if _kind(path) == ".txt" else _read_jsonl
    with _plain_errors(path):
        try:
            with _open(path) as lines:
                yield from read(path, lines)
        except UnicodeDecodeError:
            raise UserError(_where_not_utf8(path)) from None


def _read_jsonl(path: Path, lines: TextIO) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.rstrip("\n"))
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg} (column {error.colno})" if isinstance(error, json.JSONDecodeError) else error
            raise UserError(f"{path}:{number}: not valid JSON: {reason}") from error
        if not isinstance(row, dict) or "text" not in row:
            raise UserError(f'{path}:{number}: no field `text`; each line must be like {{"text": "..."}}')
        text = row["text"]
        if not isinstance(text, str):
            raise UserError(f"{path}:{number}: `text` is a {type(text).__name__}, not a string")
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise UserError(f"{path}:{number}: `text` holds half a surrogate pair (\\ud800-\\udfff), which is not text")
        yield text


def _read_txt(_path: Path, lines: TextIO) -> Iterator[str]:
    document = ""
    for paragraph in _paragraphs(lines):
        if document and len(document) + len(paragraph) > TXT_DOCUMENT_CHARS:
            yield document.strip("\n")
            document = ""
        document += paragraph
    if document:
        yield document.strip("\n")


def _paragraphs(lines: TextIO) -> Iterator[str]:
    """Lines up to and with the blank lines after them, or as many as fit; joined they are the file again."""
    paragraph = ""
    closed = False
    while line := lines.readline(TXT_DOCUMENT_CHARS):
        blank = not line.strip()
        if paragraph and ((closed and not blank) or len(paragraph) + len(line) > TXT_DOCUMENT_CHARS):
            yield paragraph
            paragraph = ""
        paragraph += line
        closed = blank
    if paragraph:
        yield paragraph


def _in_folder(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _kind(path) in KINDS)
    return [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def _named(path: Path) -> list[Path]:
    """The file of this name, even if it has brackets in it, or else those that match it as a pattern."""
    names = [str(path)] if path.exists() else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    return [file for name in names if (file := Path(name)).is_file()]


def _kind(path: Path) -> str:
    inner = path.with_suffix("") if path.suffix in _OPENERS else path
    return inner.suffix


def _open(path: Path) -> Any:
    """A text stream: a byte order mark is dropped; line ends become \\n in .txt and stay as they are in .jsonl."""
    newline = None if _kind(path) == ".txt" else "\n"
    return _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig", newline=newline)


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise UserError(
            f"{path}: damaged or incomplete {path.suffix} file ({_one_line(error)}); fetch it again"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error


def _where_not_utf8(path: Path) -> str:
    with _OPENERS.get(path.suffix, open)(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return (
                    f"{path}:{number}: not UTF-8 (byte 0x{line[error.start]:02X} at position {error.start + 1}); "
                    "convert the file, for example with `iconv -f LATIN1 -t UTF-8`"
                )
    raise AssertionError("the file changed while it was read")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
