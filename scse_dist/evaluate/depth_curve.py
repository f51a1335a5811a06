"""Perplexity of a split at many depths (SCSE paper, section 6): sums over all tokens, then one division.

Shapes: B batch, L length, W window + 1 tokens, R readout depths.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scse_dist.data.stream import WindowReader
from scse_dist.model.lm import LoopedLM
from scse_dist.model.loss import IGNORE
from scse_dist.parallel import comm
from scse_dist.parallel.env import World


class DepthScore(NamedTuple):
    """What one depth scored on a whole set."""

    nll_sum: float
    """Nats."""
    num_tokens: int

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood per token."""
        return perplexity(self.nll_sum / self.num_tokens)


def perplexity(mean_nll: float) -> float:
    """exp(mean_nll), nats; infinite where that overflows."""
    return math.exp(mean_nll) if mean_nll < 700 else math.inf


@torch.no_grad()
def depth_curve(
    model: LoopedLM,
    reader: WindowReader,
    depths: Sequence[int],
    world: World,
    *,
    batch_size: int,
    max_windows: int = 0,
) -> dict[int, DepthScore]:
    """Scores the first ``max_windows`` windows (0: all) at each depth; collective, the same result on every rank.

    The figure does not depend on the number of ranks or the batch size: sums are fp64, and what a rank reads to keep
    step with the others is not scored.
    """
    num_windows = min(len(reader), max_windows) if max_windows else len(reader)
    nll_sum_R = torch.zeros(len(depths), dtype=torch.float64)
    num_tokens = torch.zeros(1, dtype=torch.float64)
    for indices in shared_batches(num_windows, batch_size, world):
        batch = indices or [0]
        tokens_BW = comm.on_every_rank(lambda batch=batch: reader.batch_BW(batch)).to(world.device)
        input_ids_BL, labels_BL = tokens_BW[:, :-1], tokens_BW[:, 1:]
        if not indices:
            labels_BL = torch.full_like(labels_BL, IGNORE)
        outputs = model(input_ids_BL, depths[-1], labels_BL=labels_BL, readout_depths=depths)
        nll_sum_R += torch.stack([_required(output.loss_sum) for output in outputs]).cpu()
        num_tokens += _required(outputs[0].num_tokens).cpu()
    totals = comm.sum_over_ranks(torch.cat([nll_sum_R, num_tokens])).tolist()
    return {depth: DepthScore(nll_sum, int(totals[-1])) for depth, nll_sum in zip(depths, totals[:-1], strict=True)}


def shared_batches(num_items: int, batch_size: int, world: World) -> Iterator[list[int]]:
    """This rank's batches of indices; empty ones keep it in step with ranks that have one more."""
    num_batches = -(-num_items // batch_size)
    for first in range(0, num_batches, world.size):
        start = (first + world.rank) * batch_size
        yield list(range(start, min(start + batch_size, num_items)))


def _required(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
