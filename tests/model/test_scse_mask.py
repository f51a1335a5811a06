"""The mask of Eq. 4: per example, over its whole length, and exactly no step at zero deviation."""

import torch
from torch import Tensor

from scse_dist.config.methods import ScseConfig
from scse_dist.model import LoopedLM
from scse_dist.model.methods import Context, build_method
from tests.model.models import random_tokens, small_model

EPS = ScseConfig().mask_eps


def rollout(model: LoopedLM, deviation_BLE: Tensor, num_loops: int) -> list[Tensor]:
    """D_0 ... D_T from a given D_0."""
    context = Context(torch.randn_like(deviation_BLE), deviation_BLE)
    deviations = [deviation_BLE]
    for step in range(num_loops):
        deviations.append(model.unroll.method.transition(deviations[-1], context, step, model.unroll.blocks[0]))
    return deviations


def random_deviation(batch: int = 4, length: int = 8) -> Tensor:
    return torch.randn(batch, length, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def test_zero_deviation_stays_zero_at_every_step():
    model = small_model()
    for deviation_BLE in rollout(model, torch.zeros(3, 8, 24, dtype=torch.float64), 48):
        assert torch.count_nonzero(deviation_BLE) == 0


def test_equal_projections_freeze_the_loop_at_the_anchor():
    model, tokens_BL = small_model(), random_tokens()
    weights = dict(model.named_parameters())
    for side in ("initial", "anchor"):
        torch.nn.init.eye_(weights[f"unroll.method.learned_anchor.{side}_projection.weight"])
    anchor_BLE, deviations = model.states(tokens_BL, 12)
    assert anchor_BLE.abs().max() > 0
    assert all(torch.count_nonzero(deviation_BLE) == 0 for deviation_BLE in deviations)
    outputs = model(tokens_BL, 12, readout_depths=(1, 5, 12))
    assert torch.equal(outputs[0].logits_BLV, outputs[2].logits_BLV)


def test_one_still_example_stays_put_and_changes_no_other():
    model, deviation_BLE = small_model(), random_deviation()
    mixed_BLE = deviation_BLE.clone()
    mixed_BLE[2] = 0
    others = [0, 1, 3]
    for without, with_still in zip(rollout(model, deviation_BLE, 6), rollout(model, mixed_BLE, 6), strict=True):
        assert torch.count_nonzero(with_still[2]) == 0
        assert torch.equal(without[others], with_still[others])
        assert torch.count_nonzero(without[2]) > 0


def test_a_still_example_is_stopped_by_the_mask_and_not_by_the_block():
    """Below eps the block would move it: only the mask keeps it where it is."""
    model, deviation_BLE = small_model(), random_deviation()
    deviation_BLE[1] *= (0.5 * EPS / deviation_BLE[1].square().sum()).sqrt()
    assert model.unroll.blocks[0](deviation_BLE)[1].abs().max() > 1e-4
    after_BLE = rollout(model, deviation_BLE, 3)[-1]
    assert torch.equal(after_BLE[1], deviation_BLE[1])
    assert (after_BLE - deviation_BLE).abs().amax((1, 2))[[0, 2, 3]].min() > 0


def test_the_norm_is_taken_over_length_and_channels_and_eps_itself_is_still():
    model = small_model()
    deviation_BLE = torch.zeros(3, 8, 24, dtype=torch.float64)
    deviation_BLE[0] = (1.02 * EPS / (8 * 24)) ** 0.5  # no position of it exceeds eps alone
    deviation_BLE[1] = (0.98 * EPS / (8 * 24)) ** 0.5
    deviation_BLE[2, 0, 0] = EPS**0.5
    assert model.unroll.method.active_B(deviation_BLE).tolist() == [True, False, EPS**0.5 * EPS**0.5 > EPS]


def test_one_moving_position_moves_the_whole_example():
    """A mask per position would hold the other positions back."""
    model = small_model()
    deviation_BLE = torch.zeros(1, 8, 24, dtype=torch.float64)
    deviation_BLE[0, 2] = 1.0
    after_BLE = rollout(model, deviation_BLE, 1)[-1]
    moved_L = (after_BLE - deviation_BLE)[0].abs().amax(-1) > 0
    assert moved_L.tolist() == [False, False, True, True, True, True, True, True]  # attention is causal


def test_the_norm_of_a_bf16_deviation_is_taken_in_fp32():
    """Squares of 2^-40 that add up to 1.0003 eps, which bf16 cannot tell from eps."""
    method = build_method(24, ScseConfig())
    deviation_BLE = torch.full((1, 10999, 1), 2.0**-20, dtype=torch.bfloat16)
    assert EPS < 10999 * 2.0**-40 < 1.001 * EPS
    assert method.active_B(deviation_BLE).tolist() == [True]


def test_only_scse_masks():
    still_BLE = torch.zeros(2, 4, 24)
    for name in ("looped_baseline", "tuned_adapter", "capacity_matched_adapter", "unshared"):
        assert small_model(name).unroll.method.active_B(still_BLE).all()
