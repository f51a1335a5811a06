"""Runs a function, or a command, on several real ranks of this machine through the project's own launcher."""

import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

LAUNCH = """
import json, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
from launchers.local import launch
command, nproc, log_dir = json.loads(sys.argv[1])
sys.exit(launch(command, nproc, log_dir and Path(log_dir)))
"""


def start_launcher(command: list[str], nproc: int, log_dir: Path | None = None) -> subprocess.Popen[str]:
    """``launchers.local.launch`` in a process of its own, with its stdout and stderr in one pipe."""
    arguments = json.dumps([command, nproc, log_dir and str(log_dir)])
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a test may signal its group, and not pytest's
    )


def run_ranks(function: Callable[..., Any], nproc: int, *arguments: Any, timeout: float = 120) -> list[Any]:
    """Calls ``function(world, *arguments)`` on ``nproc`` gloo ranks and returns what each of them returned.

    The function must stand at the top of its test module; arguments and results are pickled. A rank that raises, dies
    or outlives ``timeout`` (seconds) fails the test with the first failed rank's output; no process is left behind.
    """
    with tempfile.TemporaryDirectory() as folder:
        call = (inspect.getfile(function), function.__name__, arguments)
        Path(folder, "call.pkl").write_bytes(pickle.dumps(call))
        launcher = start_launcher([sys.executable, __file__, folder], nproc)
        try:
            output, _ = launcher.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            launcher.kill()
            output, _ = launcher.communicate()
        what = f"{function.__name__} on {nproc} ranks ended with {launcher.returncode}"
        assert launcher.returncode == 0, f"{what} (limit {timeout} s):\n{output}"
        return [pickle.loads(Path(folder, f"result-{rank}.pkl").read_bytes()) for rank in range(nproc)]


def _be_a_rank(folder: Path) -> None:
    from scse_dist.parallel.env import init_world, teardown

    file, name, arguments = pickle.loads((folder / "call.pkl").read_bytes())
    spec = importlib.util.spec_from_file_location("module_under_test", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    world = init_world("cpu", "gloo")
    try:
        result = getattr(module, name)(world, *arguments)
    finally:
        teardown()
    (folder / f"result-{world.rank}.pkl").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    _be_a_rank(Path(sys.argv[1]))
