"""Next-token loss from hidden states, in chunks: never more logits at once than one chunk of tokens has.

The gradients of a chunk are formed while its logits exist, so that nothing is recomputed and nothing of size
tokens x vocabulary is kept for the backward pass.

Shapes: N tokens (B*L flattened), C tokens of a chunk, E width, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORE = -100
"""Label of a position that is not scored."""
MAX_LOGITS = 2**22
"""Numbers of the logits of one chunk: 16 MiB in fp32."""


def loss_sum(hidden_NE: Tensor, weight_VE: Tensor, labels_N: Tensor) -> Tensor:
    """Sum of the negative log-likelihoods (nats) of all labels other than ``IGNORE``; differentiable, fp32 or more."""
    return _ChunkedLoss.apply(hidden_NE, weight_VE, labels_N)


def score(hidden_NE: Tensor, weight_VE: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of each label (0 where ignored), and whether the label is the likeliest token."""
    nll_N = torch.empty(labels_N.shape, dtype=_accumulator(hidden_NE), device=hidden_NE.device)
    correct_N = torch.empty(labels_N.shape, dtype=torch.bool, device=hidden_NE.device)
    for part in _chunks(labels_N.numel(), weight_VE.shape[0]):
        logits_CV = _logits(hidden_NE[part], weight_VE)
        nll_N[part] = F.cross_entropy(logits_CV, labels_N[part], ignore_index=IGNORE, reduction="none")
        correct_N[part] = logits_CV.argmax(-1) == labels_N[part]
    return nll_N, correct_N


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NE: Tensor, weight_VE: Tensor, labels_N: Tensor) -> Tensor:
        accumulator = _accumulator(hidden_NE)
        total = torch.zeros((), dtype=accumulator, device=hidden_NE.device)
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        grad_hidden_NE = torch.empty_like(hidden_NE) if need_hidden else None
        grad_weight_VE = torch.zeros_like(weight_VE, dtype=accumulator) if need_weight else None
        for part in _chunks(labels_N.numel(), weight_VE.shape[0]):
            hidden_CE, labels_C = hidden_NE[part], labels_N[part]
            scored_C = labels_C != IGNORE
            log_probs_CV = _logits(hidden_CE, weight_VE).log_softmax(-1)
            picked_C1 = labels_C.clamp(min=0)[:, None]
            total -= log_probs_CV.gather(-1, picked_C1).squeeze(-1).where(scored_C, 0.0).sum()
            if not (need_hidden or need_weight):
                continue
            grad_CV = log_probs_CV.exp_()
            grad_CV.scatter_add_(-1, picked_C1, grad_CV.new_full((1, 1), -1.0).expand_as(picked_C1))
            grad_CV = grad_CV.mul_(scored_C[:, None]).to(_compute_dtype(hidden_CE, weight_VE))
            if grad_hidden_NE is not None:
                grad_hidden_NE[part] = grad_CV @ weight_VE.to(grad_CV.dtype)
            if grad_weight_VE is not None:
                grad_weight_VE += grad_CV.T @ hidden_CE.to(grad_CV.dtype)
        ctx.grads = grad_hidden_NE, None if grad_weight_VE is None else grad_weight_VE.to(weight_VE.dtype)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (scale,) = grad_outputs
        grad_hidden_NE, grad_weight_VE = (None if g is None else g * scale.to(g.dtype) for g in ctx.grads)
        return grad_hidden_NE, grad_weight_VE, None


def _chunks(num_tokens: int, vocab_size: int) -> Iterator[slice]:
    length = max(1, MAX_LOGITS // vocab_size)
    return (slice(start, min(start + length, num_tokens)) for start in range(0, num_tokens, length))


def _logits(hidden_CE: Tensor, weight_VE: Tensor) -> Tensor:
    dtype = _compute_dtype(hidden_CE, weight_VE)
    with torch.autocast(hidden_CE.device.type, enabled=False):
        return F.linear(hidden_CE.to(dtype), weight_VE.to(dtype)).to(_accumulator(hidden_CE))


def _compute_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """Precision of the matrix products: autocast's where it is on, else the weight's."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def _accumulator(hidden: Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)
