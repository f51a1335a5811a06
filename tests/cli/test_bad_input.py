"""Each mistake of a user gets one line that names the key, the value and a way out, exit code 2 and nothing written."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from launchers import find_recipe
from scse_dist.__main__ import main
from scse_dist.cli.demo import ranks_for
from scse_dist.config import load_config
from scse_dist.errors import ExitCode
from tests.helpers.damage import flip_a_byte
from tests.helpers.runs import TINY, make_data, train, train_arguments


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("bad-input") / "data")


class Outcome(NamedTuple):
    """What a verb that was run in this process left behind."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs a verb in this process: most mistakes are found before a rank would be started."""

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["scse-dist", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Outcome(int(end.value.code or 0), captured.out, captured.err)

    return run


def assert_refused(result: subprocess.CompletedProcess[str] | Outcome, *expected: str) -> None:
    assert result.returncode == ExitCode.USER_ERROR, (result.returncode, result.stdout, result.stderr)
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("scse-dist: ")
    for text in expected:
        assert text in lines[0]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model.widht=64", ["unknown key model.widht", "did you mean model.width?"]),
        ("model.num_heads=5", ["model.num_heads=5 does not divide model.width=32"]),
        ("depth.min=9", ["depth.min=9 exceeds depth.max=8"]),
        ("depth.min=0", ["depth.min=0"]),
        ("depth.max=-1", ["depth.max=-1"]),
        ("evaluate.depths=[4,2]", ["evaluate.depths=[4, 2]", "ascending"]),
        ("model.method.gain=0.2", ["unknown key model.method.gain", "valid for scse"]),
        ("data.window=32", ["data.window=32 exceeds the shards' window of 16"]),
        ("data.window=5", ["data.window=5 does not divide the shards' window of 16", "[1, 2, 4, 8, 16]"]),
        ("model.num_positions=8", ["data.window=16 exceeds model.num_positions=8"]),
        ("model.vocab_size=100", ["model.vocab_size=100 does not match the 64 pieces"]),
        ("data.path=/nowhere", ["data.path=/nowhere", "no such folder"]),
        ("train.global_batch_size=3", ["train.global_batch_size=3 cannot be shared by 2 ranks"]),
        ("train.microbatch_size=4", ["train.microbatch_size=4 does not divide the 2 windows", "use one of [1, 2]"]),
        ("train.global_batch_size=64", ["40 windows, fewer than"]),
        ("parallel.ds_config=/nowhere.json", ["parallel.ds_config=/nowhere.json", "No such file"]),
        ("evaluate={every: 1, sets: [dev]}", ["evaluate.sets='dev' is not in"]),
        ("precision=fp16", ["precision='fp16'"]),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(
    data: Path, tmp_path: Path, run_here: Callable[..., Outcome], override: str, expected: list[str]
) -> None:
    run = tmp_path / "run"
    assert_refused(run_here(*train_arguments(run, data, override, nproc=2)), *expected)
    assert not run.exists()


@pytest.mark.parametrize(
    ("override", "way_out"),
    [("parallel.backend=nccl", "set parallel.backend=gloo"), ("parallel.device=cuda", "set parallel.device=cpu")],
)
def test_a_device_that_is_not_here_is_refused(data: Path, tmp_path: Path, override: str, way_out: str) -> None:
    assert_refused(train(tmp_path / "run", data, override), override, way_out)
    assert not (tmp_path / "run").exists()


def test_an_empty_and_a_foreign_data_folder_are_told_apart_from_data(
    tmp_path: Path, run_here: Callable[..., Outcome]
) -> None:
    (tmp_path / "empty").mkdir()
    result = run_here(*train_arguments(tmp_path / "run", tmp_path / "empty"))
    assert_refused(result, "holds no manifest.json", "scse-dist prepare")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "manifest.json").write_text("{}")
    assert_refused(run_here(*train_arguments(tmp_path / "run", foreign)), "format_version=None")


def test_a_run_folder_of_another_configuration_names_the_keys(
    data: Path, tmp_path: Path, run_here: Callable[..., Outcome]
) -> None:
    run = tmp_path / "run"
    assert train(run, data, "train.num_steps=1").returncode == ExitCode.DONE
    before = (run / "config.yaml").read_text()
    result = run_here(*train_arguments(run, data, "train.num_steps=1", "optim.lr=0.5", "seed=3"))
    assert_refused(result, "another configuration", "seed (0 -> 3)", "optim.lr (0.002 -> 0.5)")
    assert (run / "config.yaml").read_text() == before


def test_a_folder_that_is_not_a_run_is_left_alone(data: Path, tmp_path: Path, run_here: Callable[..., Outcome]) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    result = run_here(*train_arguments(tmp_path / "precious", data, nproc=2))
    assert_refused(result, "not empty and not a run folder")
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["thesis.txt"]


