"""DeepSpeed's settings: its file holds what it owns, the recipe the rest, and a key given twice must agree."""

import json
from pathlib import Path

import pytest

from scse_dist.config import RunConfig
from scse_dist.config.accumulation import accumulation_steps
from scse_dist.config.deepspeed import OWNED_BY_RECIPE, deepspeed_config
from scse_dist.config.schema import OptimSection, ParallelSection, TrainSection
from scse_dist.errors import UserError


def recipe(batch: int = 24, microbatch: int = 4, **sections: object) -> RunConfig:
    return RunConfig(train=TrainSection(global_batch_size=batch, microbatch_size=microbatch)).model_copy(
        update=sections
    )


def refusal(config: RunConfig, world_size: int = 1) -> str:
    with pytest.raises(UserError) as error:
        deepspeed_config(config, world_size)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_sizes_and_clipping_come_from_the_recipe(stage: int):
    config = recipe(parallel=ParallelSection.model_validate({"zero_stage": stage}), optim=OptimSection(grad_clip=0.7))
    settings = deepspeed_config(config, 2)
    assert settings["zero_optimization"]["stage"] == stage
    assert settings["train_batch_size"] == 24
    assert settings["train_micro_batch_size_per_gpu"] == 4
    assert settings["gradient_accumulation_steps"] == 3
    assert settings["gradient_clipping"] == (0.7 if stage else 0.0)  # plain stage 0 is clipped by us
    assert not {"bf16", "fp16", "torch_autocast", "optimizer", "scheduler"} & set(settings)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_bf16_accumulates_in_fp32_wherever_deepspeed_can(stage: int):
    config = recipe(parallel=ParallelSection.model_validate({"zero_stage": stage}), precision="bf16")
    settings = deepspeed_config(config, 1)
    assert settings["bf16"] == {"enabled": True}
    assert settings["data_types"] == {"grad_accum_dtype": "fp32" if stage else "bf16"}
    assert settings["gradient_clipping"] == 1.0


def test_autocast_keeps_fp32_parameters():
    settings = deepspeed_config(recipe(precision="bf16_autocast"), 1)
    assert settings["torch_autocast"] == {"enabled": True, "dtype": "bfloat16"}
    assert "bf16" not in settings


@pytest.mark.parametrize("key", OWNED_BY_RECIPE)
def test_a_key_of_the_recipe_with_another_value_is_refused(tmp_path: Path, key: str):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}, key: 77}))
    assert refusal(recipe(parallel=ParallelSection(ds_config=str(path)))) == (
        f"parallel.ds_config={path}: {key}=77 contradicts the recipe's {OWNED_BY_RECIPE[key]}; remove it from the file"
    )


def test_the_same_value_twice_is_no_contradiction_and_other_keys_are_kept(tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": 5}, "train_batch_size": 24, "dump_state": True}
        )
    )
    settings = deepspeed_config(recipe(parallel=ParallelSection(ds_config=str(path))), 1)
    assert settings["zero_optimization"]["reduce_bucket_size"] == 5
    assert settings["dump_state"] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1); give a DeepSpeed JSON file",
        ),
        ("[]", "has no zero_optimization section; see ds_configs/ for examples"),
        ("{}", "has no zero_optimization section; see ds_configs/ for examples"),
        ('{"zero_optimization": 2}', "has no zero_optimization section; see ds_configs/ for examples"),
        (
            '{"zero_optimization": {"stage": 3}}',
            "zero_optimization.stage=3 contradicts parallel.zero_stage=2; make them agree",
        ),
        (
            '{"zero_optimization": {}}',
            "zero_optimization.stage=None contradicts parallel.zero_stage=2; make them agree",
        ),
    ],
)
def test_a_file_that_does_not_serve_is_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "mine.json"
    path.write_text(text)
    assert refusal(recipe(parallel=ParallelSection(ds_config=str(path)))) == f"parallel.ds_config={path}: {message}"


def test_a_missing_file_is_refused(tmp_path: Path):
    path = tmp_path / "none.json"
    message = refusal(recipe(parallel=ParallelSection(ds_config=str(path))))
    assert message.startswith(f"parallel.ds_config={path}: ") and "No such file" in message


@pytest.mark.parametrize(
    ("batch", "microbatch", "world_size", "steps"), [(24, 4, 1, 6), (24, 4, 2, 3), (24, 4, 6, 1), (1, 1, 1, 1)]
)
def test_accumulation_follows_from_the_sizes(batch: int, microbatch: int, world_size: int, steps: int):
    assert accumulation_steps(recipe(batch, microbatch), world_size) == steps


@pytest.mark.parametrize(
    ("batch", "microbatch", "world_size", "message"),
    [
        (
            24,
            5,
            2,
            "train.microbatch_size=5 does not divide the 12 windows that each of 2 ranks has of "
            "train.global_batch_size=24; use one of [1, 2, 3, 4, 6, 12]",
        ),
        (
            10,
            1,
            4,
            "train.global_batch_size=10 cannot be shared by 4 ranks; use a multiple of 4, or one of [1, 2, 5] ranks",
        ),
        (
            2,
            4,
            1,
            "train.microbatch_size=4 does not divide the 2 windows that each of 1 ranks has of "
            "train.global_batch_size=2; use one of [1, 2]",
        ),
    ],
)
def test_sizes_that_do_not_come_out_are_refused(batch: int, microbatch: int, world_size: int, message: str):
    with pytest.raises(UserError) as error:
        accumulation_steps(recipe(batch, microbatch), world_size)
    assert str(error.value) == message
