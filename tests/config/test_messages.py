"""What a user reads after a mistake in the configuration: one line with the key, the value and a way out."""

from pathlib import Path

import pytest

from scse_dist.config import load_config
from scse_dist.errors import UserError

METHODS = "scse, looped_baseline, capacity_matched_adapter, tuned_adapter, unshared"
UNKNOWN_KEYS = [
    ("model.wdith=3", "unknown key model.wdith; did you mean model.width?"),
    ("model.Width=3", "unknown key model.Width; did you mean model.width?"),
    ("evaluate.depth=[1]", "unknown key evaluate.depth; did you mean evaluate.depths?"),
    ("train.batch_size=3", "unknown key train.batch_size; did you mean train.microbatch_size?"),
    ("model.init.embed_std=1", "unknown key model.init.embed_std; did you mean model.init.embedding_std?"),
    ("optm.lr=1", "unknown key optm; did you mean optim?"),
    ("model={wdith: 3}", "unknown key model.wdith; did you mean model.width?"),
    # in no section, or in the wrong one: where such a key lives
    ("lr=3", "unknown key lr; did you mean optim.lr?"),
    ("num_heads=3", "unknown key num_heads; did you mean model.num_heads?"),
    ("train.weight_decay=3", "unknown key train.weight_decay; did you mean optim.weight_decay?"),
    ("model.zero_stage=3", "unknown key model.zero_stage; did you mean parallel.zero_stage?"),
    # like nothing: what the section has
    (
        "model.xyzzy=1",
        "unknown key model.xyzzy; valid for model: "
        "width, num_heads, ffn_width, dropout, vocab_size, num_positions, init, method",
    ),
    (
        "xyzzy=1",
        "unknown key xyzzy; valid for the top level: "
        "run, seed, precision, data, model, depth, train, optim, parallel, evaluate, checkpoint, telemetry",
    ),
]
KINDS = [
    ('train.num_steps="8"', "train.num_steps='8' should be a valid integer"),
    ("train.num_steps=true", "train.num_steps=True should be a valid integer"),
    ("train.num_steps=8.0", "train.num_steps=8.0 should be a valid integer"),
    ("train.num_steps=8.5", "train.num_steps=8.5 should be a valid integer"),
    ("train.num_steps=", "train.num_steps=None should be a valid integer"),
    ("train.num_steps=[8]", "train.num_steps=[8] should be a valid integer"),
    ("optim.lr=abc", "optim.lr='abc' should be a valid number"),
    ('optim.lr="3e-4"', "optim.lr='3e-4' should be a valid number"),
    ("optim.lr=true", "optim.lr=True should be a valid number"),
    ("telemetry.tensorboard=1", "telemetry.tensorboard=1 should be a valid boolean"),
    ('telemetry.tensorboard="yes"', "telemetry.tensorboard='yes' should be a valid boolean"),
    ("run.dir=123", "run.dir=123 should be a valid string"),
    ("evaluate.depths=8", "evaluate.depths=8 should be a valid array"),
    ("evaluate.sets=test", "evaluate.sets='test' should be a valid array"),
    ("evaluate.sets=[1]", "evaluate.sets.0=1 should be a valid string"),
    ("optim.betas=[0.9]", "optim.betas.1 is missing"),
    ("model=3", "model=3 must be a section with keys of its own"),
    ("model=", "model=None must be a section with keys of its own"),
    ("seed=2024-01-01", "seed='2024-01-01' should be a valid integer"),
]
RANGES = [
    ("depth.min=0", "depth.min=0 should be greater than or equal to 1"),
    ("depth.min=-1", "depth.min=-1 should be greater than or equal to 1"),
    ("depth.min=9", "depth.min=9 exceeds depth.max=8: the range of depths is empty"),
    ("optim.lr=0", "optim.lr=0 should be greater than 0"),
    ("optim.lr=-1", "optim.lr=-1 should be greater than 0"),
    ("optim.lr=.inf", "optim.lr=inf should be a finite number"),
    ("optim.lr=.nan", "optim.lr=nan should be a finite number"),
    ("optim.grad_clip=-0.1", "optim.grad_clip=-0.1 should be greater than or equal to 0"),
    ("optim.betas=[0.9, 1.0]", "optim.betas.1=1.0 should be less than 1"),
    ("optim.min_lr_ratio=1.1", "optim.min_lr_ratio=1.1 should be less than or equal to 1"),
    ("model.dropout=1.0", "model.dropout=1.0 should be less than 1"),
    ("model.dropout=-0.1", "model.dropout=-0.1 should be greater than or equal to 0"),
    ("model.width=0", "model.width=0 should be greater than or equal to 1"),
    ("model.init.embedding_std=0", "model.init.embedding_std=0 should be greater than 0"),
    ("seed=-1", "seed=-1 should be greater than or equal to 0"),
    ("train.num_steps=0", "train.num_steps=0 should be greater than or equal to 1"),
    ("evaluate.every=-1", "evaluate.every=-1 should be greater than or equal to 0"),
    ("evaluate.depths=[0]", "evaluate.depths.0=0 should be greater than or equal to 1"),
    ("evaluate.depths=[4, 2]", "evaluate.depths=[4, 2] must be ascending, without repeats and not empty"),
    ("evaluate.depths=[4, 4]", "evaluate.depths=[4, 4] must be ascending, without repeats and not empty"),
    ("evaluate.depths=[]", "evaluate.depths=[] must be ascending, without repeats and not empty"),
    ("parallel.zero_stage=4", "parallel.zero_stage=4 should be 0, 1, 2 or 3"),
    ('parallel.zero_stage="2"', "parallel.zero_stage='2' should be 0, 1, 2 or 3"),
    ("precision=fp8", "precision='fp8' should be 'fp32', 'bf16_autocast' or 'bf16'"),
    ("parallel.recompute=each", "parallel.recompute='each' should be 'none', 'every_loop' or 'every_k_loops'"),
]
CONTRADICTIONS = [
    (
        "model.num_heads=5",
        "model.num_heads=5 does not divide model.width=384; choose one of [1, 2, 3, 4, 6, 8, 12, 16, "
        "24, 32, 48, 64, 96, 128, 192, 384]",
    ),
    ("model.width=5", "model.num_heads=6 does not divide model.width=5; choose one of [1, 5]"),
    ("depth.schedule=poisson", "depth.schedule=poisson needs depth.mean"),
    ("depth.schedule=curriculum", "depth.schedule=curriculum needs depth.curriculum_steps"),
    ("depth.mean=3", "depth.mean would be ignored: it belongs to depth.schedule=poisson, not uniform"),
    (
        "depth.curriculum_steps=3",
        "depth.curriculum_steps would be ignored: it belongs to depth.schedule=curriculum, not uniform",
    ),
    (
        "depth.schedule=fixed",
        "depth.schedule=fixed needs one depth, got depth.min=1 and depth.max=8; set both to the same number",
    ),
    ("optim.schedule=warmup_stable_decay", "optim.schedule=warmup_stable_decay needs optim.decay_steps"),
    (
        "optim.decay_steps=4",
        "optim.decay_steps would be ignored by optim.schedule=cosine; it belongs to warmup_stable_decay",
    ),
    (
        "optim={schedule: constant, min_lr_ratio: 0.1}",
        "optim.min_lr_ratio would be ignored by optim.schedule=constant; remove it",
    ),
    ("parallel.recompute=every_k_loops", "parallel.recompute=every_k_loops needs parallel.recompute_interval"),
    (
        "parallel.recompute_interval=2",
        "parallel.recompute_interval would be ignored by parallel.recompute=every_loop; it belongs to every_k_loops",
    ),
]
METHOD_FAULTS = [
    ("name: scsee", f"model.method.name='scsee' is unknown; did you mean scse? known: {METHODS}"),
    ("name: 3", f"model.method.name='3' is unknown; known: {METHODS}"),
    ("{}", "model.method needs a name, for example model.method.name=scse"),
    ("step_scale: 0.4", "model.method needs a name, for example model.method.name=scse"),
    ("name: scse, step_scale: 0", "model.method.step_scale=0 should be greater than 0"),
    ("name: scse, mask_eps: -1", "model.method.mask_eps=-1 should be greater than or equal to 0"),
    ("name: scse, step_scal: 1", "unknown key model.method.step_scal; did you mean model.method.step_scale?"),
    # a key of another method
    (
        "name: scse, gain: 1",
        "unknown key model.method.gain; valid for scse: name, step_scale, projection_scale, mask_eps",
    ),
    (
        "name: looped_baseline, mask_eps: 1",
        "unknown key model.method.mask_eps; valid for looped_baseline: name, step_scale, gain",
    ),
    (
        "name: looped_baseline, projection_scale: 1",
        "unknown key model.method.projection_scale; did you mean model.method.step_scale?",
    ),
    (
        "name: tuned_adapter, num_layers: 1",
        "unknown key model.method.num_layers; valid for tuned_adapter: step_scale, gain, projection_scale, name",
    ),
    ("name: unshared, step_scale: 1", "unknown key model.method.step_scale; valid for unshared: name, num_layers"),
]
NO_OVERRIDE = "is not an override; write section.key=value, for example train.num_steps=200"


