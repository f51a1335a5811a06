"""The looped baseline: additive injection from h_0 = e (SCSE paper, section 3).

The paper gives the formula's shape; that the residual scale defaults to 0.5, as in SCSE, is our reading.

Shapes: B batch, L length, E width.
"""

import torch
from torch import Tensor, nn

from scse_dist.config.methods import LoopedBaselineConfig
from scse_dist.model.layers import Linear
from scse_dist.model.methods.base import BlockFn, Context, Method, implements


@implements(LoopedBaselineConfig)
class LoopedBaseline(Method):
    """h_{t+1} = h_t + s*B(h_t + a*W e), written for D = h - e."""

    def __init__(self, width: int, config: LoopedBaselineConfig):
        super().__init__()
        self.source_map = Linear(width, width)
        self.gain = nn.Parameter(torch.full((1,), config.gain))
        self.step_scale = config.step_scale

    def context(self, embedding_BLE: Tensor) -> Context:
        source_BLE = self.gain * self.source_map(embedding_BLE)
        return Context(embedding_BLE, torch.zeros_like(embedding_BLE), source_BLE)

    def transition(self, deviation_BLE: Tensor, context: Context, step: int, block: BlockFn) -> Tensor:
        return deviation_BLE + self.step_scale * block(context.injected_BLE(deviation_BLE))
