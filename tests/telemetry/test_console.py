import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import pytest

from scse_dist.telemetry.console import Console
from tests.helpers.dist import ROOT

SCRIPT = """
import time
from scse_dist.telemetry.console import Console
console = Console(600, 100)
console.say("resumed from checkpoints/step-00000100 [newest]")
for step in range(101, 106):
    console.step(step)
    time.sleep(0.05)
console.show(105, "loss 4.1234  T 5  lr 3.00e-04  |g| 1.23  12,345 tokens/s")
console.close()
"""


def on_terminal(columns: int) -> list[str]:
    """What a terminal of that width receives from the script, without control sequences, line by line."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    hidden = ("COLUMNS", "NO_COLOR", "CI")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | {"TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=theirs, stderr=theirs, cwd=ROOT, env=environment
    ) as run:
        os.close(theirs)
        received = b""
        try:
            while piece := os.read(ours, 65536):
                received += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert run.returncode == 0, received
    return [line.rstrip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", received.decode()))]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (120, r"105/600 \S+ loss 4\.1234  T 5  lr 3\.00e-04  \|g\| 1\.23  12,345 tokens/s +[-\d:]{7} left"),
        (84, r"105/600 loss 4\.1234  T 5  lr 3\.00e-04  \|g\| 1\.23  12,345 tokens/s +[-\d:]{7} left"),
        (50, r"105/600 loss 4\.1234  T 5  lr 3\.00e-0… [-\d:]{7} left"),
    ],
)
def test_a_terminal_shows_one_live_line_that_fits(columns: int, expected: str) -> None:
    lines = on_terminal(columns)
    assert "resumed from checkpoints/step-00000100 [newest]" in lines
    assert re.fullmatch(expected, [line for line in lines if line][-1])
    assert all(len(line) <= columns for line in lines)


def test_elsewhere_each_logged_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(600, 100)
    console.say("resumed [newest]")
    console.step(101)
    console.show(105, "loss 4.1234  T 5")
    console.close()
    assert capsys.readouterr().out == "resumed [newest]\nstep 105/600  loss 4.1234  T 5\n"
