"""How many loops a step runs: T = f(seed, optimizer step), so that no rank, restart or accumulation can disagree.

Imports no torch: a schedule can be printed before anything runs.
"""

import math

import numpy as np

from scse_dist.config.schema import DepthSection

_STREAM = 0x5C5E_DE97
"""Keeps depths independent of whatever else derives random numbers from the run's seed."""


def depth_at(config: DepthSection, seed: int, step: int, microbatch: int = 0) -> int:
    """T of an optimizer step (counted from 0) or, with ``depth.draw=microbatch``, of one of its microbatches."""
    index = microbatch if config.draw == "microbatch" else 0
    uniform = _uniform(seed, step, index)
    match config.schedule:
        case "poisson":
            assert config.mean is not None
            return min(max(_poisson(config.mean, uniform), config.min), config.max)
        case "curriculum":
            assert config.curriculum_steps is not None
            progress = min(1.0, step / config.curriculum_steps)
            deepest = config.min + math.floor(progress * (config.max - config.min))
        case _:  # uniform; fixed is the case min = max
            deepest = config.max
    return config.min + math.floor(uniform * (deepest - config.min + 1))


def mean_depth(config: DepthSection) -> float:
    """Expected T (at the end of a curriculum)."""
    if config.schedule != "poisson":
        return (config.min + config.max) / 2
    assert config.mean is not None
    weights = [math.exp(k * math.log(config.mean) - config.mean - math.lgamma(k + 1)) for k in range(config.max)]
    clipped = [max(k, config.min) for k in range(config.max)]
    return sum(w * k for w, k in zip(weights, clipped, strict=True)) + (1 - sum(weights)) * config.max


def _uniform(seed: int, step: int, index: int) -> float:
    """A number in [0, 1) from a counter-based generator, whose streams numpy keeps stable across versions."""
    key = np.random.SeedSequence((seed, _STREAM)).generate_state(2, np.uint64)
    return (int(np.random.Philox(key=key, counter=(step, index, 0, 0)).random_raw()) >> 11) * 2.0**-53


def _poisson(mean: float, uniform: float) -> int:
    """The quantile of a Poisson distribution, by summing its terms in the log domain."""
    drawn, total = 0, math.exp(-mean)
    while total <= uniform and drawn < mean + 40 * math.sqrt(mean) + 40:
        drawn += 1
        total += math.exp(drawn * math.log(mean) - mean - math.lgamma(drawn + 1))
    return drawn
