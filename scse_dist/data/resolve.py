"""Fills in what a recipe leaves to its data, and refuses what contradicts it. Imports no torch."""

from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.errors import UserError


def resolve(config: RunConfig, manifest: Manifest) -> RunConfig:
    """The configuration with window, positions and vocabulary set.

    Raises:
        UserError: a window longer than the shards' or the positions, another vocabulary, an unknown evaluation set.
    """
    window = config.data.window or manifest.window
    num_positions = config.model.num_positions or window
    vocab_size = config.model.vocab_size or manifest.tokenizer.vocab_size
    if window > manifest.window:
        raise UserError(
            f"data.window={window} exceeds the shards' window of {manifest.window} tokens in {config.data.path}; "
            f"use at most that, or prepare the data with --window {window}"
        )
    if window > num_positions:
        raise UserError(f"data.window={window} exceeds model.num_positions={num_positions}; use at most that many")
    if vocab_size != manifest.tokenizer.vocab_size:
        raise UserError(
            f"model.vocab_size={vocab_size} does not match the {manifest.tokenizer.vocab_size} pieces of the tokenizer "
            f"in {config.data.path}; leave model.vocab_size out"
        )
    unknown = [name for name in config.evaluate.sets if name not in manifest.splits]
    if unknown and config.evaluate.every:
        raise UserError(
            f"evaluate.sets={unknown[0]!r} is not in {config.data.path}; it has {', '.join(manifest.splits)}"
        )
    return config.model_copy(
        update={
            "data": config.data.model_copy(update={"window": window}),
            "model": config.model.model_copy(update={"vocab_size": vocab_size, "num_positions": num_positions}),
        }
    )
