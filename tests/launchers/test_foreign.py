"""Launchers other than ours start the same run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launchers.local import free_port
from scse_dist.errors import ExitCode
from tests.helpers.runs import environment, make_data, metrics, train, train_arguments


def module_arguments(run: Path, data: Path) -> list[str]:
    arguments = train_arguments(run, data, "train.num_steps=4")
    return arguments[: arguments.index("--nproc")]


def start(*command: str, path: str = os.environ["PATH"]) -> subprocess.Popen[str]:
    variables = environment() | {"PATH": path}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def with_ssh_to_this_machine(folder: Path) -> str:
    """A search path on which ``ssh ... localhost COMMAND`` runs COMMAND here, as a machine with an sshd would.

    DeepSpeed asks a hostfile's only host for its name before it starts the ranks, which it then does without ssh.
    """
    folder.mkdir()
    (folder / "ssh").write_text('#!/bin/sh\nwhile [ "$1" != localhost ]; do shift; done\nshift\nexec "$@"\n')
    (folder / "ssh").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
def test_torchrun_on_two_nodes_and_deepspeed_train_what_our_launcher_trains(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    ours = tmp_path / "ours"
    assert train(ours, data, "train.num_steps=4", nproc=2).returncode == ExitCode.DONE

    port = str(free_port())
    nodes = [
        start(
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node_rank", str(node)),
            *("--nproc_per_node", "1", "--master_addr", "127.0.0.1", "--master_port", port),
            *("-m", "scse_dist", *module_arguments(tmp_path / "torchrun", data)),
        )
        for node in range(2)
    ]
    outputs = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs

    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    deepspeed = start(
        str(Path(sys.executable).with_name("deepspeed")),
        *("--hostfile", str(hosts), "--master_addr", "127.0.0.1", "--master_port", str(free_port())),
        *("--module", "scse_dist", *module_arguments(tmp_path / "deepspeed", data)),
        path=with_ssh_to_this_machine(tmp_path / "bin"),
    )
    output = deepspeed.communicate(timeout=120)[0]
    assert deepspeed.returncode == 0, output

    assert metrics(tmp_path / "torchrun") == metrics(ours)
    assert metrics(tmp_path / "deepspeed") == metrics(ours)
