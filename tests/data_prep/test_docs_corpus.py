import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from data_prep import docs_corpus
from data_prep.docs_corpus import Library, build_docs_corpus, read_docstrings
from scse_dist.errors import UserError
from tests.data_prep.texts import tree_hashes

SMALL = (
    Library("pydantic", 150_000, heldout=True),
    Library("rich", 50_000),
    Library("a_library_that_nobody_has", 50_000),
    Library("xxhash", 50_000),  # has no docstrings to speak of
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_corpus, "LIBRARIES", SMALL)


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.usefixtures("small")
def test_one_file_per_library_and_a_second_call_that_reuses_them(tmp_path: Path) -> None:
    lines: list[str] = []
    libraries = build_docs_corpus(tmp_path / "docs", lines.append)
    assert "a_library_that_nobody_has is not installed" in lines[0]
    assert {library.name: library.version for library in libraries} == {
        name: version(name) for name in ("pydantic", "rich", "xxhash")
    }
    for library, limit in zip(libraries, (150_000, 50_000, 50_000), strict=True):
        texts = texts_of(tmp_path / "docs" / library.file)
        folder = "heldout" if library.name == "pydantic" else "corpus"
        assert library.file == f"{folder}/{library.name}-{library.version}.jsonl"
        assert library.num_documents == len(texts)
        assert library.num_bytes == sum(len(text.encode()) for text in texts) <= limit
        assert all(text.startswith(f"{library.name}") for text in texts)
    assert libraries[1].num_bytes > 50_000 - docs_corpus.MAX_DOCUMENT_CHARS  # the cap, not the library, ends it

    before = tree_hashes(tmp_path / "docs")
    assert build_docs_corpus(tmp_path / "docs", lines.append) == libraries
    assert "reusing" in lines[-1]
    build_docs_corpus(tmp_path / "again", lines.append)
    assert tree_hashes(tmp_path / "again") == tree_hashes(tmp_path / "docs") == before


@pytest.mark.usefixtures("small")
def test_another_version_or_a_foreign_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_docs_corpus(tmp_path / "docs", lambda _: None)
    monkeypatch.setattr(docs_corpus, "version", lambda _: "0.0.1")
    with pytest.raises(UserError, match="other versions of the libraries; delete it or choose another folder"):
        build_docs_corpus(tmp_path / "docs", lambda _: None)
    (tmp_path / "docs" / "corpus.json").unlink()
    with pytest.raises(UserError, match="not a documentation corpus"):
        build_docs_corpus(tmp_path / "docs", lambda _: None)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="not a documentation corpus"):
        build_docs_corpus(tmp_path / "file", lambda _: None)
    assert (tmp_path / "file").read_text() == "mine"


def test_docstrings_in_order_under_qualified_names(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""Module."""\n'
        "raise ImportError  # only read, never run\n"
        "if True:\n"
        "    class A:\n"
        '        """Class\n\n            Indented:\n                more\n        """\n'
        "        async def f(self):\n"
        "            '''Method.'''\n"
        "            def inner():\n"
        '                """Inner."""\n'
        "        def g(self):\n"
        '            x = """no docstring"""\n'
        "try:\n"
        "    def h():\n"
        '        """Guarded."""\n'
        "except NameError:\n"
        "    def h():\n"
        '        """The other one."""\n'
    )
    assert read_docstrings(path, "pkg.module") == [
        ("pkg.module", "Module."),
        ("pkg.module.A", "Class\n\nIndented:\n    more"),
        ("pkg.module.A.f", "Method."),
        ("pkg.module.A.f.inner", "Inner."),
        ("pkg.module.h", "Guarded."),
    ]


@pytest.mark.parametrize(
    "source",
    [
        b'# This file was automatically generated from a.py\n"""Doc."""\n',
        b'#  DO NOT EDIT\n"""Doc."""\n',
        b'"""Doc."""\nprint "python 2"\n',
        b'"""\xff"""\n',
        b'"""Doc."""\0',
        b"x = 1\n",
    ],
)
def test_generated_and_invalid_files_are_left_out(tmp_path: Path, source: bytes) -> None:
    path = tmp_path / "module.py"
    path.write_bytes(source)
    assert read_docstrings(path, "module") == []


def test_repeated_short_and_broken_docstrings_are_left_out() -> None:
    long = "A sentence about nothing in particular. " * 3
    docstrings = [("a", long), ("b", f"\n{long}\n"), ("c", "Short."), ("d", f"{long}\ud800"), ("e", long + "More.")]
    assert [name for name, _ in docs_corpus._new(docstrings, set())] == ["a", "e"]


def test_long_modules_become_several_documents_and_lose_nothing() -> None:
    docstrings = [(f"m.f{i}", f"{i} " * 1000) for i in range(30)]
    documents = list(docs_corpus._join(iter(docstrings)))
    assert 1 < len(documents) < 30
    assert max(map(len, documents)) < 1.1 * docs_corpus.MAX_DOCUMENT_CHARS
    assert "\n\n\n".join(documents) == "\n\n\n".join(f"{name}\n\n{text}" for name, text in docstrings)


@pytest.mark.slow
def test_the_demo_corpus_is_about_20_megabytes_and_pandas_is_held_out(tmp_path: Path) -> None:
    libraries = build_docs_corpus(tmp_path / "docs", lambda _: None)
    corpus = {library.name: library.num_bytes for library in libraries if library.file.startswith("corpus/")}
    assert {"python", "torch", "transformers", "numpy", "matplotlib"} <= corpus.keys()
    assert 15e6 < sum(corpus.values()) < 25e6
    assert max(corpus.values()) < 0.3 * sum(corpus.values())
    heldout = [library for library in libraries if library.file.startswith("heldout/")]
    assert [library.name for library in heldout] == ["pandas"]
    assert heldout[0].num_bytes > 1e6
    assert not any(
        "pandas." in text[:7]
        for library in libraries
        if library.name in corpus
        for text in texts_of(tmp_path / "docs" / library.file)
    )


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "build.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom data_prep.docs_corpus import build_docs_corpus\n"
        "if __name__ == '__main__':\n    build_docs_corpus(Path(sys.argv[1]))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, script, tmp_path / "docs"], env=environment)
    while not (workers := children_of(process.pid)):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(1)
    workers = children_of(process.pid) or workers
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while remaining := [pid for pid in workers if is_running(pid)]:
        assert time.monotonic() < deadline, f"{remaining} outlive their parent"
        time.sleep(0.05)
    assert not (tmp_path / "docs").exists()
