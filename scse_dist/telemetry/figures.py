"""Pictures: the only importer of matplotlib."""

import math
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from scse_dist.files import replacing

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart without red and green (Okabe and Ito)."""
_INK, _FAINT, _BAND = "#222222", "#e4e4e4", "#f2f0e9"
_LEAST_SPAN = 1.3
"""Ratio of the ends of the perplexity axis: a nearly flat curve shall look flat."""
_LABEL_HEIGHT = 0.125
"""Share of the axis that a curve's label of two lines takes."""


def depth_response(curves: dict[str, dict[int, float]], trained: tuple[int, int], title: str) -> Figure:
    """Perplexity against the number of loops, both logarithmic: a curve per set, labelled at its end.

    Args:
        curves: perplexity by number of loops, by name of the set; what is not finite is left out.
        trained: fewest and most loops in training, shaded.
        title: above the picture.
    """
    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    depths = sorted({depth for curve in curves.values() for depth in curve} | set(trained))
    finite = {
        name: {depth: curve[depth] for depth in depths if math.isfinite(curve.get(depth, math.nan))}
        for name, curve in curves.items()
    }
    shown = {name: curve for name, curve in finite.items() if curve}
    _set_up_depths(axes, depths)
    _set_up_perplexity(axes, [value for curve in shown.values() for value in curve.values()] or [1.0])
    _shade(axes, trained)
    colours = dict(zip(shown, cycle(_COLOURS), strict=False))
    for name, curve in shown.items():
        axes.plot([*curve], [*curve.values()], "-o", color=colours[name], lw=1.8, ms=4, clip_on=False)
    _label_ends(axes, shown, colours, diverging={name for name in shown if max(curves[name]) not in shown[name]})
    axes.set_title(title, loc="left", fontsize=10, color=_INK, pad=20)
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Writes a picture so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        figure.savefig(partial, format="png")


def _set_up_depths(axes: Axes, depths: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(depths[0] / 1.15, depths[-1] * 1.15)
    ticks: list[int] = []
    for depth in depths:
        if not ticks or depth / ticks[-1] >= 1.25:  # closer ones would overlap
            ticks.append(depth)
    axes.set_xticks(ticks, [str(depth) for depth in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("number of loops T", fontsize=9.5, color=_INK)


def _set_up_perplexity(axes: Axes, values: list[float]) -> None:
    middle, ratio = math.sqrt(min(values) * max(values)), max(_LEAST_SPAN, max(values) / min(values)) ** 1.16
    axes.set_yscale("log")
    axes.set_ylim(middle / math.sqrt(ratio), middle * math.sqrt(ratio))
    axes.yaxis.set_major_locator(_few_ticks(*axes.get_ylim()))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("perplexity (log scale)", fontsize=9.5, color=_INK)
    axes.grid(axis="y", color=_FAINT, lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, color="#999999", labelcolor=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")


def _few_ticks(low: float, high: float) -> Locator:
    """Round numbers: evenly spaced within a decade, 1-2-3-5 over a few, powers of ten beyond."""
    if high / low <= 6:
        return FixedLocator([*MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)])
    return LogLocator(subs=(1, 2, 3, 5) if high / low <= 300 else (1,))


def _shade(axes: Axes, trained: tuple[int, int]) -> None:
    start, end = trained[0] / 1.07, trained[1] * 1.07
    axes.axvspan(start, end, color=_BAND, lw=0, zorder=0)
    span = f"T = {trained[0]}" if trained[0] == trained[1] else f"T = {trained[0]} to {trained[1]}"
    above = {"y": 1.015, "va": "bottom", "fontsize": 8.5, "transform": axes.get_xaxis_transform()}
    axes.text(x=math.sqrt(start * end), s=f"trained on {span}", ha="center", color="#7a6a3a", **above)
    if axes.get_xlim()[1] > 2 * end:
        axes.text(x=axes.get_xlim()[1], s="deeper than trained", ha="right", color="#777777", **above)


def _label_ends(axes: Axes, curves: dict[str, dict[int, float]], colours: dict[str, str], diverging: set[str]) -> None:
    """Names each curve at its right end with its last and its best value, the labels pushed apart."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    ends = {name: (math.log([*curve.values()][-1]) - low) / (high - low) for name, curve in curves.items()}
    for name, height in _apart(ends).items():
        curve = curves[name]
        best = min(curve, key=lambda depth: curve[depth])
        last = "diverges" if name in diverging else f"{[*curve.values()][-1]:.4g}"
        axes.text(
            1.015, height + 0.005, f"{name}  {last}", color=colours[name], weight="bold",
            fontsize=9, va="bottom", transform=axes.transAxes,
        )  # fmt: skip
        axes.text(
            1.015, height - 0.005, f"best {curve[best]:.4g} at T = {best}", color=colours[name], fontsize=8, va="top",
            transform=axes.transAxes,
        )  # fmt: skip


def _apart(heights: dict[str, float]) -> dict[str, float]:
    """The same heights, moved as little as keeps them one label apart and inside the axes where they all fit."""
    names = sorted(heights, key=lambda name: heights[name])
    placed: list[float] = []
    for name in names:
        placed.append(max(heights[name], placed[-1] + _LABEL_HEIGHT if placed else 0.0))
    ceiling = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - _LABEL_HEIGHT
    return dict(zip(names, placed, strict=True))
