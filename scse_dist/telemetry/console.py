"""What a person sees while a run goes on: one live line on a terminal, plain lines anywhere else."""

import sys

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

_WIDTH_FOR_A_BAR = 100


class Console:
    """Progress of a run of ``num_steps`` steps."""

    def __init__(self, num_steps: int, first_step: int = 0):
        self._num_steps = num_steps
        self._progress: Progress | None = None
        if sys.stdout.isatty():
            console = RichConsole(highlight=False)
            self._progress = Progress(*_columns(console.width), console=console, expand=True)
            self._task = self._progress.add_task("", total=num_steps, completed=first_step)
            self._progress.start()

    def step(self, step: int) -> None:
        """Moves the live line on."""
        if self._progress:
            self._progress.update(self._task, completed=step)

    def show(self, step: int, facts: str) -> None:
        """Shows the figures of a logged step."""
        if self._progress:
            self._progress.update(self._task, completed=step, description=facts)
        else:
            print(f"step {step}/{self._num_steps}  {facts}", flush=True)

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._progress:
            self._progress.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._progress:
            self._progress.stop()


def _columns(width: int) -> list[ProgressColumn]:
    """Where the line is too long, the figures are cut, never the step or the time left."""
    return [
        MofNCompleteColumn(),
        *([BarColumn(bar_width=16)] if width >= _WIDTH_FOR_A_BAR else []),
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        TimeRemainingColumn(),
        TextColumn("left"),
    ]
