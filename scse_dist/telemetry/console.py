"""What a person sees while a run goes on: one live line on a terminal, plain lines anywhere else."""

import sys

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Console:
    """Progress of a run of ``num_steps`` steps."""

    def __init__(self, num_steps: int, first_step: int = 0):
        self._num_steps = num_steps
        self._progress: Progress | None = None
        if sys.stdout.isatty():
            self._progress = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=RichConsole(highlight=False),
            )
            self._task = self._progress.add_task("", total=num_steps, completed=first_step)
            self._progress.start()

    def step(self, step: int) -> None:
        """Moves the live line on."""
        if self._progress:
            self._progress.update(self._task, completed=step)

    def show(self, step: int, facts: str) -> None:
        """Shows the figures of a logged step."""
        if self._progress:
            self._progress.update(self._task, description=facts)
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
