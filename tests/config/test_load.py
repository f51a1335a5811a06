"""Layers: defaults, then the recipe, then dotted overrides, the later one winning."""

from pathlib import Path

import pytest

from scse_dist.config import RunConfig, dump_config, load_config, read_config
from scse_dist.config.methods import (
    CapacityMatchedAdapterConfig,
    LoopedBaselineConfig,
    ScseConfig,
    TunedAdapterConfig,
    UnsharedConfig,
)
from scse_dist.errors import UserError


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        """
model:
  width: 64
  num_heads: 4
  method: {name: scse, step_scale: 0.4, mask_eps: 1.0e-6}
depth: {min: 2, max: 6}
optim: {lr: 1e-3}
"""
    )
    return path


def test_an_empty_recipe_is_all_defaults(tmp_path: Path):
    for text in ("", "# nothing\n", "{}\n"):
        (tmp_path / "empty.yaml").write_text(text)
        assert load_config(tmp_path / "empty.yaml") == RunConfig()


def test_the_recipe_replaces_defaults_and_leaves_the_others(recipe: Path):
    config = load_config(recipe)
    assert (config.model.width, config.model.num_heads, config.optim.lr) == (64, 4, 1e-3)
    assert (config.model.dropout, config.optim.weight_decay, config.seed) == (0.0, 0.1, 0)
    assert config.model.method == ScseConfig(step_scale=0.4, mask_eps=1e-6)


def test_overrides_replace_the_recipe_and_the_later_one_wins(recipe: Path):
    config = load_config(recipe, ["optim.lr=5e-4", "seed=3", "optim.lr=2e-4", "depth.max=8"])
    assert (config.optim.lr, config.seed, config.depth.min, config.depth.max) == (2e-4, 3, 2, 8)


def test_override_values_are_yaml(recipe: Path):
    config = load_config(
        recipe,
        [
            "evaluate.depths=[1, 4, 96]",
            "evaluate.sets=[test, heldout]",
            "telemetry.tensorboard=false",
            "model.ffn_width=null",
            "run.dir=runs/a=b",
            "optim.betas=[0.8, 0.9]",
            "optim={lr: 0.1}",
        ],
    )
    assert config.evaluate.depths == (1, 4, 96)
    assert config.evaluate.sets == ("test", "heldout")
    assert config.telemetry.tensorboard is False
    assert config.model.resolved_ffn_width == 256
    assert config.run.dir == "runs/a=b"
    assert (config.optim.lr, config.optim.betas) == (0.1, (0.9, 0.95))  # a section as a whole replaces what it held


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.0e-3", ".001", "0.001", "+1e-3"])
def test_numbers_are_numbers_however_they_are_written(recipe: Path, text: str):
    assert load_config(recipe, [f"optim.lr={text}"]).optim.lr == 1e-3


def test_a_folder_may_be_called_like_a_date(recipe: Path):
    assert load_config(recipe, ["run.dir=2024-01-01"]).run.dir == "2024-01-01"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("looped_baseline", LoopedBaselineConfig()),
        ("tuned_adapter", TunedAdapterConfig()),
        ("capacity_matched_adapter", CapacityMatchedAdapterConfig()),
        ("scse", ScseConfig(step_scale=0.4, mask_eps=1e-6)),
    ],
)
def test_another_method_drops_what_the_recipe_says_about_the_old_one(recipe: Path, name: str, expected: object):
    config = load_config(recipe, [f"model.method.name={name}"])
    assert config.model.method == expected
    assert (config.model.width, config.depth.min, config.depth.max) == (64, 2, 6)


@pytest.mark.parametrize("turn", [1, -1])
def test_the_new_methods_own_keys_may_stand_before_or_after_its_name(recipe: Path, turn: int):
    overrides = ["model.method.gain=0.3", "model.method.name=tuned_adapter", "model.method.step_scale=0.2"]
    assert load_config(recipe, overrides[::turn]).model.method == TunedAdapterConfig(gain=0.3, step_scale=0.2)


def test_a_method_given_as_a_whole_drops_the_old_one_too(recipe: Path):
    config = load_config(recipe, ["model.method={name: looped_baseline, gain: 0.5}"])
    assert config.model.method == LoopedBaselineConfig(gain=0.5)


def test_of_two_methods_the_later_one_wins(recipe: Path):
    overrides = ["model.method.name=looped_baseline", "model.method.name=tuned_adapter"]
    assert load_config(recipe, overrides).model.method == TunedAdapterConfig()


@pytest.mark.parametrize(
    ("overrides", "num_layers"),
    [
        (["model.method.name=unshared"], 4),
        (["model.method.name=unshared", "model.method.num_layers=6"], 6),
        (["model.method.num_layers=3", "model.method.name=unshared"], 3),
        (["model.method={name: unshared, num_layers: 8}"], 8),
    ],
)
def test_unshared_trains_at_its_number_of_layers(recipe: Path, overrides: list[str], num_layers: int):
    config = load_config(recipe, overrides)
    assert config.model.method == UnsharedConfig(num_layers=num_layers)
    assert (config.depth.schedule, config.depth.min, config.depth.max) == ("fixed", num_layers, num_layers)


def test_an_unshared_recipe_turned_into_a_looped_one_gets_the_default_depths(tmp_path: Path):
    path = tmp_path / "unshared.yaml"
    path.write_text("model: {method: {name: unshared, num_layers: 6}}\n")
    assert load_config(path).depth.max == 6
    config = load_config(path, ["model.method.name=scse"])
    assert (config.model.method, config.depth) == (ScseConfig(), RunConfig().depth)


def test_the_resolved_file_reloads_to_the_same_object(recipe: Path, tmp_path: Path):
    config = load_config(recipe, ["model.method.name=tuned_adapter", "optim.lr=3e-5", "run.dir='1e3'"])
    (tmp_path / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    assert read_config(tmp_path / "config.yaml") == config
    assert load_config(tmp_path / "config.yaml") == config
    assert dump_config(read_config(tmp_path / "config.yaml")) == dump_config(config)


def test_a_configuration_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().optim.lr = 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  width: 3\n  width: 4\n", "not valid YAML: key 'width' is given twice in"),
        ("model: [1\n", "not valid YAML: while parsing a flow sequence"),
        ("- model\n", "holds a list, not sections; see launchers/recipes for examples"),
        ("just text\n", "holds a str, not sections; see launchers/recipes for examples"),
        ("{[1]: 2}\n", "not valid YAML: [1] cannot be a key in"),
        ("a: !!python/object:os.system {}\n", "not valid YAML: could not determine a constructor for the tag"),
        ("seed: !!binary aGVq\n", "Object of type bytes is not JSON serializable; use numbers, strings, lists and"),
    ],
)
def test_a_recipe_that_is_no_recipe_is_refused_in_one_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as refusal:
        load_config(path)
    assert str(refusal.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refusal.value)


def test_a_recipe_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "latin1.yaml").write_bytes(b"run: {dir: caf\xe9}\n")
    for name, message in (
        ("missing.yaml", "No such file or directory"),
        (".", "Is a directory"),
        (
            "latin1.yaml",
            "not valid YAML: 'utf-8' codec can't decode byte 0xe9 in position 14: invalid continuation byte",
        ),
    ):
        with pytest.raises(UserError) as refusal:
            load_config(tmp_path / name)
        assert str(refusal.value) == f"{tmp_path / name}: {message}"
