"""The manifest that ``scse-dist prepare`` leaves beside the shards, and that training checks. Imports no torch."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import xxhash
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scse_dist.errors import UserError
from scse_dist.files import hash_file, plain_os_errors

MANIFEST = "manifest.json"
FORMAT_VERSION = 1

Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Source(_Record):
    """One input file or library."""

    name: str
    """File name (without folders) or library with version."""
    split_group: Literal["corpus", "heldout"]
    """corpus is divided into train, validation and test; heldout is evaluated only."""
    num_documents: Count
    num_bytes: Count
    """UTF-8 bytes of the documents."""
    xxh3_128: str
    """Hash over the documents in order."""


class Filter(_Record):
    """A step that removed or changed documents."""

    name: str
    num_dropped: Count


class Tokenizer(_Record):
    """The tokenizer whose tokens the shards hold."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    file: str
    """Relative to the manifest."""
    vocab_size: Annotated[int, Field(ge=2)]
    end_of_text_id: Count
    """Ends every document."""
    xxh3_128: str


class Shard(_Record):
    """One file of a split."""

    file: str
    """Relative to the split's folder."""
    num_bytes: Count
    xxh3_128: str


class Split(_Record):
    """One split: records of ``windows_per_record * window + 1`` tokens (the last one of a split may be shorter);
    each record begins with the last token of the one before it, so that every token but the first is predicted
    exactly once."""

    num_documents: Count
    num_text_bytes: Count
    num_tokens: Count
    """Tokens of the documents with their end-of-text tokens."""
    num_windows: Count
    num_dropped_tokens: Count
    """Tokens after the last whole window."""
    shards: tuple[Shard, ...]
    """All files of the folder: the shards in order, then the index."""


class Manifest(_Record):
    """Everything a run needs to know about its data."""

    format_version: int = FORMAT_VERSION
    corpus: str
    """What the user called it."""
    sources: tuple[Source, ...]
    filters: tuple[Filter, ...]
    tokenizer: Tokenizer
    window: Annotated[int, Field(ge=1)]
    """Predicted tokens per window (L); a window holds L + 1."""
    windows_per_record: Annotated[int, Field(ge=1)]
    token_dtype: Literal["uint16", "uint32"]
    split_seed: Count
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Share of the corpus documents."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.04
    """Share of the corpus documents."""
    splits: dict[str, Split]
    passages: dict[str, str] = {}
    """Files of last-word completion passages (JSON lines with ``text``) by the split they were cut from."""
    created_with: dict[str, str] = {}
    """Versions of the libraries that wrote it; not part of the fingerprint."""

    @property
    def fingerprint(self) -> str:
        """The same for equal data wherever it lies and whenever it was written."""
        content = self.model_dump(mode="json", exclude={"created_with"})
        return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())

    def save(self, folder: Path) -> None:
        """Writes ``manifest.json``, the last file of a finished folder, atomically."""
        partial = folder / f".{MANIFEST}.partial"
        partial.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(folder / MANIFEST)


def check_tokenizer(folder: Path, manifest: Manifest) -> Path:
    """The tokenizer's file, which must be the one the shards were written with.

    Raises:
        UserError: missing, unreadable, or another one.
    """
    path = folder / manifest.tokenizer.file
    with plain_os_errors(path):
        _, digest = hash_file(path)
    if digest != manifest.tokenizer.xxh3_128:
        raise UserError(f"{path}: is not the tokenizer these shards were written with; restore it or prepare again")
    return path


def read_manifest(folder: Path) -> Manifest:
    """Reads and checks a data folder's manifest.

    Raises:
        UserError: no such folder, nothing prepared in it, damaged, or of another format.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(
            f"data.path={folder}: no such folder; make it with `scse-dist prepare --source ... --out {folder}`"
        )
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"data.path={folder}: holds no {MANIFEST}, so it is empty, unfinished or not ours; "
            f"make it with `scse-dist prepare --source ... --out {folder}`"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: unreadable ({error}); prepare the data again") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path}: format_version={version!r}, this program reads {FORMAT_VERSION}; prepare the data again"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path}: {key}: {first['msg']}; the file was damaged or edited, prepare the data again"
        ) from error
