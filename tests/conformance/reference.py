"""What every engine has to equal: plain training in one process and fp64, from the formulas, without autograd tricks.

Imports nothing of the project. One model, one batch a step, a mean over its scored tokens, a clip by the global norm,
AdamW by hand (Loshchilov and Hutter 2019, decoupled decay scaled by the rate).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.model.formulas import Formula, Weights, logits, loss_sum, states

NOT_DECAYED = ("token", "position", "final", "norm1", "norm2", "a")
"""Embeddings, gains and the scalar; everything else is a matrix."""


@dataclass(frozen=True)
class Optimizer:
    lr_by_step: tuple[float, ...]
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    grad_clip: float


@dataclass
class History:
    """One entry a step, and the weights at the end."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)


def train(
    formula: Formula,
    initial: Weights,
    optimizer: Optimizer,
    batches: list[tuple[Tensor, Tensor]],
    num_loops_by_step: tuple[int, ...],
) -> History:
    """Trains on global batches of inputs and labels [B, L], one a step."""
    history = History()
    w = {name: tensor.double().clone().requires_grad_() for name, tensor in initial.items()}
    first = {name: torch.zeros_like(tensor) for name, tensor in w.items()}
    second = {name: torch.zeros_like(tensor) for name, tensor in w.items()}
    for step, (inputs_BL, labels_BL) in enumerate(batches):
        _, trajectory = states(formula, w, inputs_BL, num_loops_by_step[step])
        total, num_tokens = loss_sum(logits(w, trajectory[-1]), labels_BL)
        loss = total / num_tokens
        gradients = dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))
        norm = torch.stack([g.pow(2).sum() for g in gradients.values()]).sum().sqrt().item()
        factor = min(1.0, optimizer.grad_clip / norm)
        for name, tensor in w.items():
            moments = first[name], second[name]
            w[name] = _adamw(optimizer, name, tensor.detach(), factor * gradients[name], moments, step).requires_grad_()
        history.losses.append(loss.item())
        history.grad_norms.append(norm)
    history.weights = {name: tensor.detach() for name, tensor in w.items()}
    return history


def _adamw(
    optimizer: Optimizer, name: str, w: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], step: int
) -> Tensor:
    lr, (beta1, beta2) = optimizer.lr_by_step[step], optimizer.betas
    first, second = moments
    first.copy_(beta1 * first + (1 - beta1) * gradient)
    second.copy_(beta2 * second + (1 - beta2) * gradient**2)
    decay = 0.0 if name.rpartition(".")[2] in NOT_DECAYED else optimizer.weight_decay
    unbiased_first, unbiased_second = first / (1 - beta1 ** (step + 1)), second / (1 - beta2 ** (step + 1))
    return w - lr * decay * w - lr * unbiased_first / (unbiased_second.sqrt() + optimizer.eps)
