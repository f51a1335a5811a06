"""The layers everything is made of.

Shapes: B batch, L length, E width, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def at_least_fp32(x: Tensor) -> Tensor:
    """``x`` in fp32, or unchanged where it already has more precision (fp64 tests)."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Linear(nn.Module):
    """A bias-free linear map that takes inputs of any precision: the carrier is fp32 whatever the weights are.

    Without biases G(0) = 0 holds exactly (SCSE paper, section 2).
    """

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))

    def forward(self, x: Tensor) -> Tensor:
        # Under autocast F.linear casts both sides itself; with bf16 weights the input follows the weights.
        return F.linear(x if torch.is_autocast_enabled(x.device.type) else x.to(self.weight.dtype), self.weight)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation in at least fp32, with a learned gain; maps zero to zero."""

    EPS = 1e-6

    def __init__(self, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = at_least_fp32(x)
        return F.rms_norm(x, (x.shape[-1],), self.gain.to(x.dtype), self.EPS)


class Embedding(nn.Module):
    """Token plus learned position embedding, in at least fp32: the state e of the paper.

    The token table is also the readout's weight (section 1: tied embedding).
    """

    def __init__(self, vocab_size: int, num_positions: int, width: int, dropout: float):
        super().__init__()
        self.token = nn.Parameter(torch.empty(vocab_size, width))
        self.position = nn.Parameter(torch.empty(num_positions, width))
        self.dropout = dropout

    def forward(self, input_ids_BL: Tensor) -> Tensor:
        length, num_positions = input_ids_BL.shape[1], self.position.shape[0]
        if length > num_positions:
            raise ValueError(f"{length} tokens do not fit model.num_positions={num_positions}; cut them from the left")
        token_BLE = at_least_fp32(F.embedding(input_ids_BL, self.token))
        embedding_BLE = token_BLE + at_least_fp32(self.position[:length])
        return F.dropout(embedding_BLE, self.dropout, self.training)
