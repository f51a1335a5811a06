"""Every method's unroll against the paper's formulas, written down a second time."""

from functools import partial

import pytest
import torch

from scse_dist.model.loss import IGNORE
from tests.model import formulas
from tests.model.models import METHODS, formula_of, random_tokens, small_model, small_section
from tests.model.names import to_formula

assert_equal = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_the_unroll_equals_the_formula_at_every_depth(method: str):
    model, tokens_BL = small_model(method), random_tokens()
    weights = to_formula(model.state_dict())
    anchor, states = formulas.states(formula_of(small_section(method)), weights, tokens_BL, 12)
    assert not torch.allclose(states[0], states[1], rtol=0.1)
    for num_loops in range(1, 13):
        trajectory = model.states(tokens_BL, num_loops)
        assert_equal(trajectory.anchor_BLE, anchor)
        assert len(trajectory.deviations) == num_loops + 1
        for deviation_BLE, state in zip(trajectory.deviations, states, strict=False):
            assert_equal(deviation_BLE, state - anchor)


@pytest.mark.parametrize("method", METHODS)
def test_logits_and_loss_equal_the_formula(method: str):
    model, tokens_BL, labels_BL = small_model(method), random_tokens(), random_tokens(seed=1)
    labels_BL[0, :4] = IGNORE
    weights = to_formula(model.state_dict())
    for num_loops in (1, 2, 7, 12):
        _, states = formulas.states(formula_of(small_section(method)), weights, tokens_BL, num_loops)
        logits = formulas.logits(weights, states[-1])
        assert_equal(model(tokens_BL, num_loops).logits_BLV, logits)
        expected, num_tokens = formulas.loss_sum(logits, labels_BL)
        output = model(tokens_BL, num_loops, labels_BL=labels_BL)
        assert_equal(output.loss_sum, expected)
        assert int(output.num_tokens) == num_tokens == labels_BL.numel() - 4


@pytest.mark.parametrize("method", METHODS)
def test_attention_looks_back_only(method: str):
    model, tokens_BL = small_model(method), random_tokens()
    changed_BL = tokens_BL.clone()
    changed_BL[:, 6:] = (changed_BL[:, 6:] + 1) % 50
    before, after = (model(ids, 4).logits_BLV for ids in (tokens_BL, changed_BL))
    assert_equal(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_the_block_maps_zero_to_zero_exactly():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        block = small_model().to(dtype).unroll.blocks[0]
        zero_BLE = torch.zeros(2, 7, 24, dtype=torch.promote_types(dtype, torch.float32))
        assert torch.equal(block(zero_BLE), torch.zeros_like(block(zero_BLE)))


def test_the_unshared_state_stops_at_its_last_layer():
    model, tokens_BL = small_model("unshared"), random_tokens()
    deviations = model.states(tokens_BL, 8).deviations
    assert not torch.equal(deviations[5], deviations[4])
    assert all(torch.equal(d, deviations[5]) for d in deviations[6:])
