"""The learning rate: a pure function of the number of APPLIED optimizer steps, so that it needs no state.

Imports no torch.
"""

import math

from scse_dist.config.schema import OptimSection


def learning_rate(optim: OptimSection, num_steps: int, num_applied: int) -> float:
    """The rate of the next step, after ``num_applied`` of ``num_steps`` have been applied.

    Linear warm-up from 0, reached at step ``warmup_steps``; then the schedule. A warm-up longer than the run is cut
    off where the run ends.
    """
    if num_applied < optim.warmup_steps:
        return optim.lr * (num_applied + 1) / (optim.warmup_steps + 1)
    floor = optim.lr * optim.min_lr_ratio
    match optim.schedule:
        case "constant":
            return optim.lr
        case "cosine":
            remaining = max(1, num_steps - optim.warmup_steps)
            progress = min(1.0, (num_applied - optim.warmup_steps) / remaining)
            return floor + (optim.lr - floor) * 0.5 * (1 + math.cos(math.pi * progress))
        case "warmup_stable_decay":
            assert optim.decay_steps is not None
            left = max(0, num_steps - num_applied)
            return floor + (optim.lr - floor) * min(1.0, left / optim.decay_steps)
