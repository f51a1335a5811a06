"""Real processes throughout; the ranks are small scripts, so that hundreds of them cost seconds."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launchers.local import default_nproc, launch
from scse_dist.errors import ExitCode, UserError
from tests.helpers.dist import ROOT, start_launcher

HANG_S = 30
"""Longer than anything here should take; only a failing test waits so long."""


def run(script: str, nproc: int = 2, log_dir: Path | None = None) -> tuple[int, str]:
    launcher = start_launcher([sys.executable, "-S", "-c", PRELUDE + script], nproc, log_dir)
    output, _ = launcher.communicate(timeout=HANG_S)
    return launcher.returncode, output


PRELUDE = """
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def read_pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((0, 0), ExitCode.DONE),
        ((2, 2), ExitCode.USER_ERROR),
        ((0, 2), ExitCode.USER_ERROR),
        ((75, 75), ExitCode.RESUME),
        ((0, 75), ExitCode.RESUME),
        ((0, 70), ExitCode.LOST_RANK),
        ((75, 70), ExitCode.LOST_RANK),
        ((1, 0), ExitCode.FAULT),
        ((75, 3), ExitCode.FAULT),
        ((2, 1, 70), ExitCode.USER_ERROR),
    ],
)
def test_exit_code_follows_from_the_ranks_codes(codes: tuple[int, ...], expected: ExitCode) -> None:
    assert run(f"sys.exit({codes}[rank])", nproc=len(codes))[0] == expected


@pytest.mark.parametrize(
    ("first", "consequence", "expected"),
    [
        ("sys.exit(1)", "sys.exit(70)", ExitCode.FAULT),
        ("sys.exit(1)", "os.abort()", ExitCode.FAULT),
        ("sys.exit(70)", "sys.exit(1)", ExitCode.LOST_RANK),
        ("os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(1)", ExitCode.LOST_RANK),
        ("sys.exit(2)", "sys.exit(70)", ExitCode.USER_ERROR),
    ],
)
def test_the_first_bad_ending_decides(first: str, consequence: str, expected: ExitCode) -> None:
    code, _ = run(f"if rank == 1: {first}\ntime.sleep(0.5)\n{consequence}")
    assert code == expected


def test_a_killed_rank_ends_the_job_and_leaves_nobody(tmp_path: Path) -> None:
    script = f"""
open(f"{tmp_path}/{{os.getpid()}}", "w").close()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
child = subprocess.Popen(["sleep", "300"])
open(f"{tmp_path}/{{child.pid}}", "w").close()
child.wait()
"""
    code, output = run(script, nproc=3)
    assert code == ExitCode.LOST_RANK
    assert "rank 1 of 3 ended with SIGKILL" in output
    pids = read_pids(tmp_path)
    assert len(pids) == 5
    assert not any(is_running(pid) for pid in pids)


def test_ranks_and_their_children_die_with_a_killed_launcher(tmp_path: Path) -> None:
    script = f"""
child = subprocess.Popen(["sleep", "300"])
for pid in (os.getpid(), child.pid):
    open(f"{tmp_path}/{{pid}}", "w").close()
child.wait()
"""
    launcher = start_launcher([sys.executable, "-S", "-c", PRELUDE + script], nproc=2)
    wait_until(lambda: len(read_pids(tmp_path)) == 4)
    assert all(is_running(pid) for pid in read_pids(tmp_path))
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any(is_running(pid) for pid in read_pids(tmp_path)))


def test_the_kernel_ends_the_ranks_even_without_a_guard(tmp_path: Path) -> None:
    script = f"open(f'{tmp_path}/{{os.getpid()}}', 'w').close()\ntime.sleep(300)"
    launcher = start_launcher([sys.executable, "-S", "-c", PRELUDE + script], nproc=2)
    wait_until(lambda: len(read_pids(tmp_path)) == 2)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    (guard,) = {int(pid) for pid in children} - set(read_pids(tmp_path))
    os.kill(guard, signal.SIGKILL)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any(is_running(pid) for pid in read_pids(tmp_path)))


