"""One config class per method: what distinguishes the one-step maps T_t(D; e) of the SCSE paper, sections 2 and 3."""

from typing import Annotated, Literal

from pydantic import Field

from scse_dist.config.base import Section

PositiveFloat = Annotated[float, Field(gt=0)]


class MethodConfig(Section):
    """Settings of one method; each class names it in ``name``, the tag of ``model.method``."""


class ScseConfig(MethodConfig):
    """Source-Centered State Evolution, Eq. 2-5."""

    name: Literal["scse"] = "scse"
    step_scale: PositiveFloat = 0.5
    """Residual step scale s of Eq. 3."""
    projection_scale: PositiveFloat = 0.1
    """Factor of the learned projections A and I in Eq. 2."""
    mask_eps: Annotated[float, Field(ge=0)] = 1e-8
    """An example moves while the squared Frobenius norm of its deviation exceeds this (Eq. 4)."""


class LoopedBaselineConfig(MethodConfig):
    """Additive injection from h_0 = e (section 3)."""

    name: Literal["looped_baseline"] = "looped_baseline"
    step_scale: PositiveFloat = 0.5
    """Residual step scale s."""
    gain: float = 0.15
    """Initial value of the learned scalar gain a of the injected source."""


class AnchoredAdapterConfig(MethodConfig):
    """Additive injection of a source made from the learned anchor (section 3)."""

    step_scale: PositiveFloat
    """Residual step scale s."""
    gain: float = 0.15
    """Initial value of the learned scalar gain a of the injected source."""
    projection_scale: PositiveFloat = 0.1
    """Factor of the learned projections A and I."""


class CapacityMatchedAdapterConfig(AnchoredAdapterConfig):
    """The additive adapter at the step scale of SCSE."""

    name: Literal["capacity_matched_adapter"] = "capacity_matched_adapter"
    step_scale: PositiveFloat = 0.5


class TunedAdapterConfig(AnchoredAdapterConfig):
    """The additive adapter at its own best step scale."""

    name: Literal["tuned_adapter"] = "tuned_adapter"
    step_scale: PositiveFloat = 0.35


class UnsharedConfig(MethodConfig):
    """A plain Transformer of N different layers; its depth saturates at N."""

    name: Literal["unshared"] = "unshared"
    num_layers: Annotated[int, Field(ge=1)] = 4
    """How many different blocks there are."""


AnyMethodConfig = Annotated[
    ScseConfig | LoopedBaselineConfig | CapacityMatchedAdapterConfig | TunedAdapterConfig | UnsharedConfig,
    Field(discriminator="name"),
]
