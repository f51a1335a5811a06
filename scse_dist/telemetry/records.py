"""JSON lines: ``metrics.jsonl`` (one object a logged step) and ``evals.jsonl`` (one object an evaluation identity).

Imports no torch.
"""

import fcntl
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from scse_dist.errors import UserError
from scse_dist.files import plain_os_errors, write_atomically


class JsonlLog:
    """An append-only log of JSON objects, each with the ``step`` it belongs to."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        """Adds one line; a number that is not finite becomes null, so that the line stays JSON.

        Raises:
            UserError: no space left, or the file may not be written.
        """
        line = json.dumps(_finite(record), allow_nan=False) + "\n"
        with plain_os_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(line)

    def truncate_after(self, step: int) -> None:
        """Drops the records of later steps, and a last line that a kill left unfinished; atomic.

        Raises:
            UserError: damaged, no space left, or the file may not be written.
        """
        if self.path.exists():
            kept = [json.dumps(record) + "\n" for record in read_records(self.path) if record["step"] <= step]
            with plain_os_errors(self.path):
                write_atomically(self.path, "".join(kept))


class EvalRecord(BaseModel):
    """One figure and everything that says what it is a figure of."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    set: str
    """What was scored: a split, or passages."""
    metric: str
    num_loops: int
    """Depth T of the readout."""
    step: int
    """Optimizer steps of the weights."""
    method: str
    seed: int
    config_fingerprint: str
    """Of everything that may not change in a resumed run."""
    data_fingerprint: str
    precision: str
    """Of the forward pass."""
    max_windows: int
    """Budget per split; 0 is the whole split. Passages are always all scored."""
    value: float | None
    """null where it is not finite."""
    num_tokens: int
    """Tokens the figure rests on."""
    num_passages: int | None = None

    @property
    def identity(self) -> tuple[Any, ...]:
        """A repeated measurement of the same thing has the same identity."""
        measured = {"value", "num_tokens", "num_passages"}
        return tuple(self.model_dump(exclude=measured).values())


def replace_evals(path: Path, records: Iterable[EvalRecord]) -> None:
    """Adds evaluation records; one with an identity that is there already takes its place. Atomic.

    Raises:
        UserError: the file is damaged, no space left, or it may not be written.
    """
    with plain_os_errors(path), path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a run may be writing its own while it is evaluated from outside
        known = {record.identity: record for record in read_evals(path)}
        known |= {record.identity: record for record in records}
        write_atomically(path, "".join(record.model_dump_json() + "\n" for record in known.values()))


def read_evals(path: Path) -> list[EvalRecord]:
    """The evaluation records of a run; none if it has not been evaluated.

    Raises:
        UserError: a line is not such a record.
    """
    if not path.exists():
        return []
    try:
        return [EvalRecord.model_validate(record) for record in read_records(path)]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {where}: {first['msg']}; move the file away and evaluate again") from error


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a log, in order; a last line that a kill left unfinished is not one.

    Raises:
        UserError: another line is not a JSON object with a step.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                try:
                    record = json.loads(line)
                    yield record | {"step": int(record["step"])}
                except (ValueError, KeyError, TypeError) as error:
                    raise UserError(f"{path}: line {number} is damaged ({error!r}); remove that line") from error


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value
