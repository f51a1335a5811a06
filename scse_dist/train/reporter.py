"""What a run writes down while it trains: rank 0 to metrics, evaluations, TensorBoard and the terminal."""

import warnings
from collections.abc import Sequence
from typing import Any, Self

import torch

from scse_dist.checkpoint.manifest import Progress
from scse_dist.config import RunConfig, dump_config
from scse_dist.data.manifest import Manifest
from scse_dist.evaluate.depth_curve import perplexity
from scse_dist.evaluate.recording import record_scores
from scse_dist.evaluate.suite import Score
from scse_dist.files import plain_os_errors
from scse_dist.model.flops import training_flops_per_token
from scse_dist.parallel import comm
from scse_dist.parallel.engine import StepVerdict
from scse_dist.parallel.env import World
from scse_dist.run_folder import RunFolder
from scse_dist.telemetry.console import Console
from scse_dist.telemetry.meters import PhaseTimer, matmul_rate, peak_memory_bytes
from scse_dist.telemetry.records import JsonlLog
from scse_dist.telemetry.tensorboard import TensorBoard
from scse_dist.train.probe import Dynamics


class Reporter:
    """Collects what happens between two logged steps; on ranks other than 0 it only keeps time."""

    def __init__(self, folder: RunFolder, config: RunConfig, data: Manifest, world: World):
        self.timer = PhaseTimer(world.device)
        self._folder, self._config, self._data, self._world = folder, config, data, world
        self._is_writer = world.rank == 0
        self._console: Console | None = None
        self._board: TensorBoard | None = None
        self._metrics = JsonlLog(folder.metrics)
        self._num_tokens = 0
        self._flops = 0.0
        self._depths: list[int] = []
        if not self._is_writer:
            warnings.simplefilter("ignore")  # what rank 0 says once is enough

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._console:
            self._console.close()
        if self._board:
            self._board.close()

    def start_at(self, step: int) -> None:
        """Opens the logs at the step that a run starts or goes on from; later records are dropped. Collective.

        Raises:
            UserError: on every rank, if rank 0 cannot write.
        """
        comm.on_first_rank(lambda: self._open(step))

    def say(self, line: str) -> None:
        """A line for the person at the terminal, once for all ranks."""
        if self._is_writer:
            (self._console.say if self._console else print)(line)

    def count(self, step: int, num_tokens: int, depths: list[int]) -> bool:
        """Counts a finished step in; whether it is one that is logged."""
        window = self._config.data.window or 0
        per_token = [training_flops_per_token(self._config.model, depth, window) for depth in depths]
        self._num_tokens += num_tokens
        self._flops += num_tokens * sum(per_token) / len(per_token)
        self._depths = depths
        if self._console:
            self._console.step(step)
        return step % self._config.telemetry.log_every == 0 or step == self._config.train.num_steps

    def report(self, progress: Progress, loss: float, lr: float, verdict: StepVerdict, dynamics: Dynamics) -> None:
        """Writes the record of a logged step; collective, because a disk that is full must stop all ranks.

        Raises:
            UserError: on every rank, if rank 0 cannot write.
        """
        seconds = self.timer.take()
        total = sum(seconds.values())
        num_tokens, flops = self._num_tokens, self._flops
        self._num_tokens, self._flops = 0, 0.0
        device, dtype = self._world.device, torch.float32 if self._config.precision == "fp32" else torch.bfloat16
        num_loops = self._depths[0] if len(set(self._depths)) == 1 else self._depths
        record: dict[str, Any] = {
            "step": progress.step,
            "loss": loss,
            "ppl": perplexity(loss),
            "num_loops": num_loops,
            "lr": lr,
            "grad_norm": verdict.grad_norm,
            "applied": verdict.applied,
            "num_skipped": progress.num_skipped,
            "tokens": progress.num_tokens,
            "tokens_per_s": num_tokens / total,
            "flops_per_s": flops / total,
            "matmul_share": flops / total / (self._world.size * matmul_rate(device, dtype)),
            "deviation_ratio": dynamics.deviation_ratio,
            "mask_activity": dynamics.mask_activity,
            "memory_bytes": peak_memory_bytes(device),
        } | {f"seconds_{name}": spent for name, spent in seconds.items()}
        comm.on_first_rank(lambda: self._write(record))

    def evaluated(self, step: int, scores: Sequence[Score]) -> None:
        """Writes an evaluation made while training; collective.

        Raises:
            UserError: on every rank, if rank 0 cannot write.
        """
        config = self._config
        comm.on_first_rank(
            lambda: record_scores(
                self._folder,
                config,
                self._data,
                step,
                scores,
                config.evaluate.max_windows,
                config.precision,
                self._board,
            )
        )
        for name in dict.fromkeys(score.set for score in scores):
            curve = "  ".join(f"T={s.num_loops}: {s.value:.1f}" for s in scores if s.set == name)
            self.say(f"step {step}  {name} ppl  {curve}")

    def _open(self, step: int) -> None:
        self._metrics.truncate_after(step)
        with plain_os_errors(self._folder.path):
            self._console = Console(self._config.train.num_steps, step)
            if self._config.telemetry.tensorboard:
                self._board = TensorBoard(self._folder.tensorboard, step + 1)
                self._board.text("config", dump_config(self._config))

    def _write(self, record: dict[str, Any]) -> None:
        self._metrics.append(record)
        assert self._console is not None
        self._console.show(
            record["step"],
            f"loss {record['loss']:.4f}  T {record['num_loops']}  lr {record['lr']:.2e}  "
            f"|g| {record['grad_norm']:.2f}  {record['tokens_per_s']:,.0f} tokens/s",
        )
        if self._board:
            self._board.scalars(record["step"], _curves(record))


def _curves(record: dict[str, Any]) -> dict[str, float]:
    """The record's numbers under TensorBoard's tags; the loss also under the depth it was drawn at."""
    plain = ("loss", "ppl", "lr", "grad_norm", "num_skipped", "tokens", "num_loops")
    curves = {f"train/{key}": record[key] for key in plain if not isinstance(record[key], list)}
    speed = ("tokens_per_s", "flops_per_s", "matmul_share", "memory_bytes")
    curves |= {f"speed/{key}": value for key, value in record.items() if key in speed or key.startswith("seconds_")}
    if isinstance(record["num_loops"], int):
        curves[f"train_by_depth/loss_T={record['num_loops']:02d}"] = record["loss"]
    for depth, ratio in enumerate(record["deviation_ratio"]):
        curves[f"unroll/deviation_ratio_t={depth:02d}"] = ratio
        curves[f"unroll/mask_activity_t={depth:02d}"] = record["mask_activity"][depth]
    return curves
