"""``scse-dist eval``: the depth curve of a trained run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scse_dist.checkpoint.open_run import check_data, open_run
from scse_dist.data.manifest import read_manifest
from scse_dist.errors import ExitCode, UserError
from scse_dist.evaluate.recording import record_scores
from scse_dist.evaluate.suite import Budget, evaluate_named
from scse_dist.evaluate.table import print_depth_table
from scse_dist.parallel.env import init_world, teardown
from scse_dist.telemetry.tensorboard import TensorBoard

DEFAULT_DEPTHS = "1,2,4,8,12,16,24,32,48"


def evaluate_run(
    path: Path, sets: Sequence[str], depths: str, step: int | None, batch_size: int, max_windows: int, nproc: int
) -> int:
    """Scores a run's checkpoint on its data, records the figures and prints one table."""
    budget = Budget(parse_depths(depths), batch_size, max_windows)
    if nproc > 1 and "RANK" in os.environ:
        raise UserError(f"--nproc={nproc}: the ranks were already started by a launcher; leave --nproc out")
    if nproc > 1:
        from launchers.local import launch

        options = ["--depths", depths, "--batch-size", str(batch_size), "--max-windows", str(max_windows)]
        options += [part for name in sets for part in ("--set", name)]
        options += [] if step is None else ["--step", str(step)]
        return launch([sys.executable, "-m", "scse_dist", "eval", str(path), *options], nproc)
    world = init_world()
    run = open_run(path, step, world.device)
    data_folder = Path(run.config.data.path or "")
    manifest = read_manifest(data_folder)
    check_data(run, manifest)
    scores = evaluate_named(run.model, data_folder, manifest, run.config, sets, budget, world)
    if world.rank == 0:
        step_of_weights = run.saved.progress.step
        # A folder of its own: the run itself may be writing, or have written beyond the step that is evaluated.
        board = TensorBoard(run.folder.tensorboard / "eval", None) if run.config.telemetry.tensorboard else None
        record_scores(run.folder, run.config, manifest, step_of_weights, scores, max_windows, "fp32", board)
        if board:
            board.close()
        print_depth_table(scores, (run.config.depth.min, run.config.depth.max))
    teardown()
    return ExitCode.DONE


def parse_depths(text: str) -> tuple[int, ...]:
    """Loop counts from ``1,2,4``.

    Raises:
        UserError: not numbers, below 1, out of order or repeated.
    """
    try:
        depths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--depths={text}: give whole numbers separated by commas, for example 1,2,4,8") from None
    if depths[0] < 1 or list(depths) != sorted(set(depths)):
        raise UserError(f"--depths={text}: must be 1 or more, ascending and without repeats")
    return depths