def refusal(tmp_path: Path, *overrides: str) -> str:
    """What is said about an empty recipe with overrides, without the recipe's name."""
    recipe = tmp_path / "recipe.yaml"
    recipe.touch()
    with pytest.raises(UserError) as error:
        load_config(recipe, overrides)
    message = str(error.value)
    assert "\n" not in message
    return message.removeprefix(f"{recipe}: ")


@pytest.mark.parametrize(("override", "message"), UNKNOWN_KEYS + KINDS + RANGES + CONTRADICTIONS)
def test_a_mistake_is_named_with_its_key_and_value(tmp_path: Path, override: str, message: str):
    assert refusal(tmp_path, override) == message


@pytest.mark.parametrize(("method", "message"), METHOD_FAULTS)
def test_a_mistake_in_a_method_names_the_key_as_users_write_it(tmp_path: Path, method: str, message: str):
    settings = method if method == "{}" else f"{{{method}}}"
    assert refusal(tmp_path, f"model.method={settings}") == message


@pytest.mark.parametrize("text", ["foo", "=3", "a..b=3", ".a=3", "a.=3", "run.dir: x", ""])
def test_what_is_not_an_override_is_refused(tmp_path: Path, text: str):
    assert refusal(tmp_path, text) == f"{text!r} {NO_OVERRIDE}"


