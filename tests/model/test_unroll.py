"""One unroll serves all depths and every recomputation policy."""

import pytest
import torch

from scse_dist.model.loss import IGNORE
from tests.model.models import METHODS, gradients, random_tokens, small_model


def train_once(method: str, dropout: float, loops_per_segment: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model = small_model(method, dropout=dropout).float().train()
    model.unroll.loops_per_segment = loops_per_segment
    torch.manual_seed(5)
    loss = model(random_tokens(), 7, labels_BL=random_tokens(seed=1)).loss_sum
    loss.backward()
    return loss.detach(), gradients(model)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("method", METHODS)
def test_recomputation_changes_no_bit_of_loss_and_gradients(method: str, dropout: float):
    loss, expected = train_once(method, dropout, 0)
    for loops_per_segment in (1, 2, 3, 7, 50):
        again, recomputed = train_once(method, dropout, loops_per_segment)
        assert torch.equal(again, loss)
        assert all(torch.equal(a, b) for a, b in zip(recomputed, expected, strict=True))


def test_dropout_acts_in_training_only():
    model, tokens_BL = small_model(dropout=0.3), random_tokens()
    assert torch.equal(model(tokens_BL, 3).logits_BLV, model(tokens_BL, 3).logits_BLV)
    model.train()
    assert not torch.allclose(model(tokens_BL, 3).logits_BLV, model(tokens_BL, 3).logits_BLV)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loops_per_segment", [1, 2, 4, 50])
def test_recomputation_runs_each_loop_once_more_and_no_oftener(method: str, loops_per_segment: int):
    """The first segment too, although its deviation may need no gradient (a method that starts at its anchor)."""
    model, calls = small_model(method).train(), []
    model.unroll.loops_per_segment = loops_per_segment
    for block in model.unroll.blocks:
        block.register_forward_pre_hook(lambda *_: calls.append(0))
    loss = model(random_tokens(), 5, labels_BL=random_tokens(seed=1)).loss_sum
    assert len(calls) == 5
    loss.backward()
    assert len(calls) == 10


def test_an_evaluation_recomputes_nothing_and_keeps_nothing():
    model, calls = small_model(), []
    model.unroll.loops_per_segment = 2
    model.unroll.blocks[0].register_forward_pre_hook(lambda *_: calls.append(0))
    with torch.no_grad():
        assert model(random_tokens(), 5, labels_BL=random_tokens(seed=1)).loss_sum.grad_fn is None
    assert len(calls) == 5


def test_recomputation_keeps_one_state_a_segment_instead_of_every_activation():
    saved = {}
    for loops_per_segment in (0, 1, 4):
        model = small_model().train()
        model.unroll.loops_per_segment = loops_per_segment
        sizes = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(random_tokens(), 8, labels_BL=random_tokens(seed=1))
        saved[loops_per_segment] = sum(sizes)
    assert saved[4] < saved[1] < saved[0] / 2


@pytest.mark.parametrize("method", METHODS)
def test_one_unroll_to_48_equals_48_separate_evaluations(method: str):
    model, tokens_BL, labels_BL = small_model(method), random_tokens(), random_tokens(seed=1)
    labels_BL[1, 3:] = IGNORE
    depths = tuple(range(1, 49))
    with torch.no_grad():
        together = model(tokens_BL, 48, labels_BL=labels_BL, readout_depths=depths)
        assert len(together) == 48
        for depth, output in zip(depths, together, strict=True):
            alone = model(tokens_BL, depth, labels_BL=labels_BL)
            assert (output.logits_BLV, alone.logits_BLV) == (None, None)
            assert all(torch.equal(a, b) for a, b in zip(output[1:], alone[1:], strict=True))


def test_readout_depths_may_skip_and_stop_short_of_the_unroll():
    model, tokens_BL = small_model(), random_tokens()
    skipping = model(tokens_BL, 9, readout_depths=(2, 5))
    for depth, output in zip((2, 5), skipping, strict=True):
        assert torch.equal(output.logits_BLV, model(tokens_BL, depth).logits_BLV)


def test_training_reads_out_several_depths_with_gradients_of_all():
    model, tokens_BL, labels_BL = small_model().train(), random_tokens(), random_tokens(seed=1)
    model.unroll.loops_per_segment = 2
    outputs = model(tokens_BL, 5, labels_BL=labels_BL, readout_depths=(1, 4, 5))
    torch.stack([output.loss_sum for output in outputs]).sum().backward()
    together = gradients(model)
    model.zero_grad()
    for depth in (1, 4, 5):
        model(tokens_BL, depth, labels_BL=labels_BL).loss_sum.backward()
    for ours, apart in zip(together, gradients(model), strict=True):
        torch.testing.assert_close(ours, apart, rtol=1e-10, atol=1e-12)


def test_states_include_d0_in_training_and_in_evaluation():
    model, tokens_BL = small_model(), random_tokens()
    for loops_per_segment in (0, 1, 3):
        model.unroll.loops_per_segment = loops_per_segment
        evaluated = model.eval().states(tokens_BL, 5).deviations
        trained = model.train().states(tokens_BL, 5).deviations
        assert len(evaluated) == len(trained) == 6
        assert all(torch.equal(a, b) for a, b in zip(evaluated, trained, strict=True))
