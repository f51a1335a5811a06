"""What a recipe leaves open is filled in from its data. (What contradicts the data: see tests/cli.)"""

import numpy as np
import pytest

from scse_dist.config.schema import DataSection, ModelSection, RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.data.resolve import resolve
from tests.helpers.shards import write_data_folder


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("resolve") / "data"
    return write_data_folder(folder, {"train": np.arange(100 * 16 + 1), "validation": np.arange(17)}, 16, vocab_size=99)


def test_window_positions_and_vocabulary_come_from_the_manifest(manifest: Manifest):
    config = resolve(RunConfig(data=DataSection(path="here")), manifest)
    assert (config.data.window, config.model.num_positions, config.model.vocab_size) == (16, 16, 99)


def test_a_shorter_window_needs_no_more_positions_than_it_has(manifest: Manifest):
    config = resolve(RunConfig(data=DataSection(window=8)), manifest)
    assert (config.data.window, config.model.num_positions) == (8, 8)


def test_what_the_recipe_says_stays(manifest: Manifest):
    said = RunConfig(data=DataSection(window=8), model=ModelSection(num_positions=64, vocab_size=99))
    config = resolve(said, manifest)
    assert (config.data.window, config.model.num_positions, config.model.vocab_size) == (8, 64, 99)
    assert config.model_copy(update={"data": said.data, "model": said.model}) == said


def test_a_resolved_configuration_resolves_to_itself(manifest: Manifest):
    config = resolve(RunConfig(), manifest)
    assert resolve(config, manifest) == config
