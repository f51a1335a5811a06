"""The depth schedule: a pure function of seed, step and (if asked) microbatch."""

import math
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from scse_dist.config.schema import DepthSection
from scse_dist.model.depth import depth_at, mean_depth

UNIFORM = DepthSection(min=1, max=8)
FIRST_20 = [4, 3, 7, 8, 5, 3, 8, 5, 7, 1, 4, 6, 7, 5, 1, 8, 7, 6, 3, 1]


def draws(config: DepthSection, num_steps: int = 4000, seed: int = 0) -> list[int]:
    return [depth_at(config, seed, step) for step in range(num_steps)]


def test_the_first_depths_of_seed_0_never_change():
    """Stored by hand: another list would silently change every run, and every resume."""
    assert draws(UNIFORM, 20) == FIRST_20


def test_another_process_draws_the_same():
    code = (
        "from scse_dist.config.schema import DepthSection; from scse_dist.model.depth import depth_at;"
        "print([depth_at(DepthSection(), 0, step) for step in range(20)])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(FIRST_20)


def test_a_step_can_be_asked_for_alone_and_in_any_order():
    forwards = draws(UNIFORM, 200)
    assert [depth_at(UNIFORM, 0, step) for step in reversed(range(200))] == forwards[::-1]
    assert 1 <= depth_at(UNIFORM, 0, 10**15) <= 8


def test_seeds_and_steps_are_independent():
    lists = [tuple(draws(UNIFORM, 100, seed)) for seed in range(20)]
    assert len(set(lists)) == 20
    first = Counter(depths[0] for depths in lists)
    assert len(first) > 4
    # a seed's list is not another's, shifted
    assert not any(a[k:] == b[: 100 - k] for a in lists for b in lists for k in range(1, 60))


def test_uniform_draws_are_uniform():
    counts = Counter(draws(UNIFORM, 8000))
    assert sorted(counts) == list(range(1, 9))
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 24.3  # 0.1 % point at 7 degrees of freedom


def test_uniform_draws_do_not_follow_each_other():
    depths = draws(UNIFORM, 8000)
    pairs = Counter(pairwise(depths))
    assert len(pairs) == 64
    chi_square = sum((count - 125) ** 2 / 125 for count in pairs.values())
    assert chi_square < 104  # 0.1 % point at 63 degrees of freedom


def test_a_range_of_one_and_the_fixed_schedule_give_one_depth():
    assert set(draws(DepthSection(min=5, max=5), 50)) == {5}
    assert set(draws(DepthSection(schedule="fixed", min=7, max=7), 50)) == {7}


def test_poisson_draws_follow_the_distribution_and_are_clipped():
    config = DepthSection(schedule="poisson", mean=6, min=3, max=12)
    counts = Counter(draws(config, 8000))
    assert sorted(counts) == list(range(3, 13))

    def probability(k: int) -> float:
        return math.exp(k * math.log(6) - 6 - math.lgamma(k + 1))

    expected = {k: 8000 * probability(k) for k in range(4, 12)}
    expected[3] = 8000 * sum(probability(k) for k in range(4))
    expected[12] = 8000 - sum(expected.values())
    chi_square = sum((counts[k] - count) ** 2 / count for k, count in expected.items())
    assert chi_square < 27.9  # 0.1 % point at 9 degrees of freedom


@pytest.mark.parametrize("mean", [0.01, 1.0, 300.0])
def test_poisson_at_extreme_means_stays_in_range(mean: float):
    depths = draws(DepthSection(schedule="poisson", mean=mean, min=1, max=64), 500)
    assert all(1 <= depth <= 64 for depth in depths)
    assert sum(depths) / 500 == pytest.approx(min(max(mean, 1.0), 64.0), abs=0.5)


@pytest.mark.parametrize(
    "config",
    [UNIFORM, DepthSection(min=3, max=4), DepthSection(schedule="poisson", mean=6, min=3, max=12)],
    ids=["uniform", "narrow", "poisson"],
)
def test_the_stated_mean_is_the_mean_of_the_draws(config: DepthSection):
    depths = draws(config, 8000)
    spread = (sum((d - mean_depth(config)) ** 2 for d in depths) / 8000) ** 0.5
    assert sum(depths) / 8000 == pytest.approx(mean_depth(config), abs=4 * spread / 8000**0.5)


def test_a_curriculum_deepens_and_then_stays():
    config = DepthSection(schedule="curriculum", min=2, max=8, curriculum_steps=600)
    depths = draws(config, 3000)
    assert set(depths[:100]) == {2}
    assert [max(depths[start : start + 100]) for start in range(0, 600, 100)] == [2, 3, 4, 5, 6, 7]
    assert set(depths[600:]) == set(range(2, 9))
    assert all(depth <= 2 + step // 100 for step, depth in enumerate(depths[:600]))
    assert mean_depth(config) == 5


def test_one_draw_a_step_whatever_the_microbatch():
    assert all(
        depth_at(UNIFORM, 0, step, microbatch) == FIRST_20[step] for step in range(20) for microbatch in range(6)
    )


def test_one_draw_a_microbatch_if_asked_for():
    config = DepthSection(draw="microbatch")
    grid = [[depth_at(config, 0, step, microbatch) for microbatch in range(4)] for step in range(500)]
    assert [row[0] for row in grid[:20]] == FIRST_20
    counts = Counter(depth for row in grid for depth in row)
    assert sorted(counts) == list(range(1, 9)) and min(counts.values()) > 180
    assert sum(len(set(row)) == 1 for row in grid) < 5
