"""The run folder: the interface between all verbs. Imports no torch."""

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from scse_dist.config import RunConfig, dump_config, read_config
from scse_dist.config.changes import forbidden_changes
from scse_dist.errors import UserError
from scse_dist.files import plain_os_errors, replacing, write_atomically


class RunFolder:
    """Paths inside a run's folder, its configuration and its lock."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.evals = self.path / "evals.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.logs = self.path / "logs"
        self.figures = self.path / "figures"
        self.tokenizer = self.path / "tokenizer.model"

    def check(self, config: RunConfig) -> None:
        """Whether the folder can be this configuration's; writes nothing.

        Raises:
            UserError: it holds another run's configuration (naming the keys) or foreign files.
        """
        if self.config.is_file():
            self._check_same_run(config)
        elif self.path.is_dir() and any(entry.name not in {"logs", ".lock"} for entry in self.path.iterdir()):
            raise UserError(f"run.dir={self.path}: not empty and not a run folder; choose another run.dir")
        elif self.path.exists() and not self.path.is_dir():
            raise UserError(f"run.dir={self.path}: is a file; choose another run.dir")

    def claim(self, config: RunConfig, tokenizer: Path) -> None:
        """Makes the folder this configuration's; the tokenizer is kept, so that it outlives the data.

        Raises:
            UserError: it is another run's, or cannot be written.
        """
        self.check(config)
        with plain_os_errors(self.path):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            with replacing(self.tokenizer) as partial:
                shutil.copyfile(tokenizer, partial)
            write_atomically(self.config, dump_config(config))

    def discard_logs(self) -> None:
        """Removes what a launcher wrote before the run was refused."""
        if not self.config.exists():
            shutil.rmtree(self.logs, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second run out while this one lives; the kernel drops the lock with the process.

        Raises:
            UserError: another process holds it (named), or the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise UserError(f"run.dir={self.path}: {error.strerror}; choose a folder that can be written") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                holder = handle.read().strip() or "another process"
                raise UserError(
                    f"run.dir={self.path}: in use by {holder}; wait for it or choose another run.dir"
                ) from None
            handle.truncate(0)
            handle.write(f"process {os.getpid()} on {socket.gethostname()}")
            handle.flush()
            yield

    def _check_same_run(self, config: RunConfig) -> None:
        changes = forbidden_changes(read_config(self.config), config)
        if changes:
            listed = ", ".join(f"{key} ({old} -> {new})" for key, old, new in changes)
            raise UserError(
                f"run.dir={self.path}: belongs to a run with another configuration: {listed}; "
                "choose another run.dir, or remove the folder to start afresh"
            )
