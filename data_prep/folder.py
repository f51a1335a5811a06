"""Output folders that are complete or absent, and the operating system's refusals as one line."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scse_dist.errors import UserError
from scse_dist.files import plain_os_errors


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


def _lock(folder: int, out: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{out}: another process is preparing this folder; wait for it or choose another one") from None
