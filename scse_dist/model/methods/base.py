"""What a method is: a one-step map T_t(D; e) in anchor coordinates (SCSE paper, sections 2, 3 and 7).

Shapes: B batch, L length, E width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scse_dist.config.methods import MethodConfig

BlockFn = Callable[[Tensor], Tensor]


class Context(NamedTuple):
    """What a method computes once per input and holds fixed for the whole unroll."""

    anchor_BLE: Tensor
    """h*, so that the state is always anchor + D."""
    initial_deviation_BLE: Tensor
    """D_0."""
    source_BLE: Tensor | None = None
    """What every step injects, for methods that inject something."""

    def injected_BLE(self, deviation_BLE: Tensor) -> Tensor:
        """The block's input in additive methods: the state plus the source."""
        assert self.source_BLE is not None
        return self.anchor_BLE + deviation_BLE + self.source_BLE


class Method(nn.Module, ABC):
    """A one-step map; subclasses are found through their config class (``implements``)."""

    num_blocks: int = 1
    """How many different blocks the map uses; step t uses block t of an unshared model, else block 0."""
    max_loops: int | None = None
    """Beyond this many steps the state no longer changes; None for looped methods."""

    @abstractmethod
    def context(self, embedding_BLE: Tensor) -> Context:
        """Anchor, D_0 and source from the embedding e."""

    @abstractmethod
    def transition(self, deviation_BLE: Tensor, context: Context, step: int, block: BlockFn) -> Tensor:
        """D_{t+1} from D_t, in the carrier's precision."""

    def active_B(self, deviation_BLE: Tensor) -> Tensor:
        """Which examples the next step may move (the mask m); all of them unless a method says otherwise."""
        return torch.ones(deviation_BLE.shape[0], dtype=torch.bool, device=deviation_BLE.device)


_implementations: dict[type[MethodConfig], type[Method]] = {}


def implements(*config_classes: type[MethodConfig]) -> Callable[[type[Method]], type[Method]]:
    """Registers a method under its config classes.

    Raises:
        ValueError: a config class has two implementations.
    """

    def register(method: type[Method]) -> type[Method]:
        for config_class in config_classes:
            if config_class in _implementations:
                raise ValueError(f"{config_class.__name__} is implemented twice")
            _implementations[config_class] = method
        return method

    return register


def implementation_of(config: MethodConfig) -> type[Method]:
    """The class that implements a config."""
    return _implementations[type(config)]
