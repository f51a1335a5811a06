"""Scores as one table: a row per figure, a column per depth."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scse_dist.evaluate.suite import Score

_WIDE = 400
"""Columns; the table takes what it needs, and a terminal that is narrower wraps rather than loses digits."""


def print_depth_table(scores: Sequence[Score], trained: tuple[int, int]) -> None:
    """Prints the table; columns inside the trained range of depths are marked."""
    depths = sorted({score.num_loops for score in scores})
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1),
        caption=f"* trained on T = {trained[0]} to {trained[1]}; deeper is extra loops at evaluation",
    )
    table.add_column("set", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    for depth in depths:
        table.add_column(f"T={depth}{'*' if trained[0] <= depth <= trained[1] else ''}", justify="right", no_wrap=True)
    values = {(score.set, score.metric, score.num_loops): score.value for score in scores}
    for name, metric in dict.fromkeys((score.set, score.metric) for score in scores):
        cells = [values.get((name, metric, depth)) for depth in depths]
        table.add_row(name, metric, *("" if cell is None else _shown(cell) for cell in cells))
    Console(width=_WIDE, highlight=False).print(table)


def _shown(value: float) -> str:
    """Four to five significant digits, without an exponent where it fits."""
    if value < 1:
        return f"{value:.4f}"
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}" if value < 1e7 else f"{value:.2e}"
