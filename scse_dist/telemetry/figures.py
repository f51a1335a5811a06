"""Pictures: the only importer of matplotlib."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # distinguishable without red and green
_INK, _FAINT = "#222222", "#e6e6e6"


def depth_response(curves: dict[str, dict[int, float]], trained: tuple[int, int], title: str) -> Figure:
    """Perplexity against the number of loops, a curve per set, the trained range of depths shaded."""
    figure = Figure(figsize=(7.2, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    depths = sorted({depth for curve in curves.values() for depth in curve})
    axes.axvspan(trained[0], trained[1], color=_FAINT, lw=0, zorder=0)
    axes.text(
        (trained[0] * trained[1]) ** 0.5, 0.985, "trained", ha="center", va="top", color="#777777", fontsize=9,
        transform=axes.get_xaxis_transform(),
    )  # fmt: skip
    for colour, (name, curve) in zip(_COLOURS, curves.items(), strict=False):
        xs = sorted(curve)
        axes.plot(xs, [curve[x] for x in xs], "-o", color=colour, lw=1.8, ms=4.5, label=name)
        best = min(curve, key=lambda depth: curve[depth])
        axes.annotate(
            f"{curve[best]:.4g}", (best, curve[best]), xytext=(0, -13), textcoords="offset points", ha="center",
            color=colour, fontsize=8.5,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.tick_params(which="both", labelsize=9, color="#999999")
    axes.margins(y=0.14)
    axes.grid(axis="y", which="both", color=_FAINT, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("number of loops T", color=_INK)
    axes.set_ylabel("perplexity", color=_INK)
    axes.set_title(title, loc="left", fontsize=10.5, color=_INK)
    axes.legend(frameon=False, fontsize=9)
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Writes a picture so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    figure.savefig(partial, format="png")
    partial.replace(path)
