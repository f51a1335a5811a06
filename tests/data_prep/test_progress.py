import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep import progress as progress_module
from data_prep.progress import progress

ROOT = Path(__file__).parents[2]

SCRIPT = """
import time
from data_prep.progress import progress
with progress("reading", {total}, print) as advance:
    for _ in range(4):
        advance(1_000_000)
        time.sleep(0.15)
print("done")
"""


@pytest.mark.parametrize("total", [4_000_000, None])
def test_a_terminal_gets_a_bar_that_goes_away(total: int | None) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(total=total)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 20).decode()
    os.close(ours)
    assert "reading" in shown
    assert "MB" in shown
    assert process.stdout == b"done\n"


def test_elsewhere_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: float(next(clock)))
    lines: list[str] = []
    with progress("writing train", 8_000_000, lines.append) as advance:
        for _ in range(8):
            advance(1_000_000)
    assert lines
    assert len(lines) < 8
    assert lines[0] == "writing train: 2 MB of 8 MB"
