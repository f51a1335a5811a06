"""The looped language model: one block applied T times by one of several methods."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scse_dist.model.lm import LoopedLM, LoopedLMOutput, build_model

__all__ = ["LoopedLM", "LoopedLMOutput", "build_model"]


def __getattr__(name: str) -> Any:
    """The model itself is loaded at its first use: ``depth`` and ``flops`` serve where torch is not wanted."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scse_dist.model import lm

    return getattr(lm, name)
