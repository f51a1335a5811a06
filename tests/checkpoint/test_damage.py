"""What a start does when checkpoints are damaged, foreign or cannot be written."""

import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scse_dist.checkpoint.manifest import published
from scse_dist.checkpoint.save import retain
from scse_dist.checkpoint.weights import find_checkpoint
from scse_dist.errors import ExitCode
from tests.helpers.damage import cut_in_half, flip_a_byte
from tests.helpers.runs import command, environment, make_data, metrics, train, train_arguments

STEPS = ("train.num_steps=6", "checkpoint.every=2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of 6 steps with checkpoints of steps 2, 4 and 6, and its data."""
    root = tmp_path_factory.mktemp("finished")
    data, run = make_data(root / "data"), root / "run"
    result = train(run, data, *STEPS)
    assert result.returncode == ExitCode.DONE, result.stderr
    return run, data


def copy_of(run: Path, to: Path) -> Path:
    shutil.copytree(run, to)
    return to


def largest_file(checkpoint: Path) -> Path:
    return max((checkpoint / "engine").iterdir(), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("damage", [flip_a_byte, cut_in_half, Path.unlink])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_it_used(
    finished: tuple[Path, Path], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    run = copy_of(finished[0], tmp_path / "run")
    broken = largest_file(run / "checkpoints" / "step-00000006")
    damage(broken)

    result = train(run, finished[1], *STEPS)

    assert result.returncode == ExitCode.DONE, result.stderr
    assert f"WARNING: {broken}" in result.stdout
    assert "(step 4)" in result.stdout
    assert metrics(run) == metrics(finished[0])


def test_without_one_whole_checkpoint_the_run_stops_instead_of_starting_over(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    run = copy_of(finished[0], tmp_path / "run")
    for checkpoint in published(run / "checkpoints"):
        flip_a_byte(largest_file(checkpoint))

    result = train(run, finished[1], *STEPS)

    assert result.returncode == ExitCode.USER_ERROR
    assert "none of 3 checkpoints is whole" in result.stderr


def test_a_checkpoint_without_manifest_does_not_count(finished: tuple[Path, Path], tmp_path: Path) -> None:
    run = copy_of(finished[0], tmp_path / "run")
    (run / "checkpoints" / "step-00000006" / "manifest.json").unlink()

    result = train(run, finished[1], *STEPS)

    assert result.returncode == ExitCode.DONE, result.stderr
    assert "(step 4)" in result.stdout


def test_a_damaged_manifest_falls_back_like_a_damaged_shard(finished: tuple[Path, Path], tmp_path: Path) -> None:
    run = copy_of(finished[0], tmp_path / "run")
    cut_in_half(run / "checkpoints" / "step-00000006" / "manifest.json")

    result = train(run, finished[1], *STEPS)

    assert result.returncode == ExitCode.DONE, result.stderr
    assert "WARNING" in result.stdout
    assert "(step 4)" in result.stdout
    assert find_checkpoint(run / "checkpoints", 2).name == "step-00000002"


def test_retention_never_counts_what_lies_beyond_the_step_just_saved(tmp_path: Path) -> None:
    """After a fallback the damaged later checkpoint must not push out the good one."""
    for step in (4, 6, 12):
        folder = tmp_path / f"step-{step:08d}"
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
    retain(tmp_path / "step-00000006", keep_last=1)
    assert [path.name for path in published(tmp_path)] == ["step-00000012", "step-00000006"]


def test_a_copy_of_a_checkpoint_under_another_name_is_none_of_the_runs(tmp_path: Path) -> None:
    for name in ("step-00000005", "step-5-good", "step-00000015", "step-100000000", "step-15"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    assert [path.name for path in published(tmp_path)] == ["step-100000000", "step-00000015", "step-00000005"]


def test_a_checkpoint_of_another_method_is_refused(finished: tuple[Path, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished[0] / "checkpoints", run / "checkpoints")
    (run / "config.yaml").write_text(
        (finished[0] / "config.yaml").read_text().replace("name: scse", "name: looped_baseline")
        .replace("    projection_scale: 0.1\n    mask_eps: 1.0e-08\n", "    gain: 0.15\n")
    )  # fmt: skip

    result = train(run, finished[1], *STEPS, "model.method.name=looped_baseline", "model.method.step_scale=0.5")

    assert result.returncode == ExitCode.USER_ERROR
    assert "model.method.name scse, this run has looped_baseline" in result.stderr


def test_another_number_of_ranks_is_refused_by_name(finished: tuple[Path, Path], tmp_path: Path) -> None:
    run = copy_of(finished[0], tmp_path / "run")

    result = train(run, finished[1], *STEPS, nproc=2)

    assert result.returncode == ExitCode.USER_ERROR
    assert "number of ranks 1, this run has 2; use --nproc 1" in result.stderr


def test_a_save_that_cannot_be_written_leaves_the_earlier_checkpoints(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    """A limit on the size of files stands in for a full disk: the shards do not fit, small files do."""
    run = copy_of(finished[0], tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "step-00000006")
    before = sorted(run.rglob("step-*/**/*"))

    result = subprocess.run(
        command(*train_arguments(run, finished[1], *STEPS)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
    )

    assert result.returncode == ExitCode.USER_ERROR, result.stderr
    assert "not saved (rank 0: File too large); earlier checkpoints are as they were" in result.stderr
    assert sorted(run.rglob("step-*/**/*")) == before
    assert not list((run / "checkpoints").glob(".*partial"))


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    data, run = make_data(tmp_path / "data"), tmp_path / "run"
    result = train(run, data, "train.num_steps=5", "checkpoint.every=1", "checkpoint.keep_last=2")
    assert result.returncode == ExitCode.DONE, result.stderr
    assert [path.name for path in published(run / "checkpoints")] == ["step-00000005", "step-00000004"]
    assert (run / "checkpoints" / "latest").read_text() == "step-00000005\n"
