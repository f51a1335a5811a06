"""What a short run with everything switched on writes down: records, TensorBoard, evaluations, picture, logs."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from launchers import find_recipe
from scse_dist.config import RunConfig, dump_config, load_config, read_config
from scse_dist.data.manifest import read_manifest
from scse_dist.data.resolve import resolve
from scse_dist.errors import ExitCode
from scse_dist.model.depth import depth_at
from scse_dist.model.flops import training_flops_per_token
from scse_dist.telemetry.records import EvalRecord, read_evals
from scse_dist.train.schedule import learning_rate
from tests.helpers.dist import ROOT
from tests.helpers.runs import TINY, WINDOW, make_data, scse_dist, train

NUM_STEPS = 4
TOKENS_PER_STEP = 4 * WINDOW
SETTINGS = (
    f"train.num_steps={NUM_STEPS}",
    "parallel.recompute=every_k_loops",
    "parallel.recompute_interval=2",
    "depth.check_agreement=true",
    "evaluate.every=2",
    "evaluate.sets=[validation]",
    "evaluate.depths=[1,4]",
    "telemetry.tensorboard=true",
)
PLAIN = ("loss", "ppl", "lr", "grad_norm", "num_skipped", "tokens", "num_loops")
PHASES = ("seconds_data", "seconds_forward_backward", "seconds_optimizer")
SPEED = ("tokens_per_s", "flops_per_s", "matmul_share", "memory_bytes", *PHASES)
KEYS = {"step", "applied", "deviation_ratio", "mask_activity", *PLAIN, *SPEED}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    done = train(folder / "run", make_data(folder / "data"), *SETTINGS, nproc=2)
    assert done.returncode == ExitCode.DONE, done.stdout + done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def config(run: Path) -> RunConfig:
    return read_config(run / "config.yaml")


@pytest.fixture(scope="module")
def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def board(run: Path) -> EventAccumulator:
    return read_board(run / "tensorboard")


def read_board(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()


def points(board: EventAccumulator, tag: str) -> dict[int, float]:
    events = board.Scalars(tag)
    assert len({event.step for event in events}) == len(events), f"{tag}: a step has several points"
    return {event.step: event.value for event in events}


def curves(records: list[EvalRecord]) -> dict[tuple[int, int], float | None]:
    return {(record.step, record.num_loops): record.value for record in records}


def test_the_readme_lists_what_is_there(run: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## What a run leaves\n")[1]
    listed = re.findall(r"`([\w./-]+)`", section.split("```")[0])
    assert {"config.yaml", "metrics.jsonl", "evals.jsonl", "tensorboard/", "figures/", "logs/"} <= set(listed)
    for name in listed:
        assert (run / re.sub(r"step-\d+", f"step-{NUM_STEPS:08d}", name)).exists(), name


def test_the_resolved_configuration_reloads_to_the_same_object(run: Path, config: RunConfig) -> None:
    data = run.parent / "data"
    overrides = [f"run.dir={run}", f"data.path={data}", *TINY, *SETTINGS]
    asked = load_config(find_recipe(Path("demo.yaml")), overrides)
    assert config == resolve(asked, read_manifest(data))
    assert (config.data.window, config.model.vocab_size, config.model.num_positions) == (WINDOW, 64, WINDOW)


def test_a_record_has_every_key_on_every_logged_step(records: list[dict[str, Any]]) -> None:
    assert [record["step"] for record in records] == list(range(1, NUM_STEPS + 1))
    for record in records:
        assert set(record) == KEYS


def test_records_say_what_was_learnt_from(records: list[dict[str, Any]], config: RunConfig) -> None:
    for record in records:
        before = record["step"] - 1
        assert math.log(64) - 1 < record["loss"] < math.log(64) + 2
        assert record["ppl"] == pytest.approx(math.exp(record["loss"]))
        assert record["num_loops"] == depth_at(config.depth, config.seed, before)
        assert record["lr"] == learning_rate(config.optim, NUM_STEPS, before) > 0
        assert 0 < record["grad_norm"] < math.inf
        assert (record["applied"], record["num_skipped"]) == (True, 0)
        assert record["tokens"] == record["step"] * TOKENS_PER_STEP
    assert len({record["num_loops"] for record in records}) > 1


def test_speed_is_tokens_and_operations_of_the_drawn_depth_over_the_time_spent(
    records: list[dict[str, Any]], config: RunConfig
) -> None:
    for record in records:
        assert all(record[phase] > 0 for phase in PHASES)
        seconds = sum(record[phase] for phase in PHASES)
        assert record["tokens_per_s"] == pytest.approx(TOKENS_PER_STEP / seconds)
        per_token = training_flops_per_token(config.model, record["num_loops"], WINDOW)
        assert record["flops_per_s"] == pytest.approx(per_token * record["tokens_per_s"])
        assert 0 < record["matmul_share"] < 1
        assert 50e6 < record["memory_bytes"] < 50e9  # a process that has loaded torch


def test_the_unroll_is_followed_from_the_start_to_the_drawn_depth(records: list[dict[str, Any]]) -> None:
    for record in records:
        ratios = record["deviation_ratio"]
        assert len(ratios) == record["num_loops"] + 1
        assert all(0 < ratio < math.inf for ratio in ratios)
        assert record["mask_activity"] == [1.0] * len(ratios)


def test_tensorboard_shows_the_records(board: EventAccumulator, records: list[dict[str, Any]]) -> None:
    for group, keys in (("train", PLAIN), ("speed", SPEED)):
        for key in keys:
            expected = {record["step"]: record[key] for record in records}
            assert points(board, f"{group}/{key}") == pytest.approx(expected, rel=1e-6)


def test_tensorboard_shows_loss_and_unroll_by_depth(board: EventAccumulator, records: list[dict[str, Any]]) -> None:
    drawn = {record["num_loops"] for record in records}
    for depth in drawn:
        expected = {record["step"]: record["loss"] for record in records if record["num_loops"] == depth}
        assert points(board, f"train_by_depth/loss_T={depth:02d}") == pytest.approx(expected)
    for depth in range(max(drawn) + 1):
        reached = [record for record in records if record["num_loops"] >= depth]
        for key in ("deviation_ratio", "mask_activity"):
            expected = {record["step"]: record[key][depth] for record in reached}
            assert points(board, f"unroll/{key}_t={depth:02d}") == pytest.approx(expected)
    groups = {tag.split("/")[0] for tag in board.Tags()["scalars"]}
    assert groups == {"train", "speed", "train_by_depth", "unroll", "eval"}


def test_tensorboard_has_the_evaluations_their_picture_and_the_configuration(
    run: Path, board: EventAccumulator, config: RunConfig
) -> None:
    values = curves(read_evals(run / "evals.jsonl"))
    for depth in (1, 4):
        expected = {step: values[step, depth] for step in (2, 4)}
        assert points(board, f"eval/validation/ppl@{depth}") == pytest.approx(expected)
    assert [image.step for image in board.Images("eval/depth-response")] == [2, 4]
    (text,) = board.Tensors("config/text_summary")
    shown = text.tensor_proto.string_val[0].decode().rstrip()
    assert [line.removeprefix(" " * 4) for line in shown.splitlines()] == dump_config(config).splitlines()


def test_the_depth_response_is_a_picture(run: Path) -> None:
    picture = (run / "figures" / "depth-response.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 10_000
    assert [path.name for path in (run / "figures").iterdir()] == ["depth-response.png"]


def test_the_other_rank_has_a_log_and_repeats_nothing(run: Path) -> None:
    (log,) = (run / "logs").iterdir()
    assert log.name == "rank-00001.log"
    assert "step 1/" not in log.read_text()


def test_evaluating_again_from_outside_replaces_its_record(run: Path, config: RunConfig, tmp_path: Path) -> None:
    """One process instead of two, from the checkpoint instead of the engine: the same figures."""
    trained = read_evals(run / "evals.jsonl")
    assert [(record.step, record.num_loops) for record in trained] == [(2, 1), (2, 4), (4, 1), (4, 4)]
    assert len({record.identity for record in trained}) == len(trained)
    assert {(record.set, record.metric, record.num_tokens) for record in trained} == {("validation", "ppl", 8 * WINDOW)}

    copy = Path(shutil.copytree(run, tmp_path / "run"))
    same = ["--set", "validation", "--depths", "1,4", "--max-windows", str(config.evaluate.max_windows)]
    done = scse_dist("eval", str(copy), *same)

    assert done.returncode == ExitCode.DONE, done.stderr
    again = read_evals(copy / "evals.jsonl")
    assert [record.identity for record in again] == [record.identity for record in trained]
    assert curves(again) == pytest.approx(curves(trained), rel=1e-6)
    assert len((copy / "evals.jsonl").read_text().splitlines()) == len(trained)
    for depth in (1, 4):
        shown = points(read_board(copy / "tensorboard" / "eval"), f"eval/validation/ppl@{depth}")
        assert shown == pytest.approx({4: curves(again)[4, depth]})