def test_what_a_finished_rank_left_running_is_ended(tmp_path: Path) -> None:
    script = f"""
child = subprocess.Popen(["sleep", "300"])
open(f"{tmp_path}/{{child.pid}}", "w").close()
"""
    assert run(script)[0] == ExitCode.DONE
    assert len(read_pids(tmp_path)) == 2
    assert not any(is_running(pid) for pid in read_pids(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_reaches_each_rank_exactly_once(number: signal.Signals, tmp_path: Path) -> None:
    script = f"""
received = []
signal.signal({int(number)}, lambda number, _: received.append(number))
open(f"{tmp_path}/{{os.getpid()}}", "w").close()
while not received:
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(75 if len(received) == 1 else 1)
"""
    launcher = start_launcher([sys.executable, "-S", "-c", PRELUDE + script], nproc=2)
    wait_until(lambda: len(read_pids(tmp_path)) == 2)
    os.killpg(launcher.pid, number)  # to the whole group, as a terminal does it
    output, _ = launcher.communicate(timeout=HANG_S)
    assert launcher.returncode == ExitCode.RESUME, output


def test_a_second_interrupt_kills_at_once(tmp_path: Path) -> None:
    script = f"""
signal.signal(signal.SIGINT, lambda *_: open(f"{tmp_path}/heard-{{rank}}", "w").close())
open(f"{tmp_path}/{{rank}}", "w").close()
while True:
    time.sleep(1)
"""
    launcher = start_launcher([sys.executable, "-S", "-c", PRELUDE + script], nproc=2)
    wait_until(lambda: {path.name for path in tmp_path.iterdir()} == {"0", "1"})
    launcher.send_signal(signal.SIGINT)
    wait_until(lambda: {path.name for path in tmp_path.iterdir()} == {"0", "1", "heard-0", "heard-1"})
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=HANG_S)
    assert launcher.returncode == ExitCode.LOST_RANK


def test_ranks_are_told_their_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"]
    script = f"open(f'{tmp_path}/{{rank}}', 'w').write(' '.join(os.environ[name] for name in {names}))"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("RANK", "7")
    assert run(script, nproc=2)[0] == ExitCode.DONE
    places = [(tmp_path / str(rank)).read_text().split() for rank in range(2)]
    num_threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert places == [[str(rank)] * 2 + ["2", "2", "127.0.0.1", places[0][5], num_threads] for rank in range(2)]
    assert 1024 <= int(places[0][5]) < 65536

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert run(script, nproc=2)[0] == ExitCode.DONE
    assert (tmp_path / "1").read_text().split()[-1] == "3"


def test_rank_0_keeps_the_terminal_and_the_others_append_to_their_logs(tmp_path: Path) -> None:
    script = "print('I am', rank); print('careful', rank, file=sys.stderr)"
    for _ in range(2):
        code, output = run(script, nproc=3, log_dir=tmp_path / "logs")
        assert code == ExitCode.DONE
        assert sorted(output.splitlines()) == ["I am 0", "careful 0"]
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["rank-00001.log", "rank-00002.log"]
    assert (tmp_path / "logs" / "rank-00002.log").read_text().count("I am 2") == 2


def on_terminal(script: str) -> tuple[int, bytes]:
    ours, theirs = os.openpty()
    code = f"import sys; from launchers.local import launch; sys.exit(launch({[sys.executable, '-c', script]}, 2))"
    finished = subprocess.run([sys.executable, "-c", code], stdout=theirs, cwd=ROOT, check=False, timeout=HANG_S)
    os.close(theirs)
    received = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 4096):
            received += piece
    os.close(ours)
    return finished.returncode, received


def test_rank_0_sees_a_terminal_where_its_launcher_has_one() -> None:
    script = "import os, sys; sys.exit(75 if os.isatty(1) == (os.environ['RANK'] == '0') else 1)"
    assert on_terminal(script) == (ExitCode.RESUME, b"")


def test_the_cursor_that_a_killed_rank_0_hid_comes_back() -> None:
    hide = "import os; print('\\x1b[?25l', end='', flush=True); os.kill(os.getpid(), 9)"
    assert on_terminal(hide) == (ExitCode.LOST_RANK, b"\x1b[?25l\x1b[?25h")


def test_the_end_of_the_first_failed_ranks_log_is_shown(tmp_path: Path) -> None:
    (tmp_path / "rank-00001.log").write_text("from an older launch\n")
    script = "if rank == 1: print(*range(100), sep='\\n'); sys.exit(1)\ntime.sleep(0.5)\nsys.exit(70)"
    _, output = run(script, log_dir=tmp_path)
    heading, *lines = output.splitlines()
    assert heading.startswith("rank 1 of 2 ended with exit code 1; its last lines (all of them in ")
    assert lines == [str(number) for number in range(80, 100)]
    _, output = run("if rank == 1: sys.exit(1)", log_dir=tmp_path)
    assert output == "rank 1 of 2 ended with exit code 1\n"


def test_a_users_error_on_all_ranks_is_told_once() -> None:
    code, output = run(
        "if rank == 0: time.sleep(0.5)\nprint('depth.max=0: use 8', file=sys.stderr); sys.exit(2)", nproc=3
    )
    assert code == ExitCode.USER_ERROR
    assert output == "depth.max=0: use 8\n"


def test_logs_that_cannot_be_written_are_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"logs: cannot write logs here \(File exists\); choose another run.dir"):
        launch([sys.executable, "-c", ""], 2, tmp_path / "logs")


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, 3), ("0,2", 2), ("", 1), ("-1", 1), ("GPU-aaa", 1), ("0,1,2", 3)]
)
def test_one_rank_per_visible_gpu(
    visible: str | None, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nfor i in 0 1 2; do echo \"GPU $i: A (UUID: GPU-$i)\"; echo '  MIG 1g'; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert default_nproc() == expected


def test_one_rank_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert default_nproc() == 1


def test_the_launcher_starts_without_torch() -> None:
    code = "import sys, launchers.local; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
