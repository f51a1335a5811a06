"""Scoring several sets at several depths and naming every figure completely."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.data.stream import WindowReader
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError
from scse_dist.evaluate.completion import completion_curve, read_passages
from scse_dist.evaluate.depth_curve import depth_curve
from scse_dist.model.lm import LoopedLM
from scse_dist.parallel.env import World

PASSAGES = "passages"
"""Name of the last-word completion task on passages cut from the splits."""


class Budget(NamedTuple):
    """How much is evaluated."""

    depths: Sequence[int]
    batch_size: int
    max_windows: int
    """Per set, the first ones; 0 means all."""


class Score(NamedTuple):
    """One figure."""

    set: str
    metric: str
    num_loops: int
    value: float
    num_tokens: int
    """Tokens the figure rests on."""
    num_passages: int | None = None


def evaluate_named(
    model: LoopedLM,
    data_folder: Path,
    manifest: Manifest,
    config: RunConfig,
    names: Sequence[str],
    budget: Budget,
    world: World,
) -> list[Score]:
    """All figures of the named sets, by default of every split but the training split and of the passages.

    Raises:
        UserError: an unknown set, a damaged shard, unsuitable passages.
    """
    available = [name for name in manifest.splits if name != "train"] + ([PASSAGES] if manifest.passages else [])
    for name in names:
        if name not in [*available, "train"]:
            raise UserError(f"--set={name}: not in {data_folder}; it has {', '.join(available)}")
    chosen = list(dict.fromkeys(names)) or available
    splits = [name for name in chosen if name != PASSAGES]
    scores = evaluate_sets(model, data_folder, manifest, config, splits, budget, world)
    if PASSAGES in chosen:
        tokenizer = Tokenizer.load(data_folder, manifest.tokenizer)
        for split, file in manifest.passages.items():
            name = f"{PASSAGES}/{split}"
            scores += evaluate_completion(model, name, data_folder / file, tokenizer, config, budget, world)
    return scores


def evaluate_sets(
    model: LoopedLM,
    data_folder: Path,
    manifest: Manifest,
    config: RunConfig,
    sets: Sequence[str],
    budget: Budget,
    world: World,
) -> list[Score]:
    """Perplexity of each split at each depth; collective, equal on all ranks.

    Raises:
        UserError: an unknown split, a damaged shard.
    """
    scores = []
    for name in sets:
        reader = WindowReader(data_folder, manifest, name, config.data.window, verify=config.data.verify_shards)
        curve = depth_curve(
            model,
            reader,
            budget.depths,
            world,
            batch_size=budget.batch_size,
            max_windows=budget.max_windows,
        )
        scores += [Score(name, "ppl", depth, point.perplexity, point.num_tokens) for depth, point in curve.items()]
    return scores


def evaluate_completion(
    model: LoopedLM, name: str, path: Path, tokenizer: Tokenizer, config: RunConfig, budget: Budget, world: World
) -> list[Score]:
    """The four completion figures at each depth; collective, equal on all ranks.

    Raises:
        UserError: unreadable or unsuitable passages.
    """
    passages = read_passages(path, tokenizer, config.model.num_positions or 0)
    curve = completion_curve(model, passages, budget.depths, world, batch_size=budget.batch_size)
    return [
        Score(name, metric, depth, value, point.num_tokens, point.num_passages)
        for depth, point in curve.items()
        for metric, value in point.figures.items()
    ]
