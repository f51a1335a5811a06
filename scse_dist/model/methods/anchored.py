"""The learned anchor and the initial deviation that SCSE and its matched controls share (Eq. 2).

Shapes: B batch, L length, E width.
"""

from torch import Tensor, nn

from scse_dist.model.layers import Linear, at_least_fp32


class LearnedAnchor(nn.Module):
    """h* = e + c*A e and h_0 = e + c*I e with learned A and I, c = 0.1."""

    def __init__(self, width: int, scale: float):
        super().__init__()
        self.anchor_projection = Linear(width, width)
        self.initial_projection = Linear(width, width)
        self.scale = scale

    def forward(self, embedding_BLE: Tensor) -> tuple[Tensor, Tensor]:
        """The anchor h* and D_0 = h_0 - h*."""
        anchored_BLE = at_least_fp32(self.anchor_projection(embedding_BLE))
        initial_BLE = at_least_fp32(self.initial_projection(embedding_BLE))
        # D_0 directly: subtracting h* from h_0 would first add the large e to both and lose the small difference.
        return embedding_BLE + self.scale * anchored_BLE, self.scale * (initial_BLE - anchored_BLE)
