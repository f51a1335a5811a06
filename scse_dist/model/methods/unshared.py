"""The unshared reference: a plain Transformer of N different blocks (SCSE paper, section 3).

It runs through the same unroll with e as its anchor; beyond N steps the state no longer changes. The residual has
scale 1, the usual Transformer, which the paper leaves unstated.

Shapes: B batch, L length, E width.
"""

import torch
from torch import Tensor

from scse_dist.config.methods import UnsharedConfig
from scse_dist.model.methods.base import BlockFn, Context, Method, implements


@implements(UnsharedConfig)
class Unshared(Method):
    """h_{t+1} = h_t + B_t(h_t) for t < N."""

    def __init__(self, width: int, config: UnsharedConfig):
        super().__init__()
        self.num_blocks = config.num_layers
        self.max_loops = config.num_layers

    def context(self, embedding_BLE: Tensor) -> Context:
        return Context(embedding_BLE, torch.zeros_like(embedding_BLE))

    def transition(self, deviation_BLE: Tensor, context: Context, step: int, block: BlockFn) -> Tensor:
        return deviation_BLE + block(context.anchor_BLE + deviation_BLE)
