"""The update block G: pre-normalised causal self-attention, then SwiGLU.

It returns the UPDATE only. The residual belongs to the loop (D + s*G(D), Eq. 3); an identity path inside would apply
it twice. Every projection is bias-free, so G(0) = 0 exactly.

Shapes: B batch, L length, E width, H heads, K channels of a head, F hidden channels of the SwiGLU.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from scse_dist.model.layers import Linear, RMSNorm


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, width: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)

    def forward(self, x_BLE: Tensor) -> Tensor:
        q_BHLK, k_BHLK, v_BHLK = self.qkv(x_BLE).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed_BHLK = F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, is_causal=True)
        return self.out(mixed_BHLK.transpose(1, 2).flatten(-2))


class SwiGLU(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, width: int, ffn_width: int):
        super().__init__()
        self.gate_up = Linear(width, 2 * ffn_width)
        self.down = Linear(ffn_width, width)

    def forward(self, x_BLE: Tensor) -> Tensor:
        gate_BLF, up_BLF = self.gate_up(x_BLE).chunk(2, dim=-1)
        return self.down(F.silu(gate_BLF) * up_BLF)


class Block(nn.Module):
    """Attention, then an MLP that sees the input plus the attention's update; their sum is the update."""

    def __init__(self, width: int, num_heads: int, ffn_width: int, dropout: float):
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, num_heads)
        self.mlp_norm = RMSNorm(width)
        self.mlp = SwiGLU(width, ffn_width)
        self.dropout = dropout

    def forward(self, x_BLE: Tensor) -> Tensor:
        """The update G(x), same shape as ``x_BLE``."""
        attended_BLE = F.dropout(self.attention(self.attention_norm(x_BLE)), self.dropout, self.training)
        refined_BLE = F.dropout(self.mlp(self.mlp_norm(x_BLE + attended_BLE)), self.dropout, self.training)
        return attended_BLE + refined_BLE
