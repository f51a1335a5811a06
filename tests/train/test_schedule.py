"""The learning rate as a function of applied steps."""

import math
from itertools import pairwise

import pytest

from scse_dist.config.schema import OptimSection
from scse_dist.train.schedule import learning_rate


def rates(optim: OptimSection, num_steps: int, upto: int | None = None) -> list[float]:
    return [learning_rate(optim, num_steps, applied) for applied in range(upto or num_steps)]


def test_warm_up_climbs_evenly_and_reaches_the_peak_at_its_end():
    optim = OptimSection(lr=1.0, warmup_steps=4, schedule="constant")
    assert rates(optim, 8) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1])


def test_without_warm_up_the_first_step_has_the_peak():
    for schedule in ("constant", "cosine"):
        assert learning_rate(OptimSection(lr=0.3, warmup_steps=0, schedule=schedule), 10, 0) == 0.3


@pytest.mark.parametrize("schedule", ["cosine", "constant", "warmup_stable_decay"])
def test_a_warm_up_longer_than_the_run_is_cut_off(schedule: str):
    decay_steps = 5 if schedule == "warmup_stable_decay" else None
    optim = OptimSection.model_validate(
        {"lr": 1.0, "warmup_steps": 99, "schedule": schedule, "decay_steps": decay_steps}
    )
    assert rates(optim, 10) == pytest.approx([(step + 1) / 100 for step in range(10)])


@pytest.mark.parametrize("warmup_steps", [10, 9])
def test_a_warm_up_as_long_as_the_run_divides_nothing_by_zero(warmup_steps: int):
    optim = OptimSection(lr=1.0, warmup_steps=warmup_steps)
    assert all(0 < rate <= 1 for rate in rates(optim, 10))
    assert learning_rate(optim, 10, 10) in (0.0, 1.0)


def test_cosine_starts_at_the_peak_ends_at_the_floor_and_is_half_way_in_the_middle():
    optim = OptimSection(lr=2.0, warmup_steps=10, min_lr_ratio=0.1)
    assert learning_rate(optim, 110, 10) == 2.0
    assert learning_rate(optim, 110, 60) == pytest.approx((2.0 + 0.2) / 2)
    assert learning_rate(optim, 110, 35) == pytest.approx(0.2 + 1.8 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate(optim, 110, 110) == pytest.approx(0.2)
    assert learning_rate(optim, 110, 10_000) == pytest.approx(0.2)
    assert learning_rate(OptimSection(lr=2.0, warmup_steps=10), 110, 110) == pytest.approx(0.0)


def test_warmup_stable_decay_has_three_parts():
    optim = OptimSection(lr=1.0, schedule="warmup_stable_decay", warmup_steps=2, decay_steps=4, min_lr_ratio=0.2)
    expected = [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4]
    assert rates(optim, 10) == pytest.approx(expected)
    assert learning_rate(optim, 10, 10) == pytest.approx(0.2)


def test_a_decay_longer_than_the_run_starts_below_the_peak():
    optim = OptimSection(lr=1.0, schedule="warmup_stable_decay", warmup_steps=0, decay_steps=20)
    assert rates(optim, 10) == pytest.approx([0.5 - step / 20 for step in range(10)])


@pytest.mark.parametrize(
    "optim",
    [
        OptimSection(warmup_steps=30),
        OptimSection(warmup_steps=30, min_lr_ratio=0.3),
        OptimSection(warmup_steps=30, schedule="warmup_stable_decay", decay_steps=50),
        OptimSection(warmup_steps=30, schedule="constant"),
    ],
    ids=lambda optim: f"{optim.schedule}-{optim.min_lr_ratio}",
)
def test_rates_rise_in_the_warm_up_and_never_after_it(optim: OptimSection):
    values = rates(optim, 200, upto=260)
    assert all(a < b for a, b in pairwise(values[:31]))
    assert all(a >= b for a, b in pairwise(values[30:]))
    assert max(values) == values[30] == optim.lr
    assert min(values[30:]) >= optim.lr * optim.min_lr_ratio


def test_the_rate_needs_no_history():
    optim = OptimSection(warmup_steps=5)
    assert [learning_rate(optim, 50, step) for step in (40, 3, 17)] == [rates(optim, 50)[step] for step in (40, 3, 17)]
