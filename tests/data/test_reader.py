"""Windows come from files that are the manifest's when they are read, not only when they were first opened."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from scse_dist.data import stream
from scse_dist.data.manifest import read_manifest
from scse_dist.data.stream import WindowReader
from scse_dist.errors import UserError
from tests.helpers.runs import WINDOW, make_data


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WindowReader:
    """Keeps one record in memory, so that the next window is read from its file."""
    monkeypatch.setattr(stream, "_CACHED_RECORDS", 1)
    data = make_data(tmp_path / "data")
    return WindowReader(data, read_manifest(data), "train")


def test_consecutive_windows_share_one_token(reader: WindowReader) -> None:
    windows = [reader.window_W(index) for index in range(len(reader))]
    assert all(len(window) == WINDOW + 1 for window in windows)
    assert all(one[-1] == other[0] for one, other in itertools.pairwise(windows))


def test_a_folder_replaced_while_it_is_read_is_noticed(reader: WindowReader, tmp_path: Path) -> None:
    first = reader.window_W(0).copy()
    reader.window_W(len(reader) - 1)
    other = make_data(tmp_path / "other", seed=1)
    shutil.rmtree(tmp_path / "data" / "train")
    shutil.copytree(other / "train", tmp_path / "data" / "train")
    with pytest.raises(UserError, match="the manifest says"):
        reader.window_W(0)
    assert not np.array_equal(first, WindowReader(other, read_manifest(other), "train").window_W(0))


def test_a_shard_that_vanishes_while_it_is_read_is_named(reader: WindowReader, tmp_path: Path) -> None:
    reader.window_W(len(reader) - 1)
    shutil.rmtree(tmp_path / "data" / "train")
    with pytest.raises(UserError, match=r"shard\.\d+\.mds: No such file"):
        reader.window_W(0)
