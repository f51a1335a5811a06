"""Which tensor of the product is which letter of the formulas, in both directions."""

import re

import torch
from torch import Tensor

WHOLE = {
    "embedding.token": "token",
    "embedding.position": "position",
    "readout.norm.gain": "final",
    "unroll.method.learned_anchor.anchor_projection.weight": "A",
    "unroll.method.learned_anchor.initial_projection.weight": "I",
    "unroll.method.source_map.weight": "W",
    "unroll.method.gain": "a",
}
IN_BLOCK = {
    "attention_norm.gain": ["norm1"],
    "attention.qkv.weight": ["q", "k", "v"],
    "attention.out.weight": ["o"],
    "mlp_norm.gain": ["norm2"],
    "mlp.gate_up.weight": ["gate", "up"],
    "mlp.down.weight": ["down"],
}
TIED = {"readout.token": "embedding.token"}


def to_formula(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict in the letters of the formulas, packed matrices taken apart. Fails on an unknown name."""
    weights = {}
    for name, tensor in state.items():
        if name in TIED:
            assert torch.equal(tensor, state[TIED[name]]), f"{name} is not tied"
        else:
            letters = _letters(name)
            weights |= dict(zip(letters, tensor.chunk(len(letters)), strict=True))
    return weights


def to_product(weights: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    """The other way, for the given names."""
    return {name: torch.cat([weights[letter] for letter in _letters(TIED.get(name, name))]) for name in names}


def _letters(name: str) -> list[str]:
    if name in WHOLE:
        return [WHOLE[name]]
    match = re.fullmatch(r"unroll\.blocks\.(\d+)\.(.+)", name)
    assert match, f"unknown parameter {name}"
    return [f"{match[1]}.{letter}" for letter in IN_BLOCK[match[2]]]
