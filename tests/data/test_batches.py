"""Which rank reads what: together the ranks read one global order, each sample once."""

import numpy as np
import pytest

from scse_dist.config.schema import DataSection, RunConfig, TrainSection
from scse_dist.data.order import window_at
from scse_dist.data.stream import TrainingBatches, WindowReader
from tests.helpers.shards import write_data_folder

NUM_WINDOWS, WINDOW = 37, 4


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> WindowReader:
    folder = tmp_path_factory.mktemp("numbers") / "data"
    tokens = np.arange(NUM_WINDOWS * WINDOW + 1)
    return WindowReader(folder, write_data_folder(folder, {"train": tokens}, WINDOW), "train")


def plan(reader: WindowReader, global_batch: int, microbatch: int, world_size: int) -> list[TrainingBatches]:
    config = RunConfig(
        seed=4,
        data=DataSection(path="data/numbers"),
        train=TrainSection(global_batch_size=global_batch, microbatch_size=microbatch),
    )
    return [TrainingBatches(reader, config, rank, world_size) for rank in range(world_size)]


LAYOUTS = [
    (world_size, microbatch, 12 // (world_size * microbatch))
    for world_size in (1, 2, 3, 4)
    for microbatch in (1, 2, 3, 4, 6, 12)
    if 12 % (world_size * microbatch) == 0
]


@pytest.mark.parametrize(("world_size", "microbatch", "accumulation"), LAYOUTS)
def test_every_layout_reads_the_same_global_sequence_and_no_sample_twice(
    reader: WindowReader, world_size: int, microbatch: int, accumulation: int
):
    ranks = plan(reader, 12, microbatch, world_size)
    for step in (0, 1, 2, 1000):
        read = [n for rank in ranks for part in range(accumulation) for n in rank.samples(step, part)]
        assert sorted(read) == list(range(12 * step, 12 * (step + 1)))


def test_an_epoch_shows_every_window_once_across_ranks_and_steps(reader: WindowReader):
    ranks = plan(reader, 2, 1, 2)
    seen = [int(rank.batch_BW(step, 0)[0, 0]) // WINDOW for step in range(NUM_WINDOWS) for rank in ranks]
    assert sorted(seen[:NUM_WINDOWS]) == sorted(seen[NUM_WINDOWS:]) == list(range(NUM_WINDOWS))
    assert seen[:NUM_WINDOWS] != seen[NUM_WINDOWS:]


def test_a_batch_holds_the_tokens_of_the_windows_that_the_order_names(reader: WindowReader):
    _, rank = plan(reader, 12, 3, 2)
    batch_BW = rank.batch_BW(5, 1)
    assert batch_BW.shape == (3, WINDOW + 1)
    for sample, tokens_W in zip(rank.samples(5, 1), batch_BW.tolist(), strict=True):
        first = window_at(sample, NUM_WINDOWS, 4) * WINDOW
        assert tokens_W == list(range(first, first + WINDOW + 1))
