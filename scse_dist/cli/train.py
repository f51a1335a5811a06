"""``scse-dist train``: one process becomes a rank, or a launcher of ranks."""

import os
import signal
import sys
from pathlib import Path

import yaml

from launchers import find_recipe
from launchers.local import PASSED_ON, default_nproc, launch
from scse_dist.config import RunConfig, dump_config, load_config
from scse_dist.config.accumulation import accumulation_steps
from scse_dist.config.deepspeed import deepspeed_config
from scse_dist.data.manifest import check_tokenizer, read_manifest
from scse_dist.data.resolve import resolve
from scse_dist.errors import ExitCode, UserError
from scse_dist.model.depth import depth_at, mean_depth
from scse_dist.model.flops import num_parameters, training_flops_per_token
from scse_dist.run_folder import RunFolder

_DEPTHS_SHOWN = 20


def train_recipe(recipe: Path, overrides: list[str], nproc: int | None, *, dry_run: bool) -> int:
    """Trains a recipe with ``nproc`` ranks, or describes it.

    Raises:
        UserError: before any rank is started, for all that can be known by then.
    """
    recipe = find_recipe(recipe)
    config = load_config(recipe, overrides)
    is_rank = "RANK" in os.environ
    if is_rank and nproc is not None:
        raise UserError(f"--nproc={nproc}: the ranks were already started by a launcher; leave --nproc out")
    if is_rank and not dry_run:
        return run_rank(config)

    world_size = int(os.environ.get("WORLD_SIZE", "1")) if is_rank else nproc or default_nproc(config.parallel.device)
    config = _resolved(config, world_size)
    folder = RunFolder(config.run.dir)
    folder.check(config)
    if dry_run:
        if os.environ.get("RANK", "0") == "0":
            print(describe(config, world_size))
        return ExitCode.DONE
    if world_size == 1:
        return run_rank(config)
    command = [sys.executable, "-m", "scse_dist", "train", str(recipe), *overrides]
    code = launch(command, world_size, folder.logs)
    if code == ExitCode.USER_ERROR:
        folder.discard_logs()
    return code


def run_rank(config: RunConfig) -> int:
    """This process's part of a run; a process that no launcher started is a world of one."""
    # Until the run itself listens there is nothing to save: a request to stop means leave, to be started again.
    for number in PASSED_ON:
        signal.signal(number, lambda *_: os._exit(ExitCode.RESUME))

    from scse_dist.parallel.env import init_world, teardown
    from scse_dist.train.run import train

    world = init_world(config.parallel.device, config.parallel.backend)
    code = train(config, world)
    teardown()
    return code


def describe(config: RunConfig, world_size: int) -> str:
    """What would be trained: resolved configuration, size, cost and the first depths."""
    window = config.data.window or 0
    depth = mean_depth(config.depth)
    tokens_per_step = config.train.global_batch_size * window
    depths = [depth_at(config.depth, config.seed, step) for step in range(min(_DEPTHS_SHOWN, config.train.num_steps))]
    facts = {
        "parameters": num_parameters(config.model),
        "ranks": world_size,
        "microbatches per rank and step": accumulation_steps(config, world_size),
        "tokens per step": tokens_per_step,
        "tokens of the run": tokens_per_step * config.train.num_steps,
        "mean depth": round(depth, 3),
        "training FLOPs per token at the mean depth": round(training_flops_per_token(config.model, depth, window)),
    }
    lines = [dump_config(config).rstrip(), "---", yaml.safe_dump(facts, sort_keys=False).rstrip()]
    return "\n".join([*lines, "depths: " + " ".join(map(str, depths))])


def _resolved(config: RunConfig, world_size: int) -> RunConfig:
    if config.data.path is None:
        raise UserError("data.path is not set; give a folder made by `scse-dist prepare`, such as data.path=data/mine")
    manifest = read_manifest(Path(config.data.path))
    check_tokenizer(Path(config.data.path), manifest)
    config = resolve(config, manifest)
    deepspeed_config(config, world_size)
    return config
