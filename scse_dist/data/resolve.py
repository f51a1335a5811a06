"""Fills in what a recipe leaves to its data, and refuses what contradicts it. Imports no torch."""

from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest
from scse_dist.errors import UserError


def resolve(config: RunConfig, manifest: Manifest) -> RunConfig:
    """The configuration with window, positions and vocabulary set.

    Raises:
        UserError: a window longer than the shards' or the positions or not dividing the shards', another vocabulary,
            fewer windows than a batch, an unknown evaluation set.
    """
    window = config.data.window or manifest.window
    num_positions = config.model.num_positions or window
    vocab_size = config.model.vocab_size or manifest.tokenizer.vocab_size
    if window > manifest.window:
        raise UserError(
            f"data.window={window} exceeds the shards' window of {manifest.window} tokens in {config.data.path}; "
            f"use at most that, or prepare the data with --window {window}"
        )
    if manifest.window % window:
        fitting = [n for n in range(1, manifest.window + 1) if manifest.window % n == 0][-6:]
        raise UserError(
            f"data.window={window} does not divide the shards' window of {manifest.window} tokens in "
            f"{config.data.path}; use one of {fitting}, or prepare the data with --window {window}"
        )
    if window > num_positions:
        raise UserError(f"data.window={window} exceeds model.num_positions={num_positions}; use at most that many")
    if vocab_size != manifest.tokenizer.vocab_size:
        raise UserError(
            f"model.vocab_size={vocab_size} does not match the {manifest.tokenizer.vocab_size} pieces of the tokenizer "
            f"in {config.data.path}; leave model.vocab_size out"
        )
    num_windows = manifest.splits["train"].num_windows * (manifest.window // window)
    if num_windows < config.train.global_batch_size:
        raise UserError(
            f"data.path={config.data.path}: its training split has {num_windows} windows, fewer than "
            f"train.global_batch_size={config.train.global_batch_size}; prepare more text or use a smaller batch"
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
