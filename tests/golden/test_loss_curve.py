"""The loss curve of one small run, stored, so that no change moves training unnoticed.

After a change that is meant to move it, renew it and look at the difference before it is committed:

    python -m tests.golden.test_loss_curve
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.runs import metrics, scse_dist
from tests.helpers.shards import write_data_folder

HERE = Path(__file__).parent
RECIPE, STORED = HERE / "loss_curve.yaml", HERE / "loss_curve.json"
WINDOW = 16
TOLERANCE = 1e-6
"""Relative. One thread and one rank leave no order of sums open but the processor's own."""


def train_curve(folder: Path) -> dict[str, list[float]]:
    """Trains on a sequence that can be learned: each token follows from the one before and the place in a cycle."""
    positions = np.arange(60 * WINDOW + 1)
    tokens = (positions * 7 + positions // 11 * 5) % 61
    write_data_folder(folder / "data", {"train": tokens, "validation": tokens[: WINDOW + 1]}, WINDOW, vocab_size=61)
    ended = scse_dist("train", str(RECIPE), f"run.dir={folder / 'run'}", f"data.path={folder / 'data'}", "--nproc", "1")
    assert ended.returncode == 0, ended.stderr
    logged = metrics(folder / "run")
    return {key: [record[key] for record in logged] for key in ("num_loops", "lr", "loss", "grad_norm")}


def test_the_loss_curve_is_the_stored_one(tmp_path: Path):
    stored, curve = json.loads(STORED.read_text()), train_curve(tmp_path)
    assert curve["num_loops"] == stored["num_loops"]
    assert curve["lr"] == pytest.approx(stored["lr"], rel=1e-12)
    assert curve["loss"] == pytest.approx(stored["loss"], rel=TOLERANCE)
    assert curve["grad_norm"] == pytest.approx(stored["grad_norm"], rel=20 * TOLERANCE)


def test_the_stored_curve_falls_from_a_uniform_guess():
    losses = json.loads(STORED.read_text())["loss"]
    assert losses[0] == pytest.approx(np.log(61), rel=0.1)
    assert np.mean(losses[-5:]) < losses[0] - 0.5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        STORED.write_text(json.dumps(train_curve(Path(scratch)), indent=1) + "\n")
    print(f"renewed {STORED}")