def test_two_runs_on_one_folder_the_second_names_the_first(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    hold = (
        "import sys; from pathlib import Path; from scse_dist.run_folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).locked(): print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    holder.stdout.readline()
    assert_refused(train(run, data), f"in use by process {holder.pid} on ")
    holder.communicate()


def test_a_ds_config_that_contradicts_the_recipe_names_both(
    data: Path, tmp_path: Path, run_here: Callable[..., Outcome]
) -> None:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 2}, "gradient_clipping": 0.5}))
    result = run_here(*train_arguments(tmp_path / "run", data, f"parallel.ds_config={file}"))
    assert_refused(result, "gradient_clipping=0.5 contradicts the recipe's optim.grad_clip")
    file.write_text(json.dumps({"zero_optimization": {"stage": 1}}))
    result = run_here(*train_arguments(tmp_path / "run", data, f"parallel.ds_config={file}"))
    assert_refused(result, "zero_optimization.stage=1 contradicts parallel.zero_stage=2")


def test_another_tokenizer_and_none_are_refused(tmp_path: Path, run_here: Callable[..., Outcome]) -> None:
    data = make_data(tmp_path / "data")
    (data / "tokenizer.model").write_bytes(b"another one")
    refused = run_here(*train_arguments(tmp_path / "run", data, nproc=2))
    assert_refused(refused, "tokenizer.model: is not the tokenizer these shards were written with")
    (data / "tokenizer.model").unlink()
    assert_refused(run_here(*train_arguments(tmp_path / "run", data)), "tokenizer.model: No such file")
    assert not (tmp_path / "run").exists()


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    shard = next((data / "train").glob("shard.*.mds"))
    flip_a_byte(shard)
    result = train(tmp_path / "run", data, "train.num_steps=30")
    assert_refused(result, str(shard), "is not what the manifest says")
    shard.unlink()
    assert_refused(train(tmp_path / "run", data, "train.num_steps=30"), str(shard), "No such file")


def test_recipes_are_found_by_name_or_refused_with_the_list(run_here: Callable[..., Outcome]) -> None:
    assert_refused(run_here("train", "dmeo.yaml"), "dmeo.yaml: no such recipe", "demo.yaml")


@pytest.mark.parametrize("depths", ["0,1", "4,2", "1,1", "x", ""])
def test_a_wrong_list_of_depths_is_refused(run_here: Callable[..., Outcome], depths: str) -> None:
    assert_refused(run_here("eval", "runs/none", "--depths", depths), f"--depths={depths}")


def test_generating_with_what_is_no_run_or_without_a_prompt(tmp_path: Path, run_here: Callable[..., Outcome]) -> None:
    assert_refused(run_here("generate", str(tmp_path), "--prompt", "a"), "not a run folder")
    assert_refused(run_here("generate", str(tmp_path), "--prompt", ""), "--prompt=''")


@pytest.mark.parametrize("arguments", ["trian", "train", "train demo.yaml --nporc 2", "train demo.yaml --nproc 0"])
def test_unknown_verbs_and_options_end_with_2(run_here: Callable[..., Outcome], arguments: str) -> None:
    assert run_here(*arguments.split()).returncode == ExitCode.USER_ERROR


def test_nproc_under_a_foreign_launcher_is_an_error(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    assert_refused(train(tmp_path / "run", data), "--nproc=1", "leave --nproc out")


def test_a_dry_run_under_a_foreign_launcher_trains_nothing(
    data: Path, tmp_path: Path, run_here: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    arguments = train_arguments(tmp_path / "run", data)
    result = run_here(*arguments[: arguments.index("--nproc")], "--dry-run")
    assert result.returncode == ExitCode.DONE
    assert "ranks: 2" in result.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("num_gpus", "ranks"), [(0, 2), (1, 1), (2, 2), (3, 2), (4, 4), (8, 8), (64, 16)])
def test_the_demo_uses_the_gpus_that_its_batch_can_be_shared_by(num_gpus: int, ranks: int) -> None:
    assert ranks_for(load_config(find_recipe(Path("demo.yaml"))), num_gpus) == ranks


def test_debug_shows_the_traceback(run_here: Callable[..., Outcome]) -> None:
    result = run_here("train", "demo.yaml", "model.width=oops", "--debug")
    assert result.returncode == ExitCode.USER_ERROR
    assert "Traceback" in result.stderr


def test_dry_run_says_what_would_be_trained_and_writes_nothing(
    data: Path, tmp_path: Path, run_here: Callable[..., Outcome]
) -> None:
    run = tmp_path / "run"
    result = run_here("train", "demo.yaml", f"run.dir={run}", f"data.path={data}", *TINY, "--dry-run", "--nproc", "2")
    assert result.returncode == ExitCode.DONE, result.stderr
    assert "depths: 4 3 7 8 5 3 8 5 7 1 4 6 7 5 1 8 7 6 3 1" in result.stdout
    assert "tokens per step: 64" in result.stdout
    assert "vocab_size: 64" in result.stdout
    assert not run.exists()
