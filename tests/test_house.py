"""The rules of the house, read from its files: which room knows which, one door per heavy library, no long file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("scse_dist", "data_prep", "launchers", "ds_configs")

KNOWS: dict[str, set[str]] = {
    "errors": set(),
    "files": {"errors"},
    "ds_configs": set(),
    "config": {"ds_configs", "errors"},
    # the middle rooms do not know one another; the engine alone has to know what it shards
    "model": {"config"},
    "data": {"config", "errors", "files"},
    "parallel": {"config", "errors", "model"},
    "telemetry": {"errors", "files"},
    "generate": {"data", "model"},
    "run_folder": {"config", "errors", "files"},
    "checkpoint": {"config", "data", "errors", "files", "model", "parallel", "run_folder"},
    "evaluate": {"config", "data", "errors", "files", "model", "parallel", "run_folder", "telemetry"},
    "train": {
        "checkpoint",
        "config",
        "data",
        "errors",
        "evaluate",
        "files",
        "model",
        "parallel",
        "run_folder",
        "telemetry",
    },
    "data_prep": {"config", "data", "errors", "files"},
    "launchers": {"config", "errors"},
}
"""What each room may import besides itself. ``cli``, the front door, knows all of them, and none knows it."""

HEAVY = ("deepspeed", "streaming", "submitit", "tensorboard", "transformers", "matplotlib", "sentencepiece", "datasets")
LONGEST_FILE = 350
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:home|root|work|Users|mnt|scratch)/\w")
TEXT = {".py", ".md", ".yaml", ".yml", ".json", ".toml", ".txt", ".sh", ".cfg"}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def room_of(module: str) -> str:
    """``scse_dist.config.load`` is in config, ``data_prep.pack`` in data_prep."""
    top, *inner = module.split(".")
    return inner[0] if top == "scse_dist" and inner else top


class _WithoutTypes(ast.NodeTransformer):
    """Leaves out what is imported for annotations only."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def imports(path: Path, *, for_types_too: bool = True) -> Iterator[str]:
    """Full names of all that a file imports, in functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree if for_types_too else _WithoutTypes().visit(tree)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which room is meant"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def own_room(path: Path) -> str:
    return room_of(module_name(path).removesuffix(".__init__"))


def known_rooms(path: Path) -> set[str]:
    ours = [name for name in imports(path) if name.split(".")[0] in PACKAGES and name != "scse_dist.__version__"]
    return {room_of(name) for name in ours} - {own_room(path)}


@pytest.mark.parametrize("path", python_files(*PACKAGES), ids=module_name)
def test_a_room_imports_only_the_rooms_it_may_know(path: Path):
    room = own_room(path)
    if room in ("cli", "__main__", "scse_dist"):
        assert room == "cli" or known_rooms(path) <= {"cli", "errors"}
        return
    assert room in KNOWS, f"{path}: a new room; say here what it may import"
    strangers = known_rooms(path) - KNOWS[room]
    assert not strangers, f"{room} must not import {', '.join(sorted(strangers))}"


def test_imports_run_one_way():
    """The table has no cycle: its rooms can be put in a row in which each knows only earlier ones."""
    remaining = dict(KNOWS)
    while free := [room for room, known in remaining.items() if not known & remaining.keys()]:
        for room in free:
            del remaining[room]
    assert not remaining


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_has_one_door_per_room(library: str):
    doors: dict[str, set[str]] = {}
    for path in python_files(*PACKAGES):
        names = [name for name in imports(path, for_types_too=False) if name.split(".")[0] not in PACKAGES]
        if any(library in name.split(".") for name in names):  # torch.utils.tensorboard is tensorboard, too
            doors.setdefault(own_room(path), set()).add(module_name(path))
    crowded = {room: sorted(files) for room, files in doors.items() if len(files) > 1}
    assert not crowded


def test_the_engine_is_the_only_user_of_deepspeed_outside_checkpoints():
    users = [
        module_name(path) for path in python_files(*PACKAGES) if any(n.startswith("deepspeed") for n in imports(path))
    ]
    assert users == ["scse_dist.checkpoint.shard_files", "scse_dist.parallel.engine"]


def test_the_reference_and_the_formulas_stand_alone():
    """A fault of the product cannot be theirs too."""
    for name in ("tests/conformance/reference.py", "tests/model/formulas.py"):
        roots = {imported.split(".")[0] for imported in imports(ROOT / name)}
        assert roots <= {"torch", "math", "dataclasses", "tests"}, name


@pytest.mark.parametrize("path", python_files(*PACKAGES, "tests", "scripts"), ids=module_name)
def test_no_file_is_longer_than_a_person_reads(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def test_no_file_names_a_place_on_somebodys_machine():
    folders = (*PACKAGES, "tests", "docs", "scripts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*"))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found
