"""What the pages tell a user to type works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.dist import ROOT
from tests.helpers.runs import environment


def commands_of(page: Path) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_tour(tmp_path: Path) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, line in (
        ("scse-dist", f'exec "{sys.executable}" -m scse_dist "$@"'),
        ("python", f'exec "{sys.executable}" "$@"'),
    ):
        (scripts / name).write_text(f"#!/bin/sh\n{line}\n")
        (scripts / name).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    commands = commands_of(ROOT / "docs" / "tour.md")
    assert len(commands) == 9
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=work,
            env=environment() | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (work / "runs/manual/figures/depth-response.png").stat().st_size > 10_000


def test_the_page_of_settings_is_what_the_schema_says() -> None:
    written = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "settings_page.py")],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert written.stdout == (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert "| `train.num_steps` | `1000` |" in written.stdout


PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_local_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / target).exists(), target
