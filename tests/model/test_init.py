"""Initial weights follow from shape, scales and seed, and from nothing else."""

import math

import pytest
import torch
from torch import Tensor

from scse_dist.config.schema import InitSection
from scse_dist.model import LoopedLM, build_model
from tests.model.models import METHODS, small_section


def built(seed: int = 0, method: str = "scse", scales: InitSection | None = None) -> LoopedLM:
    section = small_section(method, width=96)
    return build_model(section.model_copy(update={"init": scales or InitSection()}), seed)


def weights(model: LoopedLM) -> dict[str, Tensor]:
    return dict(model.named_parameters())


PROJECTIONS = [f"unroll.method.learned_anchor.{side}_projection.weight" for side in ("anchor", "initial")]
EMBEDDINGS = ["embedding.token", "embedding.position"]
BLOCK = [f"unroll.blocks.0.{m}.weight" for m in ("attention.qkv", "attention.out", "mlp.gate_up", "mlp.down")]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_weights_whatever_else_drew_numbers(method: str):
    first = weights(built(3, method))
    torch.manual_seed(11)
    torch.rand(100)
    second = weights(built(3, method))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = weights(built(4, method))
    assert not any(torch.equal(first[name], other[name]) for name in first if first[name].ndim == 2)


def test_building_a_model_draws_nothing_from_the_process():
    before = torch.get_rng_state()
    built()
    assert torch.equal(before, torch.get_rng_state())


def test_no_weight_is_left_unset_and_no_two_maps_are_alike():
    for method in METHODS:
        matrices = [p for p in built(method=method).parameters() if p.ndim == 2]
        assert all(torch.isfinite(m).all() and m.std() > 0 for m in matrices)
        squares = [m for m in matrices if m.shape == (96, 96)]
        assert all(not torch.equal(a, b) for i, a in enumerate(squares) for b in squares[:i])


def test_by_default_linear_maps_start_like_torch_linear_and_embeddings_with_0_1():
    model = weights(built())
    for name in [*BLOCK, *PROJECTIONS]:
        bound = 1 / math.sqrt(model[name].shape[1])
        assert bound * 0.99 < model[name].abs().max() <= bound
        assert model[name].std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    for name in EMBEDDINGS:
        assert model[name].std().item() == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    ("key", "names"),
    [("embedding_std", EMBEDDINGS), ("linear_std", BLOCK), ("projection_std", PROJECTIONS)],
)
def test_a_scale_moves_its_own_weights_and_no_others(key: str, names: list[str]):
    before, after = weights(built()), weights(built(scales=InitSection.model_validate({key: 0.02})))
    assert {name for name in after if not _same_spread(before[name], after[name])} == set(names)
    for name in names:
        assert after[name].std().item() == pytest.approx(0.02, rel=0.1)


def test_the_source_map_follows_the_linear_maps():
    for method in ("looped_baseline", "tuned_adapter"):
        source = weights(built(method=method, scales=InitSection(linear_std=0.02)))["unroll.method.source_map.weight"]
        assert source.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_gains_start_at_one_and_the_injected_source_at_its_setting(method: str):
    for name, parameter in built(method=method).named_parameters():
        if name == "unroll.method.gain":
            assert parameter.tolist() == [pytest.approx(METHODS[method].model_dump()["gain"])]
        elif parameter.ndim == 1:
            assert torch.equal(parameter, torch.ones_like(parameter))


def _same_spread(before: Tensor, after: Tensor) -> bool:
    return before.ndim == 1 or abs((after.std() / before.std()).item() - 1) < 0.2
