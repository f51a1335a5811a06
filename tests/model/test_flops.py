"""Parameter and operation counts, against the paper's figures (section 4) and against what is built."""

import pytest

from scse_dist.config.methods import ScseConfig, UnsharedConfig
from scse_dist.config.schema import ModelSection
from scse_dist.model import build_model
from scse_dist.model.flops import forward_flops_per_token, num_body_steps, num_parameters, training_flops_per_token
from tests.model.models import METHODS, small_section

PUBLISHED = {"22M": (384, 6), "50M": (768, 12), "95.6M": (1280, 20), "136.5M": (1664, 26)}


def published(name: str, method: str = "scse") -> ModelSection:
    width, num_heads = PUBLISHED[name]
    return ModelSection(
        width=width, num_heads=num_heads, vocab_size=50257, num_positions=128, method=type(METHODS[method])()
    )


@pytest.mark.parametrize(
    ("name", "millions", "count"),
    [
        ("22M", 22.15, 22_150_656),
        ("50M", 49.9, 49_904_640),
        ("95.6M", 95.6, 95_626_240),
        ("136.5M", 136.45, 136_454_656),
    ],
)
def test_the_published_sizes_come_out_with_three_maps_each(name: str, millions: float, count: int):
    for method in ("scse", "capacity_matched_adapter", "tuned_adapter"):
        assert num_parameters(published(name, method), as_published=True) == count
    assert count / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    ("name", "scse", "adapter", "baseline"),
    [
        ("22M", 22_003_200, 22_150_657, 21_855_745),
        ("50M", 49_314_816, 49_904_641, 48_724_993),
        ("95.6M", 93_987_840, 95_626_241, 92_349_441),
        ("136.5M", 133_685_760, 136_454_657, 130_916_865),
    ],
)
def test_the_sizes_without_the_maps_a_method_does_not_use(name: str, scse: int, adapter: int, baseline: int):
    assert num_parameters(published(name)) == scse
    assert num_parameters(published(name, "tuned_adapter")) == adapter
    assert num_parameters(published(name, "capacity_matched_adapter")) == adapter
    assert num_parameters(published(name, "looped_baseline")) == baseline
    width = PUBLISHED[name][0]
    assert num_parameters(published(name), as_published=True) - scse == width * width


@pytest.mark.parametrize(("width", "num_heads", "layers", "millions"), [(320, 5, 4, 22.7), (288, 6, 6, 22.5)])
def test_the_unshared_references_have_the_published_sizes(width: int, num_heads: int, layers: int, millions: float):
    method = UnsharedConfig(num_layers=layers)
    section = ModelSection(width=width, num_heads=num_heads, vocab_size=50257, num_positions=128, method=method)
    assert round(num_parameters(section) / 1e6, 1) == millions


@pytest.mark.parametrize("method", METHODS)
def test_the_count_equals_the_built_model(method: str):
    section = small_section(method)
    built = sum(parameter.numel() for parameter in build_model(section).parameters())
    assert num_parameters(section) == built


def test_the_operations_of_the_paper():
    assert forward_flops_per_token(published("22M"), 8, 128) / 1e6 == pytest.approx(77.9, abs=0.05)
    head = 2 * 384 * 50257
    assert (forward_flops_per_token(published("22M"), 8, 128) - head) / 1e6 == pytest.approx(39.3, abs=0.05)
    assert forward_flops_per_token(published("95.6M"), 8, 128) / 1e6 == pytest.approx(553.3, abs=0.05)


def test_operations_grow_with_depth_until_the_last_layer_of_an_unshared_model():
    looped, unshared = small_section("scse"), small_section("unshared")
    step = 8 * 24**2 + 6 * 24 * 40 + 4 * 10 * 24
    head = 2 * 24 * 50
    assert [forward_flops_per_token(looped, t, 10) for t in (1, 4.5, 48)] == [
        step + head,
        4.5 * step + head,
        48 * step + head,
    ]
    assert [num_body_steps(unshared, t) for t in (1, 5, 6, 48)] == [1, 5, 5, 5]
    assert forward_flops_per_token(unshared, 48, 10) == forward_flops_per_token(unshared, 5, 10) == 5 * step + head
    assert training_flops_per_token(looped, 3, 10) == 3 * forward_flops_per_token(looped, 3, 10)


def test_a_default_feed_forward_width_is_four_times_the_width():
    section = ModelSection(width=32, num_heads=4, vocab_size=50, num_positions=8, method=ScseConfig())
    assert num_parameters(section) == sum(p.numel() for p in build_model(section).parameters())
    assert build_model(section).state_dict()["unroll.blocks.0.mlp.down.weight"].shape == (32, 128)
