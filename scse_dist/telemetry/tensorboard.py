"""TensorBoard's files: the only importer of tensorboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch.utils.tensorboard.writer import SummaryWriter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FLUSH_SECONDS = 10


class TensorBoard:
    """One writer, on rank 0."""

    def __init__(self, folder: Path, first_step: int | None):
        """Opens the folder; points at ``first_step`` and later, left by a run that was killed, are purged (None: none
        are)."""
        self._writer = SummaryWriter(str(folder), purge_step=first_step, flush_secs=_FLUSH_SECONDS)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """One point on each named curve."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)

    def text(self, tag: str, text: str) -> None:
        """A text, shown as it is."""
        self._writer.add_text(tag, "    " + text.replace("\n", "\n    "))

    def figure(self, step: int, tag: str, figure: Figure) -> None:
        """A picture."""
        self._writer.add_figure(tag, figure, step)

    def close(self) -> None:
        """Writes what is pending."""
        self._writer.close()
