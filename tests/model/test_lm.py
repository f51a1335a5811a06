"""The public interface: tying, what comes back, what is refused."""

import pytest
import torch

from scse_dist.model import build_model
from scse_dist.model.loss import IGNORE
from tests.model.models import LENGTH, METHODS, VOCAB_SIZE, gradients, random_tokens, small_model, small_section


@pytest.mark.parametrize("method", METHODS)
def test_embedding_and_readout_are_one_parameter(method: str):
    model = build_model(small_section(method))
    assert model.embedding.token is model.readout.token
    assert [name for name, _ in model.named_parameters() if name.endswith("token")] == ["embedding.token"]
    state = model.state_dict()
    assert state["embedding.token"].data_ptr() == state["readout.token"].data_ptr()


def test_the_tied_table_gets_the_gradients_of_both_its_uses():
    model, tokens_BL, labels_BL = small_model(), random_tokens(), random_tokens(seed=1)
    token = model.embedding.token
    model.train()
    together = torch.autograd.grad(model(tokens_BL, 3, labels_BL=labels_BL).loss_sum, token)[0]
    state_BLE = model.unroll(model.embedding(tokens_BL), (3,))
    state_BLE = state_BLE[0] + state_BLE[1]
    as_readout = torch.autograd.grad(model.readout(state_BLE.detach(), labels_BL).loss_sum, token)[0]
    frozen = torch.nn.Parameter(token.detach().clone(), requires_grad=False)
    model.readout.token = frozen
    as_embedding = torch.autograd.grad(model.readout(state_BLE, labels_BL).loss_sum, token)[0]
    assert min(as_readout.norm(), as_embedding.norm()) > 0.01 * together.norm()
    torch.testing.assert_close(together, as_readout + as_embedding, rtol=1e-10, atol=1e-12)


def test_logits_carry_the_same_gradients_as_the_loss():
    model, tokens_BL, labels_BL = small_model().train(), random_tokens(), random_tokens(seed=1)
    model(tokens_BL, 3, labels_BL=labels_BL).loss_sum.backward()
    from_loss = gradients(model)
    model.zero_grad()
    logits_BLV = model(tokens_BL, 3).logits_BLV
    torch.nn.functional.cross_entropy(logits_BLV.flatten(0, 1), labels_BL.flatten(), reduction="sum").backward()
    for ours, theirs in zip(gradients(model), from_loss, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_without_labels_there_are_logits_and_with_labels_there_are_none():
    model, tokens_BL = small_model(), random_tokens()
    logits_only = model(tokens_BL, 2)
    assert logits_only.logits_BLV.shape == (3, LENGTH, VOCAB_SIZE)
    assert logits_only[1:] == (None,) * 4
    training = model(tokens_BL, 2, labels_BL=tokens_BL)
    assert (training.logits_BLV, training.nll_BL, training.correct_BL) == (None, None, None)
    assert training.loss_sum.shape == training.num_tokens.shape == ()


def test_evaluation_gives_the_loss_of_each_label_and_their_sum():
    model, tokens_BL, labels_BL = small_model(), random_tokens(), random_tokens(seed=1)
    labels_BL[:, 0] = IGNORE
    trained = model(tokens_BL, 3, labels_BL=labels_BL)
    with torch.no_grad():
        output = model(tokens_BL, 3, labels_BL=labels_BL)
        logits_BLV = model(tokens_BL, 3).logits_BLV
    torch.testing.assert_close(output.loss_sum, trained.loss_sum.detach(), rtol=1e-12, atol=0)
    assert int(output.num_tokens) == int(trained.num_tokens) == 3 * (LENGTH - 1)
    picked_BL = logits_BLV.log_softmax(-1).gather(-1, labels_BL.clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(output.nll_BL, -picked_BL * (labels_BL != IGNORE), rtol=1e-10, atol=1e-12)
    assert torch.equal(output.correct_BL, logits_BLV.argmax(-1) == labels_BL)


@pytest.mark.parametrize("num_loops", [0, -1])
def test_no_loops_are_refused(num_loops: int):
    model = small_model()
    for call in (lambda: model(random_tokens(), num_loops), lambda: model.states(random_tokens(), num_loops)):
        with pytest.raises(ValueError, match=f"^num_loops={num_loops}: at least one loop is needed$"):
            call()


@pytest.mark.parametrize("depths", [(), (0, 1), (-1,), (2, 1), (1, 1)])
def test_readout_depths_must_ascend_from_one(depths: tuple[int, ...]):
    with pytest.raises(ValueError, match="must be positive, ascending and without repeats"):
        small_model()(random_tokens(), 4, readout_depths=depths)


def test_a_readout_depth_above_the_unroll_is_refused():
    with pytest.raises(ValueError, match="readout depth 5 lies above the unroll, num_loops=4"):
        small_model()(random_tokens(), 4, readout_depths=(1, 5))


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(ValueError, match=f"{LENGTH + 1} tokens do not fit model.num_positions={LENGTH}"):
        small_model()(random_tokens(2, LENGTH + 1), 1)
    assert small_model()(random_tokens(2, LENGTH - 3), 1).logits_BLV.shape == (2, LENGTH - 3, VOCAB_SIZE)
