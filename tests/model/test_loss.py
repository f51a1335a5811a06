"""The chunked loss is cross-entropy, in value and in gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scse_dist.model import loss
from scse_dist.model.loss import IGNORE, loss_sum, score

NUM_TOKENS, WIDTH, VOCAB = 23, 12, 31


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden_NE = torch.randn(NUM_TOKENS, WIDTH, dtype=dtype, generator=generator).requires_grad_()
    weight_VE = torch.randn(VOCAB, WIDTH, dtype=dtype, generator=generator).requires_grad_()
    labels_N = torch.randint(0, VOCAB, (NUM_TOKENS,), generator=generator)
    labels_N[::5] = IGNORE
    return hidden_NE, weight_VE, labels_N


def cross_entropy(hidden_NE: Tensor, weight_VE: Tensor, labels_N: Tensor) -> Tensor:
    return F.cross_entropy(hidden_NE @ weight_VE.T, labels_N, ignore_index=IGNORE, reduction="sum")


@pytest.mark.parametrize("tokens_in_chunk", [1, 2, 5, 22, 23, 24, 10_000])
def test_value_and_gradients_equal_cross_entropy_for_any_chunk(tokens_in_chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", tokens_in_chunk * VOCAB)
    hidden_NE, weight_VE, labels_N = example()
    total = loss_sum(hidden_NE, weight_VE, labels_N)
    gradients = torch.autograd.grad(total * 0.7, (hidden_NE, weight_VE))
    expected = cross_entropy(hidden_NE, weight_VE, labels_N)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected * 0.7, (hidden_NE, weight_VE)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_no_more_logits_at_once_than_a_chunk_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", 4 * VOCAB)
    sizes = []
    plain = F.linear

    def counted(x: Tensor, weight: Tensor) -> Tensor:
        logits = plain(x, weight)
        sizes.append(logits.numel())
        return logits

    monkeypatch.setattr(loss.F, "linear", counted)
    loss_sum(*example())
    assert sizes == [4 * VOCAB] * 5 + [3 * VOCAB]


def test_a_vocabulary_larger_than_a_chunk_takes_one_token_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", VOCAB // 2)
    torch.testing.assert_close(loss_sum(*example()), cross_entropy(*example()), rtol=1e-12, atol=0)


def test_without_labels_the_loss_and_its_gradients_are_zero():
    hidden_NE, weight_VE, labels_N = example()
    total = loss_sum(hidden_NE, weight_VE, torch.full_like(labels_N, IGNORE))
    assert total.item() == 0
    assert all(torch.count_nonzero(g) == 0 for g in torch.autograd.grad(total, (hidden_NE, weight_VE)))


@pytest.mark.parametrize("wanted", ["hidden", "weight"])
def test_only_one_side_may_need_a_gradient(wanted: str):
    hidden_NE, weight_VE, labels_N = example()
    needed, other = (hidden_NE, weight_VE) if wanted == "hidden" else (weight_VE, hidden_NE)
    other.requires_grad_(False)
    gradient = torch.autograd.grad(loss_sum(hidden_NE, weight_VE, labels_N), needed)[0]
    expected = torch.autograd.grad(cross_entropy(hidden_NE, weight_VE, labels_N), needed)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_under_bf16_autocast_the_value_is_fp32_and_near(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", 5 * VOCAB)
    hidden_NE, weight_VE, labels_N = example(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        total = loss_sum(hidden_NE, weight_VE, labels_N)
    gradients = torch.autograd.grad(total, (hidden_NE, weight_VE))
    expected = cross_entropy(hidden_NE, weight_VE, labels_N)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=5e-3, atol=0)
    assert total.item() != expected.item()  # it was computed in bf16
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, (hidden_NE, weight_VE)), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


def test_bf16_weights_give_an_fp32_loss_and_gradients_of_their_own_kind():
    hidden_NE, weight_VE, labels_N = example(torch.float32)
    half_VE = weight_VE.detach().bfloat16().requires_grad_()
    total = loss_sum(hidden_NE, half_VE, labels_N)
    kinds = [gradient.dtype for gradient in torch.autograd.grad(total, (hidden_NE, half_VE))]
    assert (total.dtype, *kinds) == (torch.float32, torch.float32, torch.bfloat16)
    torch.testing.assert_close(total, cross_entropy(hidden_NE, weight_VE, labels_N), rtol=5e-3, atol=0)


def test_scores_are_per_label_and_name_the_likeliest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loss, "MAX_LOGITS", 5 * VOCAB)
    hidden_NE, weight_VE, labels_N = example()
    logits_NV = (hidden_NE @ weight_VE.T).detach()
    labels_N[1] = logits_NV[1].argmax()
    labels_N[2] = logits_NV[2].argmin()
    with torch.no_grad():
        nll_N, correct_N = score(hidden_NE, weight_VE, labels_N)
    expected_N = F.cross_entropy(logits_NV, labels_N, ignore_index=IGNORE, reduction="none")
    torch.testing.assert_close(nll_N, expected_N, rtol=1e-12, atol=0)
    assert torch.count_nonzero(nll_N[::5]) == 0
    assert torch.equal(correct_N, logits_NV.argmax(-1) == labels_N)
    assert correct_N[1] and not correct_N[2] and not correct_N[0]
