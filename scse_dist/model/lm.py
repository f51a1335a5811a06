"""The language model: embedding, unroll, tied readout; its public interface.

Shapes: B batch, L length, E width, V vocabulary, T loops.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from scse_dist.config.schema import ModelSection
from scse_dist.model.block import Block
from scse_dist.model.init import initialise
from scse_dist.model.layers import Embedding, RMSNorm
from scse_dist.model.loss import IGNORE, loss_sum, score
from scse_dist.model.methods import build_method
from scse_dist.model.unroll import Unroll


class LoopedLMOutput(NamedTuple):
    """What is read out at one depth: logits, or with labels the loss.

    A tuple, because that is where a sharding engine's hooks look for tensors.
    """

    logits_BLV: Tensor | None = None
    """Without labels."""
    loss_sum: Tensor | None = None
    """Sum of the negative log-likelihoods in nats, scalar; a mean is this over ``num_tokens``."""
    num_tokens: Tensor | None = None
    """How many labels were scored, scalar int64."""
    nll_BL: Tensor | None = None
    """Per label, 0 where ignored; only where no gradient is asked for."""
    correct_BL: Tensor | None = None
    """Whether the label was the likeliest token; only where no gradient is asked for."""


class Trajectory(NamedTuple):
    """The unroll in anchor coordinates."""

    anchor_BLE: Tensor
    deviations: tuple[Tensor, ...]
    """D_0 ... D_T, each [B, L, E]."""


class Readout(nn.Module):
    """RMSNorm, then the tied token table."""

    def __init__(self, token: nn.Parameter):
        super().__init__()
        self.norm = RMSNorm(token.shape[1])
        self.token = token

    def forward(self, state_BLE: Tensor, labels_BL: Tensor | None) -> LoopedLMOutput:
        hidden_BLE = self.norm(state_BLE)
        if labels_BL is None:
            return LoopedLMOutput(logits_BLV=F.linear(hidden_BLE.to(self.token.dtype), self.token))
        hidden_NE, labels_N = hidden_BLE.flatten(0, 1), labels_BL.flatten()
        num_tokens = (labels_N != IGNORE).sum()
        if hidden_NE.requires_grad:
            return LoopedLMOutput(loss_sum=loss_sum(hidden_NE, self.token, labels_N), num_tokens=num_tokens)
        nll_N, correct_N = score(hidden_NE, self.token, labels_N)
        return LoopedLMOutput(
            loss_sum=nll_N.double().sum(),
            num_tokens=num_tokens,
            nll_BL=nll_N.view_as(labels_BL),
            correct_BL=correct_N.view_as(labels_BL),
        )


class LoopedLM(nn.Module):
    """One block applied ``num_loops`` times between a token embedding and its tied readout."""

    def __init__(self, config: ModelSection):
        super().__init__()
        assert config.vocab_size is not None and config.num_positions is not None, "resolve the config first"
        method = build_method(config.width, config.method)
        blocks = [
            Block(config.width, config.num_heads, config.resolved_ffn_width, config.dropout)
            for _ in range(method.num_blocks)
        ]
        self.embedding = Embedding(config.vocab_size, config.num_positions, config.width, config.dropout)
        self.unroll = Unroll(method, blocks, config.dropout)
        self.readout = Readout(self.embedding.token)

    def forward(
        self,
        input_ids_BL: Tensor,
        num_loops: int,
        *,
        labels_BL: Tensor | None = None,
        readout_depths: Sequence[int] | None = None,
    ) -> LoopedLMOutput | tuple[LoopedLMOutput, ...]:
        """Reads out after ``num_loops`` loops, or once for each of ``readout_depths`` from that one unroll.

        Args:
            input_ids_BL: tokens, int64.
            num_loops: T >= 1.
            labels_BL: the token that follows each input (not shifted here); ``IGNORE`` is not scored.
            readout_depths: ascending loop counts, the last at most ``num_loops``.

        Raises:
            ValueError: no loops, depths out of order or above ``num_loops``, more tokens than positions.
        """
        depths = _checked_depths(num_loops, readout_depths)
        anchor_BLE, *deviations = self.unroll(self.embedding(input_ids_BL), depths)
        outputs = tuple(self.readout(anchor_BLE + deviation_BLE, labels_BL) for deviation_BLE in deviations)
        return outputs[0] if readout_depths is None else outputs

    def states(self, input_ids_BL: Tensor, num_loops: int) -> Trajectory:
        """The anchor h* and every D_t, t = 0..T (state h_t = anchor + D_t)."""
        _checked_depths(num_loops, None)
        anchor_BLE, *deviations = self.unroll(self.embedding(input_ids_BL), tuple(range(num_loops + 1)))
        return Trajectory(anchor_BLE, tuple(deviations))


def build_model(config: ModelSection, seed: int = 0) -> LoopedLM:
    """A model with initial weights that depend on the configuration and the seed alone."""
    model = LoopedLM(config)
    initialise(model, config.init, seed)
    return model


def _checked_depths(num_loops: int, readout_depths: Sequence[int] | None) -> tuple[int, ...]:
    if num_loops < 1:
        raise ValueError(f"num_loops={num_loops}: at least one loop is needed")
    if readout_depths is None:
        return (num_loops,)
    depths = tuple(readout_depths)
    if not depths or list(depths) != sorted(set(depths)) or depths[0] < 1:
        raise ValueError(f"readout_depths={list(depths)} must be positive, ascending and without repeats")
    if depths[-1] > num_loops:
        raise ValueError(f"readout depth {depths[-1]} lies above the unroll, num_loops={num_loops}; unroll further")
    return depths
