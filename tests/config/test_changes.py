"""Which settings may differ when a run goes on."""

from typing import Any

import pytest

from scse_dist.config import RunConfig
from scse_dist.config.changes import differences, forbidden_changes
from scse_dist.config.methods import ScseConfig, TunedAdapterConfig

OLD = RunConfig()


def changed(section: str, **values: Any) -> RunConfig:
    return OLD.model_copy(update={section: getattr(OLD, section).model_copy(update=values)})


def test_nothing_changed_is_nothing_forbidden():
    assert forbidden_changes(OLD, RunConfig()) == differences(OLD, RunConfig()) == []


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("run", {"dir": "elsewhere"}),
        ("data", {"path": "moved"}),
        ("data", {"verify_shards": False}),
        ("depth", {"check_agreement": True}),
        ("train", {"microbatch_size": 4}),
        ("parallel", {"recompute": "none"}),
        ("parallel", {"ds_config": "mine.json"}),
        ("parallel", {"device": "cuda"}),
        ("evaluate", {"every": 7, "depths": (1,)}),
        ("checkpoint", {"every": 7, "keep_last": 1}),
        ("telemetry", {"log_every": 7, "tensorboard": False}),
    ],
)
def test_what_does_not_alter_the_result_may_change(section: str, values: dict[str, Any]):
    assert forbidden_changes(OLD, changed(section, **values)) == []
    assert [key for key, _, _ in differences(OLD, changed(section, **values))] == [f"{section}.{key}" for key in values]


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("data", {"window": 64}),
        ("model", {"width": 768}),
        ("depth", {"max": 12}),
        ("train", {"global_batch_size": 64}),
        ("optim", {"lr": 1e-3}),
        ("optim", {"betas": (0.8, 0.95)}),
        ("parallel", {"zero_stage": 3}),
    ],
)
def test_what_alters_the_result_is_named_with_both_values(section: str, values: dict[str, Any]):
    new = changed(section, **values)
    (key,) = values
    before, after = (config.model_dump(mode="json")[section][key] for config in (OLD, new))
    assert forbidden_changes(OLD, new) == [(f"{section}.{key}", before, after)]


def test_seed_and_precision_may_not_change():
    new = OLD.model_copy(update={"seed": 1, "precision": "bf16"})
    assert forbidden_changes(OLD, new) == [("seed", 0, 1), ("precision", "fp32", "bf16")]


def test_another_method_is_named_and_so_are_the_keys_that_come_and_go():
    found = forbidden_changes(
        changed("model", method=ScseConfig()), changed("model", method=TunedAdapterConfig(step_scale=0.5))
    )
    assert ("model.method.name", "scse", "tuned_adapter") in found
    assert ("model.method.mask_eps", 1e-8, None) in found
    assert ("model.method.gain", None, 0.15) in found
    assert "model.method.step_scale" not in [key for key, _, _ in found]


@pytest.mark.parametrize(
    ("schedule", "steps", "allowed"),
    [("constant", 2000, True), ("constant", 500, False), ("cosine", 2000, False), ("cosine", 500, False)],
)
def test_a_run_may_be_prolonged_if_its_rate_does_not_depend_on_its_length(schedule: str, steps: int, allowed: bool):
    old = changed("optim", schedule=schedule)
    new = old.model_copy(update={"train": old.train.model_copy(update={"num_steps": steps})})
    assert forbidden_changes(old, new) == ([] if allowed else [("train.num_steps", 1000, steps)])
