"""What the unroll does while it learns, measured on a few windows at logged steps.

Shapes: B batch, L length, E width.
"""

from typing import NamedTuple

from torch import Tensor

from scse_dist.model.lm import LoopedLM

_NUM_WINDOWS = 4


class Dynamics(NamedTuple):
    """One number per depth 0..T."""

    deviation_ratio: list[float]
    """rms(D_t) / rms(h*): how far the state is from its anchor."""
    mask_activity: list[float]
    """Share of examples that the mask still lets move."""


def probe(model: LoopedLM, input_ids_BL: Tensor, num_loops: int) -> Dynamics:
    """Follows the first windows of a batch; under ZeRO-3 collective, the result is this rank's own."""
    anchor_BLE, deviations = model.states(input_ids_BL[:_NUM_WINDOWS], num_loops)
    anchor_rms = anchor_BLE.square().mean().sqrt()
    active_B = [model.unroll.method.active_B(deviation_BLE) for deviation_BLE in deviations]
    return Dynamics(
        deviation_ratio=[float(d.square().mean().sqrt() / anchor_rms) for d in deviations],
        mask_activity=[float(active.double().mean()) for active in active_B],
    )
