"""An installation that is not this checkout carries recipes and DeepSpeed's files and works from any folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.dist import ROOT
from tests.helpers.runs import TINY, make_data


@pytest.mark.slow
def test_a_plain_install_trains_from_any_folder(tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(ROOT)]
    subprocess.run(install, check=True, timeout=300)
    data = make_data(work / "data")

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": str(site)}
    arguments = ["train", "demo.yaml", "run.dir=run", f"data.path={data}", *TINY, "train.num_steps=2", "--nproc", "2"]
    program = "import scse_dist; from scse_dist.__main__ import main; print(scse_dist.__file__); main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))
    assert "finished: 2 steps" in done.stdout
