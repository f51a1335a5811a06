"""The only loop over depth. It knows recomputation and which states are wanted, and no method's name.

The whole loop is one module that a forward pass calls once: under ZeRO-3 it is the unit that is gathered, so its
traffic does not depend on the number of loops.

Shapes: B batch, L length, E width.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scse_dist.model.block import Block
from scse_dist.model.methods import Context, Method


class Unroll(nn.Module):
    """Applies a method's one-step map again and again to the deviation D."""

    def __init__(self, method: Method, blocks: Sequence[Block], dropout: float):
        super().__init__()
        assert len(blocks) == method.num_blocks
        self.method = method
        self.blocks = nn.ModuleList(blocks)
        self.loops_per_segment = 0
        """Loops between two kept states in training; 0 keeps all activations and recomputes nothing."""
        self._has_dropout = dropout > 0

    def forward(self, embedding_BLE: Tensor, depths: tuple[int, ...]) -> tuple[Tensor, ...]:
        """The anchor, then D at each of ``depths`` (ascending, 0 is D_0), all from one unroll to the deepest.

        Returns a plain tuple of tensors: the only container whose parts ZeRO-3's hooks find.
        """
        context = self.method.context(embedding_BLE)
        deviation_BLE = context.initial_deviation_BLE
        wanted = [deviation_BLE] if depths[0] == 0 else []
        for start, stop in self._segments(depths):
            deviation_BLE = self._advance(deviation_BLE, context, start, stop)
            if stop in depths:
                wanted.append(deviation_BLE)
        return context.anchor_BLE, *wanted

    def _segments(self, depths: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Step ranges that end at every wanted depth and, while training, after every ``loops_per_segment`` loops."""
        start = 0
        for depth in depths:
            length = (self.loops_per_segment if self.training else 0) or max(depth, 1)
            for stop in (*range(start + length, depth, length), depth):
                if stop > start:
                    yield start, stop
                start = stop

    def _advance(self, deviation_BLE: Tensor, context: Context, start: int, stop: int) -> Tensor:
        def run(deviation_BLE: Tensor) -> Tensor:
            for step in range(start, min(stop, self.method.max_loops or stop)):
                block = self.blocks[step % len(self.blocks)]
                deviation_BLE = self.method.transition(deviation_BLE, context, step, block)
            return deviation_BLE

        if self.loops_per_segment == 0 or not torch.is_grad_enabled():
            return run(deviation_BLE)
        # Reentrant recomputation reduces a shared block's gradients once per loop, which ZeRO refuses.
        return checkpoint(run, deviation_BLE, use_reentrant=False, preserve_rng_state=self._has_dropout)
