"""Initial weights: a pure function of the model's shape, the scales and the seed."""

import math

import torch
from torch import Tensor, nn

from scse_dist.config.schema import InitSection
from scse_dist.model.layers import Embedding, Linear
from scse_dist.model.methods.anchored import LearnedAnchor


@torch.no_grad()
def initialise(model: nn.Module, scales: InitSection, seed: int) -> None:
    """Fills embeddings and linear maps; gains keep the values their modules were built with.

    The generator is the run's own, so that nothing else in the process moves the initial weights.
    """
    generator = torch.Generator().manual_seed(seed)
    projections = {id(m) for anchor in model.modules() if isinstance(anchor, LearnedAnchor) for m in anchor.children()}
    for module in model.modules():
        if isinstance(module, Embedding):
            module.token.normal_(0, scales.embedding_std, generator=generator)
            module.position.normal_(0, scales.embedding_std, generator=generator)
        elif isinstance(module, Linear):
            std = scales.projection_std if id(module) in projections else scales.linear_std
            _fill(module.weight, std, generator)


def _fill(weight: Tensor, std: float | None, generator: torch.Generator) -> None:
    if std is None:
        bound = 1 / math.sqrt(weight.shape[1])  # what torch.nn.Linear starts from
        weight.uniform_(-bound, bound, generator=generator)
    else:
        weight.normal_(0, std, generator=generator)
