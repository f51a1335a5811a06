"""What is shipped beside the code, and what may not be loaded to read it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ds_configs
from launchers import RECIPES, find_recipe, recipe_names
from scse_dist.config import load_config
from scse_dist.config.accumulation import accumulation_steps
from scse_dist.errors import UserError

DEEPSPEEDS_OWN = {"zero_optimization", "activation_checkpointing", "aio", "comms_logger", "flops_profiler"}
LIGHT = (
    "scse_dist.config",
    "scse_dist.config.accumulation",
    "scse_dist.config.changes",
    "scse_dist.data.manifest",
    "scse_dist.data.order",
    "scse_dist.data.resolve",
    "scse_dist.model.depth",
    "scse_dist.model.flops",
    "scse_dist.train.schedule",
    "scse_dist.checkpoint.manifest",
    "scse_dist.run_folder",
    "scse_dist.cli.app",
    "launchers.local",
)
HEAVY = ("torch", "deepspeed", "streaming", "transformers", "sentencepiece", "matplotlib", "tensorboard", "pandas")


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_parses_and_fits_one_or_two_ranks(name: str):
    config = load_config(RECIPES / name)
    assert [accumulation_steps(config, ranks) >= 1 for ranks in (1, 2)] == [True, True]


def test_a_recipe_is_found_by_its_name_with_and_without_ending(tmp_path: Path):
    assert "demo.yaml" in recipe_names()
    assert find_recipe(Path("demo")) == find_recipe(Path("demo.yaml")) == RECIPES / "demo.yaml"
    own = tmp_path / "demo.yaml"
    own.touch()
    assert find_recipe(own) == own
    with pytest.raises(UserError, match=r"^nowhere: no such recipe; give a YAML file or one of .*demo\.yaml"):
        find_recipe(Path("nowhere"))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeed_files_hold_only_what_deepspeed_owns(stage: int):
    settings = json.loads(ds_configs.stage_file(stage).read_text())
    assert settings["zero_optimization"]["stage"] == stage
    assert set(settings) <= DEEPSPEEDS_OWN


@pytest.mark.parametrize("module", LIGHT)
def test_it_imports_without_heavy_libraries(module: str):
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
