"""One optimizer step: draw the depth, accumulate, apply.

Shapes: B batch, L length, W window + 1 tokens.
"""

import hashlib

import torch
from torch import Tensor

from scse_dist.checkpoint.manifest import Progress
from scse_dist.config.schema import RunConfig
from scse_dist.data.stream import TrainingBatches
from scse_dist.model.depth import depth_at
from scse_dist.parallel import comm
from scse_dist.parallel.engine import Engine, StepVerdict
from scse_dist.train.probe import probe
from scse_dist.train.reporter import Reporter
from scse_dist.train.schedule import learning_rate


def train_step(
    engine: Engine, batches: TrainingBatches, config: RunConfig, progress: Progress, reporter: Reporter
) -> Progress:
    """Runs one step of the whole world and reports it; collective."""
    world, step, timer = engine.world, progress.step, reporter.timer
    lr = learning_rate(config.optim, config.train.num_steps, progress.num_applied)
    window = config.data.window or 0
    num_tokens = config.train.global_batch_size * window
    _seed_dropout(config.seed, step, world.rank)

    loss_sum, depths = torch.zeros((), device=world.device), []
    verdict, input_ids_BL = StepVerdict(False, 0.0), torch.empty(0)
    with timer.phase("data"):
        microbatches = comm.on_every_rank(lambda: [batches.batch_BW(step, m) for m in range(engine.grad_accum_steps)])
    for microbatch, tokens_BW in enumerate(microbatches):
        num_loops = depth_at(config.depth, config.seed, step, microbatch)
        _check_agreement(num_loops, config)
        with timer.phase("data"):
            input_ids_BL, labels_BL = _inputs_and_labels(tokens_BW.to(world.device))
        with timer.phase("forward_backward"):
            loss_sum += engine.forward_backward(input_ids_BL, labels_BL, num_loops, num_tokens)
        with timer.phase("optimizer"):
            verdict = engine.step(lr)
        depths.append(num_loops)

    progress = Progress(
        step=step + 1,
        num_applied=progress.num_applied + verdict.applied,
        num_skipped=progress.num_skipped + (not verdict.applied),
        num_tokens=progress.num_tokens + num_tokens,
        num_samples=progress.num_samples + config.train.global_batch_size,
    )
    if reporter.count(step + 1, num_tokens, depths) or not verdict.applied:
        loss = comm.sum_over_ranks(loss_sum.double()).item() / num_tokens
        with engine.evaluating() as model:
            dynamics = probe(model, input_ids_BL, depths[-1])
        reporter.report(progress, loss, lr, verdict, dynamics)
    if not verdict.applied:
        reporter.say(f"WARNING: step {step + 1} was skipped, its gradient norm is {verdict.grad_norm}")
    return progress


def _inputs_and_labels(tokens_BW: Tensor) -> tuple[Tensor, Tensor]:
    return tokens_BW[:, :-1], tokens_BW[:, 1:]


def _seed_dropout(seed: int, step: int, rank: int) -> None:
    """Dropout's generator follows from the step, so that a resume needs no generator state."""
    digest = hashlib.blake2b(f"dropout {seed} {step} {rank}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little") >> 1)


def _check_agreement(num_loops: int, config: RunConfig) -> None:
    if config.depth.check_agreement and not comm.same_on_all_ranks(num_loops):
        raise RuntimeError(f"ranks disagree on the number of loops; this one drew {num_loops}")
