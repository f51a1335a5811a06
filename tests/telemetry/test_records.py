import json
from pathlib import Path
from typing import Any

import pytest

from scse_dist.errors import UserError
from scse_dist.telemetry.records import EvalRecord, JsonlLog, read_evals, read_records, replace_evals

RECORD = EvalRecord(
    set="test",
    metric="ppl",
    num_loops=8,
    step=500,
    method="scse",
    seed=0,
    config_fingerprint="c",
    data_fingerprint="d",
    precision="fp32",
    max_windows=256,
    value=34.5,
    num_tokens=1000,
)


def record(**changes: Any) -> EvalRecord:
    return RECORD.model_copy(update=changes)


def log_with_steps(path: Path, *steps: int) -> JsonlLog:
    log = JsonlLog(path)
    for step in steps:
        log.append({"step": step, "loss": 1 / step})
    return log


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = [{"step": 1, "loss": 0.1 + 0.2, "num_loops": [3, 1], "applied": True}, {"step": 2, "loss": 1e-300}]
    log = JsonlLog(tmp_path / "metrics.jsonl")
    for entry in written:
        log.append(entry)
    assert list(read_records(log.path)) == written
    assert isinstance(next(read_records(log.path))["step"], int)


def test_what_is_not_finite_becomes_null(tmp_path: Path) -> None:
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.append({"loss": float("nan"), "inner": {"norms": [float("inf"), 1.0, -float("inf")]}})
    assert log.path.read_text() == '{"loss": null, "inner": {"norms": [null, 1.0, null]}}\n'


def test_a_resume_drops_later_records_and_a_torn_line(tmp_path: Path) -> None:
    log = log_with_steps(tmp_path / "metrics.jsonl", 1, 2, 3, 4)
    whole = log.path.read_text()
    log.path.write_text(whole + '{"step": 5, "los')
    log.truncate_after(2)
    assert log.path.read_text() == "".join(whole.splitlines(keepends=True)[:2])
    log.append({"step": 3})
    assert [entry["step"] for entry in read_records(log.path)] == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_torn_line_is_dropped_even_if_its_step_would_stay(tmp_path: Path) -> None:
    log = log_with_steps(tmp_path / "metrics.jsonl", 1)
    with log.path.open("a") as file:
        file.write('{"step": 2, "loss": 3}')  # whole as JSON, but nobody knows
    log.truncate_after(10)
    log.append({"step": 2})
    assert [json.loads(line) for line in log.path.read_text().splitlines()] == [{"step": 1, "loss": 1.0}, {"step": 2}]


def test_a_first_start_has_nothing_to_drop(tmp_path: Path) -> None:
    JsonlLog(tmp_path / "metrics.jsonl").truncate_after(0)
    assert list(tmp_path.iterdir()) == []


def test_readers_pass_over_a_torn_last_line_only(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste')
    assert list(read_records(path)) == [{"step": 1}]
    path.write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2 is damaged .*; remove that line"):
        list(read_records(path))


def test_no_space_left_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^/dev/full: no space left on that disk; free some"):
        JsonlLog(Path("/dev/full")).append({"step": 1})


def test_a_repeated_evaluation_takes_the_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    replace_evals(path, [record(num_loops=1), record(num_loops=2), record(num_loops=4)])
    replace_evals(path, [record(num_loops=8), record(num_loops=2, value=30.0, num_tokens=2000)])
    assert read_evals(path) == [
        record(num_loops=1),
        record(num_loops=2, value=30.0, num_tokens=2000),
        record(num_loops=4),
        record(num_loops=8),
    ]
    assert not list(tmp_path.glob("*partial*"))


@pytest.mark.parametrize(
    "other",
    [
        {"set": "heldout"},
        {"metric": "completion_ppl"},
        {"num_loops": 9},
        {"step": 501},
        {"method": "looped_baseline"},
        {"seed": 1},
        {"config_fingerprint": "other"},
        {"data_fingerprint": "other"},
        {"max_windows": 0},
    ],
)
def test_whatever_changes_the_figure_is_part_of_its_identity(other: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    replace_evals(path, [RECORD])
    replace_evals(path, [record(**other)])
    assert read_evals(path) == [RECORD, record(**other)]


def test_a_figure_that_is_not_finite_is_null(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    replace_evals(path, [record(value=float("inf"))])
    assert json.loads(path.read_text())["value"] is None
    assert read_evals(path) == [record(value=None)]


def test_a_foreign_evaluation_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    path.write_text(json.dumps(RECORD.model_dump() | {"num_loops": "many"}) + "\n")
    with pytest.raises(UserError, match=r"evals\.jsonl: num_loops: .*; move the file away and evaluate again"):
        replace_evals(path, [RECORD])
    assert "many" in path.read_text()


def test_a_run_that_was_not_evaluated_has_no_records(tmp_path: Path) -> None:
    assert read_evals(tmp_path / "evals.jsonl") == []
