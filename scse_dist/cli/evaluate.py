"""``scse-dist eval``: the depth curve of a trained run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scse_dist.checkpoint.open_run import OpenRun, open_run
from scse_dist.data.manifest import Manifest, read_manifest
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import ExitCode, UserError
from scse_dist.evaluate.recording import record_scores
from scse_dist.evaluate.suite import Budget, Score, evaluate_completion, evaluate_sets
from scse_dist.evaluate.table import print_depth_table
from scse_dist.parallel.env import World, init_world, teardown
from scse_dist.telemetry.tensorboard import TensorBoard

PASSAGES = "passages"
"""Name of the last-word completion task on passages cut from the test split."""


def evaluate_run(
    path: Path, sets: Sequence[str], depths: str, step: int | None, batch_size: int, max_windows: int, nproc: int | None
) -> int:
    """Scores a run's checkpoint on its data, records the figures and prints one table."""
    budget = Budget(parse_depths(depths), batch_size, max_windows)
    if nproc is not None and nproc > 1 and "RANK" not in os.environ:
        from launchers.local import launch

        return launch([sys.executable, "-m", "scse_dist", *sys.argv[1:]], nproc)
    world = init_world()
    run = open_run(path, step, world.device)
    data_folder = Path(run.config.data.path or "")
    manifest = read_manifest(data_folder)
    scores = score_run(run, data_folder, manifest, sets, budget, world)
    if world.rank == 0:
        step_of_weights = run.saved.progress.step
        # A folder of its own: the run itself may be writing, or have written beyond the step that is evaluated.
        board = TensorBoard(run.folder.tensorboard / "eval", None) if run.config.telemetry.tensorboard else None
        record_scores(run.folder, run.config, manifest, step_of_weights, scores, max_windows, board)
        if board:
            board.close()
        print_depth_table(scores, (run.config.depth.min, run.config.depth.max))
    teardown()
    return ExitCode.DONE


def score_run(
    run: OpenRun, folder: Path, manifest: Manifest, sets: Sequence[str], budget: Budget, world: World
) -> list[Score]:
    """All figures of the named sets, by default of every split but the training split and of the passages.

    Raises:
        UserError: other data than the run was trained on, an unknown set.
    """
    if manifest.fingerprint != run.saved.data_fingerprint:
        raise UserError(
            f"{folder}: is not the data {run.folder.path} was trained on (another fingerprint); "
            "put the run's own data there"
        )
    available = [name for name in manifest.splits if name != "train"] + ([PASSAGES] if manifest.passages else [])
    for name in sets:
        if name not in [*available, "train"]:
            raise UserError(f"--set={name}: not in {folder}; it has {', '.join(available)}")
    chosen = list(dict.fromkeys(sets)) or available
    splits = [name for name in chosen if name != PASSAGES]
    scores = evaluate_sets(run.model, folder, manifest, run.config, splits, budget, world)
    if PASSAGES in chosen:
        scores += _score_passages(run, folder, manifest, budget, world)
    return scores


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


def _score_passages(run: OpenRun, folder: Path, manifest: Manifest, budget: Budget, world: World) -> list[Score]:
    tokenizer = Tokenizer.load(folder, manifest.tokenizer)
    scores: list[Score] = []
    for split, file in manifest.passages.items():
        name = f"{PASSAGES}/{split}"
        scores += evaluate_completion(run.model, name, folder / file, tokenizer, run.config, budget, world)
    return scores
