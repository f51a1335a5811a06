import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from scse_dist.telemetry.figures import depth_response, save_png

DEPTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48)
TEST: dict[int, float] = dict(zip(DEPTHS, (58.1, 44.2, 36.9, 34.1, 33.8, 33.9, 34.3, 34.6, 34.9), strict=True))


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def drawn(figure: Figure) -> list[list[tuple[float, float]]]:
    return [[(x, y) for x, y in np.asarray(line.get_xydata())] for line in axes_of(figure).lines]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in axes_of(figure).texts]


def test_a_curve_is_drawn_through_its_depths_and_labelled_with_its_figures() -> None:
    figure = depth_response({"test": dict(reversed(TEST.items()))}, (1, 8), "scse")
    axes = axes_of(figure)
    assert drawn(figure) == [[*TEST.items()]]
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(depth) for depth in DEPTHS]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert texts(figure) == ["trained on T = 1 to 8", "deeper than trained", "test  34.9", "best 33.8 at T = 12"]
    assert axes.get_title("left") == "scse"


@pytest.mark.parametrize(("trained", "label"), [((1, 8), "trained on T = 1 to 8"), ((8, 8), "trained on T = 8")])
def test_the_trained_depths_are_shaded(trained: tuple[int, int], label: str) -> None:
    figure = depth_response({"test": TEST}, trained, "")
    (band,) = axes_of(figure).patches
    extents = band.get_window_extent()
    left, right = (axes_of(figure).transData.transform((depth, 40))[0] for depth in trained)
    assert extents.x0 < left <= right < extents.x1
    assert label in texts(figure)


def test_what_is_not_finite_is_left_out_and_said() -> None:
    figure = depth_response({"test": {1: 50.0, 8: 40.0, 16: 1e4, 48: math.inf}, "none": {1: math.nan}}, (1, 8), "")
    assert drawn(figure) == [[(1, 50.0), (8, 40.0), (16, 1e4)]]
    assert texts(figure)[2:] == ["test  diverges", "best 40 at T = 8"]


def test_a_nearly_flat_curve_looks_flat() -> None:
    low, high = axes_of(depth_response({"test": {1: 407.4, 8: 407.0}}, (1, 8), "")).get_ylim()
    assert high / low > 1.3


@pytest.mark.parametrize("top", [36.0, 60.0, 400.0, 1e6])
def test_the_perplexity_axis_has_a_few_labels_whatever_its_span(top: float) -> None:
    figure = depth_response({"test": TEST | {1: top}}, (1, 8), "")
    FigureCanvasAgg(figure).draw()
    low, high = axes_of(figure).get_ylim()
    inside = [tick for tick in axes_of(figure).get_yticks() if low <= tick <= high]
    assert 2 <= len(inside) <= 20
    assert low < min(TEST.values()) and top < high


def test_depths_too_close_to_be_read_are_not_labelled() -> None:
    figure = depth_response({"test": dict.fromkeys(range(1, 49), 40.0)}, (1, 8), "")
    labels = [int(label.get_text()) for label in axes_of(figure).get_xticklabels()]
    assert labels[:4] == [1, 2, 3, 4]
    assert all(right / left >= 1.25 for left, right in pairwise(labels))


def test_labels_of_close_curves_do_not_overlap_and_stay_in_the_picture() -> None:
    curves = {f"set {index}": {depth: value + index / 10 for depth, value in TEST.items()} for index in range(6)}
    figure = depth_response(curves, (1, 8), "six sets")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    named = [text for text in axes_of(figure).texts if text.get_text().startswith(("set", "best"))]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in figure.findobj(Text) if text.get_text()]
    spans = sorted(tuple(text.get_window_extent(canvas.get_renderer()).intervaly) for text in named)
    assert len(named) == 12
    assert all(below[1] <= above[0] for below, above in pairwise(spans))
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)
    assert len({line.get_color() for line in axes_of(figure).lines}) == 6


def test_a_picture_is_saved_whole(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "depth-response.png"
    for title in ("first", "second"):
        save_png(depth_response({"test": TEST}, (1, 8), title), path)
    assert image.imread(path).shape[:2] == (600, 960)
    assert [path.name for path in path.parent.iterdir()] == ["depth-response.png"]
