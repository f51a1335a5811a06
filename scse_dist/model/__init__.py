"""The looped language model: one block applied T times by one of several methods."""

from scse_dist.model.lm import LoopedLM, LoopedLMOutput, build_model

__all__ = ["LoopedLM", "LoopedLMOutput", "build_model"]
