"""Source-Centered State Evolution (SCSE paper, Eq. 2-5).

Shapes: B batch, L length, E width.
"""

import torch
from torch import Tensor

from scse_dist.config.methods import ScseConfig
from scse_dist.model.layers import at_least_fp32
from scse_dist.model.methods.anchored import LearnedAnchor
from scse_dist.model.methods.base import BlockFn, Context, Method, implements


@implements(ScseConfig)
class Scse(Method):
    """D_{t+1} = D_t + m * s*G(D_t): the block sees the deviation alone, so the anchor is an exact fixed point."""

    def __init__(self, width: int, config: ScseConfig):
        super().__init__()
        self.learned_anchor = LearnedAnchor(width, config.projection_scale)
        self.step_scale = config.step_scale
        self.mask_eps = config.mask_eps

    def context(self, embedding_BLE: Tensor) -> Context:
        return Context(*self.learned_anchor(embedding_BLE))

    def transition(self, deviation_BLE: Tensor, context: Context, step: int, block: BlockFn) -> Tensor:
        update_BLE = self.step_scale * block(deviation_BLE)
        active_B11 = self.active_B(deviation_BLE)[:, None, None]
        return deviation_BLE + torch.where(active_B11, update_BLE, 0.0)

    def active_B(self, deviation_BLE: Tensor) -> Tensor:
        """m_{b,t} of Eq. 4: per example, over its whole length; the norm is taken in at least fp32."""
        return at_least_fp32(deviation_BLE.detach()).square().sum(dim=(1, 2)) > self.mask_eps
