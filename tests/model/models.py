"""Small models of every method, with weights that hide nothing: gains other than 1, scalars other than 0."""

import torch
from torch import Tensor

from scse_dist.config.methods import (
    AnyMethodConfig,
    CapacityMatchedAdapterConfig,
    LoopedBaselineConfig,
    ScseConfig,
    TunedAdapterConfig,
    UnsharedConfig,
)
from scse_dist.config.schema import ModelSection
from scse_dist.model import LoopedLM, build_model
from tests.model.formulas import Formula

METHODS: dict[str, AnyMethodConfig] = {
    "scse": ScseConfig(step_scale=0.4, projection_scale=0.3),
    "looped_baseline": LoopedBaselineConfig(step_scale=0.45, gain=0.2),
    "capacity_matched_adapter": CapacityMatchedAdapterConfig(gain=0.25),
    "tuned_adapter": TunedAdapterConfig(projection_scale=0.2),
    "unshared": UnsharedConfig(num_layers=5),
}
VOCAB_SIZE = 50
LENGTH = 10


def small_section(method: str = "scse", *, dropout: float = 0.0, width: int = 24) -> ModelSection:
    return ModelSection(
        width=width,
        num_heads=3,
        ffn_width=40,
        dropout=dropout,
        vocab_size=VOCAB_SIZE,
        num_positions=LENGTH,
        method=METHODS[method],
    )


def small_model(method: str = "scse", *, seed: int = 0, dropout: float = 0.0) -> LoopedLM:
    """In fp64 and evaluation mode."""
    model = build_model(small_section(method, dropout=dropout), seed).double().eval()
    randomise(model, seed)
    return model


@torch.no_grad()
def randomise(model: LoopedLM, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # gains of norms and of the injected source
            parameter.uniform_(0.5, 1.5, generator=generator)
        else:
            parameter.normal_(0, 0.4, generator=generator)


def formula_of(section: ModelSection) -> Formula:
    method = section.method
    numbers = method.model_dump(include={"step_scale", "projection_scale", "mask_eps", "num_layers"})
    return Formula(method.name, section.num_heads, **numbers)


def random_tokens(batch: int = 3, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB_SIZE, (batch, length), generator=torch.Generator().manual_seed(seed))


def gradients(model: LoopedLM) -> list[Tensor]:
    """Of all parameters; fails if one has none."""
    found = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None for gradient in found)
    return [gradient.clone() for gradient in found if gradient is not None]
