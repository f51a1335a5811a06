"""Real runs of ``scse-dist`` in processes of their own, on a small data folder."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.dist import ROOT
from tests.helpers.shards import write_data_folder

WINDOW = 16
TINY = (
    "model.width=32",
    "model.num_heads=2",
    "train.global_batch_size=4",
    "train.microbatch_size=2",
    "optim.warmup_steps=3",
    "telemetry.log_every=1",
    "telemetry.tensorboard=false",
    "evaluate.every=0",
    "checkpoint.every=0",
)
"""Overrides of the demo recipe that make a step take milliseconds."""


def make_data(folder: Path, *, num_train_windows: int = 40, seed: int = 0) -> Path:
    """Random tokens as train, validation and test split."""
    rng = np.random.default_rng(seed)
    sizes = {"train": num_train_windows, "validation": 8, "test": 8}
    splits = {name: rng.integers(1, 64, size * WINDOW + 1) for name, size in sizes.items()}
    write_data_folder(folder, splits, WINDOW, vocab_size=64)
    return folder


def command(*arguments: str) -> list[str]:
    """A ``scse-dist`` command line."""
    return [sys.executable, "-m", "scse_dist", *arguments]


def environment() -> dict[str, str]:
    """One thread per rank, no progress bar, the checkout's code."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def scse_dist(*arguments: str, timeout: float = 120, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a verb to its end."""
    return subprocess.run(
        command(*arguments), env=environment(), cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )


def train_arguments(run: Path, data: Path, *overrides: str, nproc: int = 1) -> list[str]:
    """Arguments of a tiny training run."""
    return ["train", "demo.yaml", f"run.dir={run}", f"data.path={data}", *TINY, *overrides, "--nproc", str(nproc)]


def train(run: Path, data: Path, *overrides: str, nproc: int = 1) -> subprocess.CompletedProcess[str]:
    """Trains a tiny run to its end, whatever that is."""
    return scse_dist(*train_arguments(run, data, *overrides, nproc=nproc))


def metrics(run: Path) -> list[dict[str, Any]]:
    """What the run logged, without what depends on the clock or the machine."""
    keep = ("step", "loss", "num_loops", "lr", "grad_norm", "tokens", "applied")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: record[key] for key in keep} for record in map(json.loads, lines)]
