"""Last-word completion along depth: LAMBADA's task on any list of passages.

The target is the last space-separated piece with its space; its tokens are those that ``encode(context + target)``
has beyond ``len(encode(context))``. A passage longer than the model loses context from the left, never the target.

Shapes: B passages, L length, R readout depths.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError
from scse_dist.evaluate.depth_curve import perplexity, shared_batches
from scse_dist.model.lm import LoopedLM
from scse_dist.model.loss import IGNORE
from scse_dist.parallel import comm
from scse_dist.parallel.env import World


class CompletionScore(NamedTuple):
    """Counts from which all four usual figures follow."""

    num_passages: int
    num_tokens: int
    nll_sum: float
    """Nats over all target tokens."""
    num_correct_tokens: int
    num_correct_words: int

    @property
    def figures(self) -> dict[str, float]:
        """Metric names and values; ln(ppl_per_passage) = num_tokens / num_passages * ln(completion_ppl)."""
        return {
            "completion_ppl": perplexity(self.nll_sum / self.num_tokens),
            "ppl_per_passage": perplexity(self.nll_sum / self.num_passages),
            "token_accuracy": self.num_correct_tokens / self.num_tokens,
            "word_accuracy": self.num_correct_words / self.num_passages,
        }


class Passage(NamedTuple):
    """A passage as tokens."""

    context: list[int]
    target: list[int]


def read_passages(path: Path, tokenizer: Tokenizer, num_positions: int) -> list[Passage]:
    """Reads JSON lines with a ``text`` field and tokenises them for a model of ``num_positions``.

    Raises:
        UserError: unreadable, a row without text, a passage of one word, a target longer than the model.
    """
    passages = []
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")  # splitlines() also breaks at U+2028
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: unreadable ({error})") from error
    for number, line in enumerate(lines, 1):
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError):
            raise UserError(f'{path}, line {number}: not a JSON object with "text"') from None
        try:
            passages.append(split_passage(text, tokenizer, num_positions))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
    if not passages:
        raise UserError(f"{path}: holds no passages")
    return passages


def split_passage(text: str, tokenizer: Tokenizer, num_positions: int) -> Passage:
    """Context and target tokens of one passage.

    Raises:
        ValueError: one word only, or a target that leaves no room for context.
    """
    context_text, space, last_word = text.rpartition(" ")
    if not space or not last_word or not context_text:
        raise ValueError("a passage needs at least two words")
    context, whole = tokenizer.encode(context_text), tokenizer.encode(text)
    target = whole[len(context) :]
    room = num_positions + 1 - len(target)  # the last target token is predicted, not read
    if not target or room < 1:
        raise ValueError(f"its last word takes {len(target)} tokens, which {num_positions} positions cannot score")
    return Passage(whole[: len(context)][-room:], target)


@torch.no_grad()
def completion_curve(
    model: LoopedLM, passages: Sequence[Passage], depths: Sequence[int], world: World, *, batch_size: int
) -> dict[int, CompletionScore]:
    """Scores all passages at each depth; collective, the same result on every rank and for every batch size."""
    sums_R4 = torch.zeros(len(depths), 4, dtype=torch.float64)
    for indices in shared_batches(len(passages), batch_size, world):
        input_ids_BL, labels_BL = _pad([passages[i] for i in indices] or [passages[0]], world.device)
        if not indices:
            labels_BL = torch.full_like(labels_BL, IGNORE)
        target_BL = labels_BL != IGNORE
        outputs = model(input_ids_BL, depths[-1], labels_BL=labels_BL, readout_depths=depths)
        for row, output in enumerate(outputs):
            assert output.nll_BL is not None and output.correct_BL is not None
            hit_BL = output.correct_BL & target_BL
            word_B = target_BL.any(-1) & (hit_BL | ~target_BL).all(-1)
            sums = (target_BL.sum(), output.nll_BL.double().sum(), hit_BL.sum(), word_B.sum())
            sums_R4[row] += torch.stack([s.double() for s in sums]).cpu()
    sums_R4 = comm.sum_over_ranks(sums_R4)
    return {
        depth: CompletionScore(len(passages), int(tokens), nll_sum, int(correct_tokens), int(correct_words))
        for depth, (tokens, nll_sum, correct_tokens, correct_words) in zip(depths, sums_R4.tolist(), strict=True)
    }


def _pad(passages: list[Passage], device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs and labels, padded on the right where causal attention never looks."""
    length = max(len(p.context) + len(p.target) for p in passages) - 1
    input_ids_BL = torch.zeros(len(passages), length, dtype=torch.int64)
    labels_BL = torch.full((len(passages), length), IGNORE)
    for row, (context, target) in enumerate(passages):
        tokens = torch.tensor(context + target)
        input_ids_BL[row, : len(tokens) - 1] = tokens[:-1]
        labels_BL[row, len(context) - 1 : len(tokens) - 1] = tokens[len(context) :]
    return input_ids_BL.to(device), labels_BL.to(device)
