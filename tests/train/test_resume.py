"""A run that is stopped or killed and started again equals one that never was, bit for bit."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from scse_dist.checkpoint.open_run import open_run
from scse_dist.errors import ExitCode
from tests.helpers.runs import command, environment, make_data, metrics, train, train_arguments

NUM_STEPS = "train.num_steps=14"  # 40 windows, 4 a step: an epoch ends after step 10
DROPOUT = "model.dropout=0.1"


def weights(run: Path) -> dict[str, torch.Tensor]:
    return open_run(run, None, torch.device("cpu")).model.state_dict()


def assert_same_run(run: Path, reference: Path) -> None:
    assert metrics(run) == metrics(reference)
    theirs = weights(reference)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in weights(run).items())


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if (run / "metrics.jsonl").exists() and len(metrics_lines(run)) >= step:
            return
        time.sleep(0.05)
    raise AssertionError(f"never came to step {step}: {process.communicate()[0] if process.poll() is not None else ''}")


def metrics_lines(run: Path) -> list[str]:
    return (run / "metrics.jsonl").read_text().splitlines()


def start(run: Path, data: Path, *overrides: str, nproc: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*train_arguments(run, data, *overrides, nproc=nproc)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "stage", [2, pytest.param(0, marks=pytest.mark.slow), 3, pytest.param(1, marks=pytest.mark.slow)]
)
def test_going_on_from_a_checkpoint_equals_never_having_stopped(tmp_path: Path, stage: int) -> None:
    """Two ranks, dropout, accumulation, across the end of an epoch."""
    data = make_data(tmp_path / "data")
    settings = (NUM_STEPS, DROPOUT, f"parallel.zero_stage={stage}", "train.microbatch_size=1", "checkpoint.every=6")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert train(whole, data, *settings, nproc=2).returncode == ExitCode.DONE
    shutil.copytree(whole, halves)
    for later in ("step-00000012", "step-00000014"):
        shutil.rmtree(halves / "checkpoints" / later)

    resumed = train(halves, data, *settings, nproc=2)

    assert resumed.returncode == ExitCode.DONE, resumed.stderr
    assert "step-00000006 (step 6)" in resumed.stdout
    assert_same_run(halves, whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)])
def test_a_signal_saves_at_the_next_step_and_asks_to_be_resumed(tmp_path: Path, number: signal.Signals) -> None:
    data = make_data(tmp_path / "data")
    settings = ("train.num_steps=120", DROPOUT)
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    process = start(stopped, data, *settings, nproc=2)
    wait_for_step(stopped, 2, process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == ExitCode.RESUME, output
    steps = len(metrics(stopped))
    assert 2 <= steps < 120
    assert (stopped / "checkpoints" / f"step-{steps:08d}" / "manifest.json").is_file()

    again = train(stopped, data, *settings, nproc=2)
    assert again.returncode == ExitCode.DONE, again.stderr
    assert train(whole, data, *settings, nproc=2).returncode == ExitCode.DONE
    assert_same_run(stopped, whole)


@pytest.mark.slow
def test_killed_ranks_cost_only_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    settings = ("train.num_steps=200", "checkpoint.every=20")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = start(killed, data, *settings, nproc=2)
    wait_for_step(killed, 25, process)
    process.kill()
    process.communicate(timeout=60)
    time.sleep(1)  # the ranks die with their launcher

    again = train(killed, data, *settings, nproc=2)

    assert again.returncode == ExitCode.DONE, again.stderr
    assert "resuming from" in again.stdout
    assert train(whole, data, *settings, nproc=2).returncode == ExitCode.DONE
    assert_same_run(killed, whole)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    data, run = make_data(tmp_path / "data"), tmp_path / "run"
    assert train(run, data, "train.num_steps=3").returncode == ExitCode.DONE
    before = metrics_lines(run)

    again = train(run, data, "train.num_steps=3")

    assert again.returncode == ExitCode.DONE
    assert "finished: 3 steps" in again.stdout
    assert metrics_lines(run) == before
