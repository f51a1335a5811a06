"""The loss falls on text that people wrote."""

import json
import math
import os
from pathlib import Path

import pytest

from tests.helpers.dist import ROOT
from tests.helpers.runs import scse_dist

TEXT = Path(os.environ.get("SCSE_TEST_DATA", ROOT.parent / "shared" / "data")) / "c4"
VOCAB_SIZE = 1024


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not TEXT.is_dir(), reason="needs C4 text; point SCSE_TEST_DATA at a folder with c4/")
def test_the_loss_falls_from_that_of_guessing_on_c4(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    prepared = scse_dist(
        *("prepare", "--source", str(TEXT / "train_1000.jsonl.xz"), "--out", str(data)),
        *("--vocab-size", str(VOCAB_SIZE), "--window", "64", "--workers", "2"),
    )
    assert prepared.returncode == 0, prepared.stderr
    trained = scse_dist(
        *("train", "demo.yaml", f"data.path={data}", f"run.dir={run}", "model.width=64", "model.num_heads=2"),
        *("train.num_steps=250", "evaluate.every=0", "model.init.embedding_std=0.02", "--nproc", "2"),
        timeout=600,
    )
    assert trained.returncode == 0, trained.stderr
    losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert losses[0] == pytest.approx(math.log(VOCAB_SIZE), abs=0.7)
    assert sum(losses[-3:]) / 3 < 5.6
