"""Files that are whole or absent, and the one hash (xxh3_128) that tells. Imports no torch."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from scse_dist.errors import UserError

_BLOCK_BYTES = 2**22


def hash_file(path: Path) -> tuple[int, str]:
    """Size in bytes and xxh3_128 of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest, num_bytes = xxhash.xxh3_128(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            num_bytes += len(block)
    return num_bytes, digest.hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file's content so that a reader or a crash sees the old or the new one, never a part."""
    with replacing(path) as partial:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name to write to, this process's alone; it becomes ``path`` at the end and vanishes after an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def plain_os_errors(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses while writing ``path`` into a UserError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{path}: no space left on that disk; free some or choose another folder") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise UserError(f"{where}: cannot be written ({error.strerror}); choose another folder") from error
        raise UserError(f"{where}: {error.strerror or error}") from error
