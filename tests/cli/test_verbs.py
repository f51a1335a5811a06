"""The verbs one after another on a small real text, and what each says of itself."""

import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from scse_dist import __version__
from scse_dist.__main__ import main
from scse_dist.errors import ExitCode
from scse_dist.telemetry.records import read_evals
from tests.cli.test_bad_input import assert_refused
from tests.data_prep.texts import paragraphs, write_jsonl
from tests.helpers.runs import command, environment, scse_dist, train

WINDOW = 32
VERBS = ("prepare", "train", "eval", "generate", "demo")
METRICS = (
    ("test", "ppl"),
    ("passages/test", "completion_ppl"),
    ("passages/test", "ppl_per_passage"),
    ("passages/test", "token_accuracy"),
    ("passages/test", "word_accuracy"),
)


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a verb that starts no rank in this process, which has its libraries loaded already."""
    out, err = StringIO(), StringIO()
    with patch.object(sys, "argv", ["scse-dist", *arguments]), redirect_stdout(out), redirect_stderr(err):
        with pytest.raises(SystemExit) as end:
            main()
    return subprocess.CompletedProcess(arguments, int(end.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared and trained through the verbs."""
    folder = tmp_path_factory.mktemp("verbs")
    source, data = write_jsonl(folder / "topics.jsonl", paragraphs()[:400]), folder / "data"
    options = ["--vocab-size", "400", "--window", str(WINDOW), "--validation-fraction", "0.1", "--test-fraction", "0.1"]
    prepared = scse_dist("prepare", "--source", str(source), "--out", str(data), *options)
    assert prepared.returncode == ExitCode.DONE, prepared.stderr
    assert f"data.path={data}" in prepared.stdout.splitlines()[-1]
    trained = train(folder / "run", data, "train.num_steps=3")
    assert trained.returncode == ExitCode.DONE, trained.stderr
    assert [json.loads(line)["step"] for line in (folder / "run" / "metrics.jsonl").open()] == [1, 2, 3]
    return folder / "run"


def test_eval_prints_a_row_for_each_figure_it_records(run: Path) -> None:
    done = scse_dist("eval", str(run), "--set", "test", "--set", "passages", "--depths", "1,4")

    assert done.returncode == ExitCode.DONE, done.stderr
    records = {
        (record.set, record.metric, record.num_loops): record.value for record in read_evals(run / "evals.jsonl")
    }
    assert records.keys() == {(name, metric, depth) for name, metric in METRICS for depth in (1, 4)}
    heading, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert heading == ["set", "metric", "T=1*", "T=4*"]
    figures = [row for row in rows if tuple(row[:2]) in METRICS]
    shown = {(name, metric): [float(cell.replace(",", "")) for cell in cells] for name, metric, *cells in figures}
    assert shown.keys() == set(METRICS)
    for (name, metric), cells in shown.items():
        assert cells == pytest.approx([records[name, metric, depth] for depth in (1, 4)], rel=5e-3, abs=1e-4)
    assert "trained on T = 1 to 8; deeper is extra loops" in " ".join(done.stdout.split())


def generate(run: Path, prompt: str, *options: str) -> str:
    done = here("generate", str(run), "--prompt", prompt, "--max-tokens", "12", *options)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert done.stdout.startswith(prompt)
    return done.stdout


def test_generate_repeats_a_seed_and_another_one_says_something_else(run: Path) -> None:
    hot = ("--temperature", "1.5")
    first = generate(run, "The statement", *hot, "--seed", "1")
    assert len(first.strip()) > len("The statement")
    assert generate(run, "The statement", *hot, "--seed", "1") == first
    assert generate(run, "The statement", *hot, "--seed", "2") != first


def test_generate_takes_a_prompt_longer_than_the_model_and_any_depth(run: Path) -> None:
    prompt = "the value of the statement is an object " * 10
    assert len(prompt.split()) > WINDOW  # and a word is a token or more
    assert len(generate(run, prompt, "--temperature", "0", "--num-loops", "24").rstrip()) > len(prompt)


def squeezed(text: str) -> str:
    """Without the frame and the line breaks that a help page's width makes."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_an_example(verb: str) -> None:
    shown = here(verb, "--help")
    assert shown.returncode == ExitCode.DONE
    assert f"scse-dist {verb}" in squeezed(shown.stdout).split("Example")[1]


def test_the_help_lists_the_verbs_and_the_exit_codes() -> None:
    shown = here("--help")
    assert shown.returncode == ExitCode.DONE
    for text in (*VERBS, "--version", "75 checkpointed"):
        assert text in squeezed(shown.stdout)


def test_the_version() -> None:
    shown = here("--version")
    assert (shown.returncode, shown.stdout) == (ExitCode.DONE, f"scse-dist {__version__}\n")


def test_the_shell_completes_verbs() -> None:
    line = " ".join(command("--show-completion")) + "; exit $?"  # a lone command would take the shell's place
    shown = subprocess.run(
        ["bash", "-c", line], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert shown.returncode == ExitCode.DONE, shown.stderr
    assert "complete -o default -F _scse_dist_completion scse-dist" in shown.stdout
    asked = {"_SCSE_DIST_COMPLETE": "complete_bash", "COMP_WORDS": "scse-dist tr", "COMP_CWORD": "1"}
    completed = subprocess.run(
        command(), env=environment() | asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.stdout.split() == ["train"], completed.stderr


def test_help_loads_nothing_heavy() -> None:
    script = f"""
import sys
from scse_dist.__main__ import main
for verb in {["", *VERBS]}:
    sys.argv = ["scse-dist", *verb.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (verb, end.code)
heavy = {{"torch", "deepspeed", "numpy", "streaming", "sentencepiece", "tensorboard", "matplotlib", "transformers"}}
sys.exit(f"loaded: {{heavy & set(sys.modules)}}" if heavy & set(sys.modules) else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == 1 + len(VERBS)


def test_prepare_refuses_sources_without_text_files(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for source in (tmp_path / "text", tmp_path / "text" / "*.txt", tmp_path / "missing"):
        assert_refused(here("prepare", "--source", str(source), "--out", str(tmp_path / "data")), str(source))
        assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_prepare_refuses_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n")
    result = here("prepare", "--source", str(tmp_path / "a.txt"), "--out", str(tmp_path / "data"))
    assert_refused(result, "the corpus is empty")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_prepare_names_file_and_line_of_what_is_not_utf8(tmp_path: Path) -> None:
    source = tmp_path / "menu.txt"
    source.write_bytes(b"good\n\ncaf\xe9\n")
    assert_refused(here("prepare", "--source", str(source), "--out", str(tmp_path / "data")), f"{source}:3: not UTF-8")
    assert [path.name for path in tmp_path.iterdir()] == ["menu.txt"]


def test_prepare_refuses_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """Nobody, not even root, makes a folder in /sys."""
    source = write_jsonl(tmp_path / "topics.jsonl", paragraphs()[:20])
    result = here("prepare", "--source", str(source), "--out", "/sys/data")
    assert_refused(result, "/sys/", "cannot be written", "choose another folder")
    assert [path.name for path in tmp_path.iterdir()] == ["topics.jsonl"]