def test_a_value_that_is_not_yaml_is_refused(tmp_path: Path):
    assert refusal(tmp_path, "evaluate.depths=[1, 2").startswith("evaluate.depths='[1, 2' is not valid YAML: ")


def test_a_single_value_has_no_parts(tmp_path: Path):
    message = refusal(tmp_path, "model.width=64", "model.width.x=3")
    assert message == "model.width.x: model.width is a single value, it has no parts"


def test_unshared_with_another_depth_is_refused(tmp_path: Path):
    assert refusal(tmp_path, "model.method.name=unshared", "depth.max=4") == (
        "model.method.name=unshared trains at its own depth: set depth.schedule=fixed depth.min=4 depth.max=4 "
        "(or leave depth out)"
    )


def test_of_several_mistakes_the_first_is_told_and_the_others_are_counted(tmp_path: Path):
    message = refusal(tmp_path, "train.num_steps=0", "train.global_batch_size=0", "optim.lr=-1")
    assert message == "train.num_steps=0 should be greater than or equal to 1 (and 2 more)"


def test_a_mistake_in_the_recipe_names_the_recipe(tmp_path: Path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("optim: {lr: -1}\n")
    with pytest.raises(UserError) as error:
        load_config(recipe)
    assert str(error.value) == f"{recipe}: optim.lr=-1 should be greater than 0"
