"""How far a cell is from the reference. All figures are relative, and 1e-5 is what fp32 has to hold.

Adam divides a gradient by its own size, so that an element whose gradient is about 0 turns rounding into steps of full
length. The task's ``optim.eps`` of 1e-5 damps those; weights are compared in each tensor by the norm of the difference
over the norm, and by the largest difference over the largest weight.
"""

from typing import NamedTuple

from torch import Tensor

from tests.conformance.cases import Outcome
from tests.conformance.reference import History
from tests.model.names import to_product

TOLERANCE = 1e-5


class Deviation(NamedTuple):
    """The largest over all steps, or over all tensors."""

    loss: float
    grad_norm: float
    weights: float
    largest_weight: float


def deviation(outcome: Outcome, history: History) -> Deviation:
    expected = to_product(history.weights, list(outcome.weights))
    pairs = [(tensor.double(), expected[name].double()) for name, tensor in outcome.weights.items()]
    return Deviation(
        loss=_largest_relative(outcome.losses, history.losses),
        grad_norm=_largest_relative(outcome.grad_norms, history.grad_norms),
        weights=max(_norm(ours - exact) / _norm(exact) for ours, exact in pairs),
        largest_weight=max(_maximum(ours - exact) / _maximum(exact) for ours, exact in pairs),
    )


def _largest_relative(ours: list[float], exact: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, exact, strict=True))


def _norm(x: Tensor) -> float:
    return x.norm().item()


def _maximum(x: Tensor) -> float:
    return x.abs().max().item()
