"""The formulas of the SCSE paper (sections 2 to 4), written down plainly and with nothing but torch.

They share no code with the product: states h_t instead of deviations, one head and one example after the other,
softmax and norms by hand. Weights come as a dictionary:

    token [V, E]  position [L, E]  gain of the last norm: final [E]
    A, I, W [E, E]  a []           the methods' own maps and the scalar gain, where a method has them
    n.norm1, n.norm2 [E]  n.q, n.k, n.v, n.o [E, E]  n.gate, n.up [F, E]  n.down [E, F]   block number n

Shapes: B batch, L length, E width, F hidden channels, K channels of a head, V vocabulary.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Formula:
    """A method with its numbers."""

    method: str
    num_heads: int
    step_scale: float = 0.5
    """s"""
    projection_scale: float = 0.1
    mask_eps: float = 1e-8
    num_layers: int = 1
    """Different blocks of the unshared reference."""


def states(formula: Formula, w: Weights, tokens_BL: Tensor, num_loops: int) -> tuple[Tensor, list[Tensor]]:
    """The anchor h* and h_0 ... h_T."""
    e = w["token"][tokens_BL] + w["position"][: tokens_BL.shape[1]]
    c, s = formula.projection_scale, formula.step_scale

    match formula.method:
        case "scse":
            anchor, h = e + c * (e @ w["A"].T), e + c * (e @ w["I"].T)
        case "looped_baseline" | "unshared":
            anchor, h = e, e
        case _:
            anchor, h = e + c * (e @ w["A"].T), e + c * (e @ w["I"].T)

    trajectory = [h]
    for t in range(num_loops):
        match formula.method:
            case "scse":
                moved = [_scse_step(formula, w, h[b] - anchor[b], s) for b in range(len(h))]
                h = anchor + torch.stack(moved)
            case "looped_baseline":
                h = h + s * block(formula, w, 0, h + w["a"] * (e @ w["W"].T))
            case "capacity_matched_adapter" | "tuned_adapter":
                h = h + s * block(formula, w, 0, h + w["a"] * (anchor @ w["W"].T))
            case "unshared":
                h = h + block(formula, w, t, h) if t < formula.num_layers else h
        trajectory.append(h)
    return anchor, trajectory


def _scse_step(formula: Formula, w: Weights, deviation_LE: Tensor, s: float) -> Tensor:
    """Eq. 3-5 for one example."""
    mask = 1.0 if deviation_LE.pow(2).sum().item() > formula.mask_eps else 0.0
    return deviation_LE + mask * s * block(formula, w, 0, deviation_LE[None])[0]


def logits(w: Weights, state_BLE: Tensor) -> Tensor:
    """The tied readout of RMSNorm(h_T)."""
    return rms_norm(state_BLE, w["final"]) @ w["token"].T


def loss_sum(logits_BLV: Tensor, labels_BL: Tensor) -> tuple[Tensor, int]:
    """Nats over all labels but -100, and how many those are."""
    log_probs_BLV = logits_BLV - logits_BLV.logsumexp(-1, keepdim=True)
    scored = [(b, i) for b in range(len(labels_BL)) for i in range(labels_BL.shape[1]) if labels_BL[b, i] != -100]
    return -torch.stack([log_probs_BLV[b, i, labels_BL[b, i]] for b, i in scored]).sum(), len(scored)


def block(formula: Formula, w: Weights, n: int, x_BLE: Tensor) -> Tensor:
    """Attention, then SwiGLU over input plus attention; the update alone, no identity path."""
    attended = attention(formula, w, n, rms_norm(x_BLE, w[f"{n}.norm1"]))
    inner = rms_norm(x_BLE + attended, w[f"{n}.norm2"])
    gate = inner @ w[f"{n}.gate"].T
    return attended + (gate / (1 + torch.exp(-gate)) * (inner @ w[f"{n}.up"].T)) @ w[f"{n}.down"].T


def attention(formula: Formula, w: Weights, n: int, x_BLE: Tensor) -> Tensor:
    length, width = x_BLE.shape[1:]
    channels = width // formula.num_heads
    future_LL = torch.ones(length, length, dtype=torch.bool).triu(1)
    heads = []
    for head in range(formula.num_heads):
        own = slice(head * channels, (head + 1) * channels)
        q_BLK, k_BLK, v_BLK = (x_BLE @ w[f"{n}.{name}"][own].T for name in "qkv")
        scores_BLL = q_BLK @ k_BLK.mT / math.sqrt(channels)
        weights_BLL = scores_BLL.masked_fill(future_LL, -math.inf).exp()
        heads.append(weights_BLL / weights_BLL.sum(-1, keepdim=True) @ v_BLK)
    return torch.cat(heads, dim=-1) @ w[f"{n}.o"].T


def rms_norm(x: Tensor, gain_E: Tensor) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain_E
