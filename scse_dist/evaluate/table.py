"""Scores as one table: a row per figure, a column per depth."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from scse_dist.evaluate.suite import Score

_DIGITS = {"ppl": 2, "completion_ppl": 1, "ppl_per_passage": 1, "token_accuracy": 4, "word_accuracy": 4}


def print_depth_table(scores: Sequence[Score], trained: tuple[int, int]) -> None:
    """Prints the table; columns inside the trained range of depths are marked."""
    depths = sorted({score.num_loops for score in scores})
    table = Table(caption=f"* trained on T = {trained[0]} to {trained[1]}; deeper is extra loops at evaluation")
    table.add_column("set")
    table.add_column("metric")
    for depth in depths:
        table.add_column(f"T={depth}{'*' if trained[0] <= depth <= trained[1] else ''}", justify="right")
    values = {(score.set, score.metric, score.num_loops): score.value for score in scores}
    for name, metric in dict.fromkeys((score.set, score.metric) for score in scores):
        digits = _DIGITS.get(metric, 4)
        cells = [values.get((name, metric, depth)) for depth in depths]
        table.add_row(name, metric, *("" if cell is None else f"{cell:,.{digits}f}" for cell in cells))
    Console(width=max(100, 24 + 11 * len(depths)), highlight=False).print(table)
