"""The main job, as a newcomer meets it: ``scse-dist demo`` in an empty folder."""

import json
import math
from pathlib import Path

import pytest

from scse_dist.telemetry.records import read_evals
from tests.helpers.runs import scse_dist

VOCAB_SIZE = 2048
DEPTHS = [1, 2, 4, 8, 12, 16, 24, 32, 48]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo_goes_from_text_to_a_depth_curve_and_a_second_one_reuses_it(tmp_path: Path) -> None:
    first = scse_dist("demo", cwd=tmp_path, timeout=1500)
    assert first.returncode == 0, first.stdout + first.stderr
    run = tmp_path / "runs" / "demo"

    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == 700
    assert all(record["applied"] for record in records)
    assert records[-1]["loss"] < 5.2 < math.log(VOCAB_SIZE) < records[0]["loss"] < 12

    evals = {(record.set, record.metric, record.num_loops): record.value for record in read_evals(run / "evals.jsonl")}
    for name in ("test", "heldout"):
        assert [depth for depth in DEPTHS if (name, "ppl", depth) in evals] == DEPTHS
    best = evals["test", "ppl", 4]
    assert best is not None
    assert best < 150
    assert ("passages/test", "word_accuracy", 8) in evals
    assert (run / "figures" / "depth-response.png").stat().st_size > 10_000
    assert list((run / "tensorboard").glob("events.*"))
    assert "Return the" in first.stdout

    again = scse_dist("demo", cwd=tmp_path, timeout=600)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "resuming from runs/demo/checkpoints/step-00000700" in again.stdout
    assert "finished: 700 steps" in again.stdout
    assert [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] == records
    assert {(r.set, r.metric, r.num_loops): r.value for r in read_evals(run / "evals.jsonl")} == evals
