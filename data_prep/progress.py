"""How far a long stage has come: a bar on a terminal, now and then a line elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

Report = Callable[[str], object]

_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def progress(title: str, total: int | None, report: Report) -> Iterator[Callable[[int], None]]:
    """Yields a function to be called with the number of bytes done since its last call.

    Args:
        total: bytes in all; None where nobody knows.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda amount: bar.advance(task, amount)
        return
    done = 0
    next_line = time.monotonic() + _SECONDS_BETWEEN_LINES

    def advance(amount: int) -> None:
        nonlocal done, next_line
        done += amount
        if time.monotonic() >= next_line:
            report(f"{title}: {done / 1e6:.0f} MB" + (f" of {total / 1e6:.0f} MB" if total else ""))
            next_line = time.monotonic() + _SECONDS_BETWEEN_LINES

    yield advance
