"""The capacity-matched and the tuned additive adapter: SCSE's anchor and initial maps, additive injection
(SCSE paper, section 3). They differ in the step scale alone.

Shapes: B batch, L length, E width.
"""

import torch
from torch import Tensor, nn

from scse_dist.config.methods import AnchoredAdapterConfig, CapacityMatchedAdapterConfig, TunedAdapterConfig
from scse_dist.model.layers import Linear
from scse_dist.model.methods.anchored import LearnedAnchor
from scse_dist.model.methods.base import BlockFn, Context, Method, implements


@implements(CapacityMatchedAdapterConfig, TunedAdapterConfig)
class AnchoredAdapter(Method):
    """h_{t+1} = h_t + s*B(h_t + a*W h*), written for D = h - h*."""

    def __init__(self, width: int, config: AnchoredAdapterConfig):
        super().__init__()
        self.learned_anchor = LearnedAnchor(width, config.projection_scale)
        self.source_map = Linear(width, width)
        self.gain = nn.Parameter(torch.full((1,), config.gain))
        self.step_scale = config.step_scale

    def context(self, embedding_BLE: Tensor) -> Context:
        anchor_BLE, initial_deviation_BLE = self.learned_anchor(embedding_BLE)
        return Context(anchor_BLE, initial_deviation_BLE, self.gain * self.source_map(anchor_BLE))

    def transition(self, deviation_BLE: Tensor, context: Context, step: int, block: BlockFn) -> Tensor:
        return deviation_BLE + self.step_scale * block(context.injected_BLE(deviation_BLE))
