"""The depth curve rests on exact sums: no batch size, no number of ranks and no padding moves it."""

import math
from pathlib import Path

import pytest
import torch

from scse_dist.config.schema import ModelSection
from scse_dist.data.manifest import read_manifest
from scse_dist.data.stream import WindowReader
from scse_dist.evaluate.depth_curve import DepthScore, depth_curve
from scse_dist.model import LoopedLM, build_model
from scse_dist.parallel.env import World
from tests.helpers.dist import run_ranks
from tests.helpers.runs import WINDOW, make_data

DEPTHS = (1, 3, 8)
ALONE = World(0, 0, 1, 1, torch.device("cpu"), "gloo")


def small_model() -> LoopedLM:
    return build_model(ModelSection(width=32, num_heads=2, vocab_size=64, num_positions=WINDOW), seed=1).eval()


def curve(world: World, data: Path, batch_size: int, max_windows: int = 0) -> dict[int, DepthScore]:
    reader = WindowReader(data, read_manifest(data), "test")
    return depth_curve(small_model(), reader, DEPTHS, world, batch_size=batch_size, max_windows=max_windows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("curve") / "data")


def assert_same(one: dict[int, DepthScore], other: dict[int, DepthScore]) -> None:
    for depth in DEPTHS:
        assert one[depth].num_tokens == other[depth].num_tokens
        assert one[depth].nll_sum == pytest.approx(other[depth].nll_sum, rel=1e-9)


def test_every_window_counts_once_at_every_depth(data: Path) -> None:
    reader, model = WindowReader(data, read_manifest(data), "test"), small_model()
    expected = dict.fromkeys(DEPTHS, 0.0)
    for index in range(len(reader)):
        tokens = reader.batch_BW([index])
        for depth in DEPTHS:
            logits = model(tokens[:, :-1], depth).logits_BLV
            loss = torch.nn.functional.cross_entropy(logits[0].double(), tokens[0, 1:], reduction="sum")
            expected[depth] += float(loss.detach())
    measured = curve(ALONE, data, batch_size=3)
    for depth in DEPTHS:
        assert measured[depth].num_tokens == len(reader) * WINDOW
        assert measured[depth].nll_sum == pytest.approx(expected[depth], rel=1e-6)


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_the_batch_size_moves_nothing(data: Path, batch_size: int) -> None:
    assert_same(curve(ALONE, data, batch_size), curve(ALONE, data, 2))


@pytest.mark.parametrize("nproc", [2, 3])
def test_the_number_of_ranks_moves_nothing(data: Path, nproc: int) -> None:
    """8 windows in batches of 3 are 3 batches: ranks have unequal numbers of them."""
    alone = curve(ALONE, data, 3)
    for measured in run_ranks(curve, nproc, data, 3):
        assert_same(measured, alone)


def test_a_budget_takes_the_first_windows(data: Path) -> None:
    assert curve(ALONE, data, 2, max_windows=3)[8].num_tokens == 3 * WINDOW


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity(data: Path) -> None:
    model = small_model()
    torch.nn.init.zeros_(model.embedding.token)
    reader = WindowReader(data, read_manifest(data), "test")
    scores = depth_curve(model, reader, DEPTHS, ALONE, batch_size=4)
    assert [score.perplexity for score in scores.values()] == pytest.approx([64.0] * 3, rel=1e-6)


def test_a_perplexity_beyond_numbers_is_infinite() -> None:
    assert DepthScore(nll_sum=1e6, num_tokens=1).perplexity == math.inf
