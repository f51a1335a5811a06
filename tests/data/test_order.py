"""The order of samples: a permutation per epoch, computed for any sample alone."""

import tracemalloc
from collections import Counter
from itertools import pairwise

import pytest

from scse_dist.data.order import window_at


def epoch(number: int, num_windows: int, seed: int = 0) -> list[int]:
    first = number * num_windows
    return [window_at(sample, num_windows, seed) for sample in range(first, first + num_windows)]


@pytest.mark.parametrize("num_windows", [*range(1, 70), 97, 127, 128, 129, 255, 256, 257, 1009, 4096, 4099])
def test_each_epoch_is_a_permutation(num_windows: int):
    for number in (0, 1, 7):
        assert sorted(epoch(number, num_windows)) == list(range(num_windows))


def test_epochs_and_seeds_differ():
    orders = [tuple(epoch(number, 101, seed)) for number in range(8) for seed in range(8)]
    assert len(set(orders)) == 64


def test_two_windows_come_in_both_orders():
    assert {tuple(epoch(number, 2)) for number in range(20)} == {(0, 1), (1, 0)}


def test_every_window_comes_first_about_equally_often():
    counts = Counter(window_at(number * 10, 10, seed) for number in range(200) for seed in range(10))
    chi_square = sum((counts[window] - 200) ** 2 / 200 for window in range(10))
    assert chi_square < 27.9  # 0.1 % point at 9 degrees of freedom


def test_neighbours_in_the_data_are_not_neighbours_in_the_order():
    order = epoch(0, 5000)
    steps = [abs(a - b) for a, b in pairwise(order)]
    assert sum(step == 1 for step in steps) < 10  # two are expected by chance
    assert sum(steps) / len(steps) == pytest.approx(5000 / 3, rel=0.05)


def test_any_sample_is_found_without_a_table():
    tracemalloc.start()
    for sample in (10**12, 10**12 + 1, 10**15):
        assert 0 <= window_at(sample, 10**9 + 7, 0) < 10**9 + 7
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    late = 10**12 - 10**12 % 1009
    assert sorted(window_at(late + i, 1009, 5) for i in range(1009)) == list(range(1009))


def test_the_first_windows_of_seed_0_never_change():
    """Stored by hand: another order would silently change every run, and every resume."""
    assert epoch(0, 13) == [2, 7, 11, 4, 12, 10, 3, 0, 5, 9, 1, 8, 6]
    assert [window_at(10**6 + i, 1000, 3) for i in range(6)] == [777, 368, 792, 446, 329, 684]
