"""A training run from its configuration to its last step."""

import contextlib
from pathlib import Path

import torch

from scse_dist.checkpoint.manifest import Progress
from scse_dist.checkpoint.restore import restore_newest
from scse_dist.checkpoint.save import save_checkpoint
from scse_dist.config.deepspeed import deepspeed_config
from scse_dist.config.schema import RunConfig
from scse_dist.data.manifest import Manifest, check_tokenizer, read_manifest
from scse_dist.data.resolve import resolve
from scse_dist.data.stream import TrainingBatches, WindowReader
from scse_dist.errors import ExitCode, UserError
from scse_dist.evaluate.suite import Budget, evaluate_sets
from scse_dist.model import build_model
from scse_dist.parallel import comm
from scse_dist.parallel.engine import Engine
from scse_dist.parallel.env import World
from scse_dist.run_folder import RunFolder
from scse_dist.train.reporter import Reporter
from scse_dist.train.step import train_step
from scse_dist.train.stop import StopRequest


def train(config: RunConfig, world: World) -> ExitCode:
    """Trains to ``train.num_steps``, starting or continuing the run in ``run.dir``; collective.

    Returns:
        DONE, or RESUME if a signal asked it to stop and the state was saved.

    Raises:
        UserError: on all ranks alike: something in the recipe, the data or the run folder has to be mended.
    """
    stop = StopRequest()
    with contextlib.ExitStack() as stack:
        config, folder, manifest = _open(config, world, stack)
        data_folder = Path(config.data.path or "")
        reader = WindowReader(data_folder, manifest, "train", config.data.window, verify=config.data.verify_shards)
        batches = TrainingBatches(reader, config, world.rank, world.size)
        engine = Engine(build_model(config.model, config.seed), config, world)
        reporter = stack.enter_context(Reporter(folder, config, manifest, world))
        progress = restore_newest(folder.checkpoints, engine, config, manifest, reporter.say) or Progress()
        reporter.start_at(progress.step)

        while progress.step < config.train.num_steps:
            progress = train_step(engine, batches, config, progress, reporter)
            finished = progress.step == config.train.num_steps
            stopping = stop.agreed()
            # Who is asked to stop has little time: the state comes first, the evaluation is left out.
            if _is_due(config.evaluate.every, progress.step) and not stopping:
                with engine.evaluating() as model:
                    budget = Budget(config.evaluate.depths, config.evaluate.batch_size, config.evaluate.max_windows)
                    scores = evaluate_sets(model, data_folder, manifest, config, config.evaluate.sets, budget, world)
                reporter.evaluated(progress.step, scores)
            if stopping or finished or _is_due(config.checkpoint.every, progress.step):
                saved = save_checkpoint(folder.checkpoints, engine, progress, config, manifest)
                reporter.say(f"saved {saved}")
            if stopping and not finished:
                reporter.say(f"stopped on request at step {progress.step}; the same command goes on from there")
                return ExitCode.RESUME
        reporter.say(f"finished: {progress.step} steps, {progress.num_tokens:,} tokens, in {folder.path}")
    return ExitCode.DONE


def _open(config: RunConfig, world: World, stack: contextlib.ExitStack) -> tuple[RunConfig, RunFolder, Manifest]:
    """Checks data, device and run folder before anything is built, and takes the folder for this run."""
    if config.data.path is None:
        raise UserError("data.path is not set; give a folder made by `scse-dist prepare`")
    data_folder = Path(config.data.path)
    manifest = comm.on_first_rank(lambda: read_manifest(data_folder))
    tokenizer = comm.on_first_rank(lambda: check_tokenizer(data_folder, manifest))
    config = resolve(config, manifest)
    check_precision(config, world)
    deepspeed_config(config, world.size)
    folder = RunFolder(config.run.dir)
    comm.on_first_rank(lambda: folder.check(config))
    comm.on_first_rank(lambda: stack.enter_context(folder.locked()))
    comm.on_first_rank(lambda: folder.claim(config, tokenizer))
    return config, folder, manifest


def check_precision(config: RunConfig, world: World) -> None:
    """Refuses what the device cannot compute with.

    Raises:
        UserError: bf16 on a CUDA device that has none.
    """
    if (
        config.precision != "fp32"
        and world.device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        name = torch.cuda.get_device_name(world.device)
        raise UserError(f"precision={config.precision}: {name} has no bf16; use precision=fp32")


def _is_due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0
