"""Output folders that are complete or absent, and the operating system's refusals as one line."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scse_dist.errors import UserError


@contextmanager
def publish(out: Path) -> Iterator[Path]:
    """Yields a hidden sibling of ``out`` to write into; it becomes ``out`` when the block ends and vanishes when the
    block raises. What a killed predecessor left there is cleared away.

    Raises:
        UserError: another process is writing the same folder; no space, no permission, a read-only place.
    """
    out = out.absolute()
    partial = out.with_name(f".{out.name}.partial")
    with plain_os_errors(out):
        partial.mkdir(parents=True, exist_ok=True)
        lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(lock, out)
            for leftover in partial.iterdir():
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            try:
                yield partial
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            partial.rename(out)
        finally:
            os.close(lock)


def is_occupied(out: Path) -> bool:
    """Whether something is there that must not be overwritten."""
    with plain_os_errors(out):
        return out.exists() and (not out.is_dir() or any(out.iterdir()))


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


def _lock(folder: int, out: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{out}: another process is preparing this folder; wait for it or choose another one") from None
