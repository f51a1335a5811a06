import lzma
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_prep import splits
from data_prep.documents import find_files, read_documents
from data_prep.options import PrepareOptions
from data_prep.prepare import prepare
from scse_dist.data.manifest import Manifest, read_manifest
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError
from tests.data_prep.texts import paragraphs, tree_hashes, write_jsonl

DATA = Path(os.environ.get("SCSE_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
ROOT = Path(__file__).parents[2]


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> PrepareOptions:
    """Three corpus files with a repetition, a blank document, and a document that is held out as well."""
    folder = tmp_path_factory.mktemp("sources")
    texts = paragraphs()[:1200]
    write_jsonl(folder / "a.jsonl", [*texts[:500], texts[0]])
    write_jsonl(folder / "b.jsonl", [" \n", *texts[500:900], texts[1000]])
    write_jsonl(folder / "heldout.jsonl", texts[1000:])
    (folder / "c.txt.xz").write_bytes(lzma.compress("\n\n".join(texts[900:1000]).encode()))
    return PrepareOptions(
        sources=[str(folder / "[abc].*")],
        heldout_sources=[str(folder / "heldout.jsonl")],
        out=folder.parent / "prepared" / "data",
        vocab_size=600,
        window=32,
        windows_per_record=4,
        validation_fraction=0.05,
        test_fraction=0.1,
    )


@pytest.fixture(scope="module")
def prepared(options: PrepareOptions) -> Manifest:
    return prepare(options, quiet)


def stream_of(folder: Path, manifest: Manifest, split: str) -> np.ndarray:
    """The tokens of a split, read with streaming itself and joined at the tokens that records share."""
    from streaming import LocalDataset

    records = [sample["tokens"] for sample in LocalDataset(local=str(folder / split))]  # pyright: ignore[reportArgumentType]
    assert {record.dtype.name for record in records} == {manifest.token_dtype}
    assert {len(record) for record in records[:-1]} <= {manifest.windows_per_record * manifest.window + 1}
    return np.concatenate([records[0], *(record[1:] for record in records[1:])])


def documents_of(folder: Path, manifest: Manifest, split: str) -> list[str]:
    """The texts of a split, but for the tail after the last whole window."""
    stream = stream_of(folder, manifest, split)
    tokenizer = Tokenizer.load(folder, manifest.tokenizer)
    ends = np.flatnonzero(stream == manifest.tokenizer.end_of_text_id)
    return [tokenizer.decode(part[part != tokenizer.end_of_text_id].tolist()) for part in np.split(stream, ends + 1)]


def test_shards_hold_each_document_once_in_the_split_of_its_content(
    options: PrepareOptions, prepared: Manifest
) -> None:
    texts = paragraphs()[:1200]
    found = {name: documents_of(options.out, prepared, name) for name in prepared.splits}
    assert list(found) == ["train", "validation", "test", "heldout"]
    for name, documents in found.items():
        whole = documents[:-1]  # the last one is cut, or empty
        if name == "heldout":
            assert set(whole) <= set(texts[1000:])
        else:
            for text in whole:
                key = splits.split_key(splits.content_digest(text.encode()), options.split_seed)
                assert splits.split_of(key, options.validation_fraction, options.test_fraction) == name
        assert len(set(whole)) == len(whole)
        assert prepared.splits[name].num_documents - 2 <= len(whole) <= prepared.splits[name].num_documents
    everything = [text for documents in found.values() for text in documents[:-1]]
    assert len(set(everything)) == len(everything)
    assert texts[1000] in found["heldout"]
    assert len(everything) > 1000


def test_counts_equal_an_independent_count(options: PrepareOptions, prepared: Manifest) -> None:
    """Every document's split and tokens, counted anew from the texts that went in."""
    tokenizer = Tokenizer.load(options.out, prepared.tokenizer)
    texts = paragraphs()[:1200]
    txt_documents = [text for file in find_files(options.sources, options.out)[-1:] for text in read_documents(file)]
    counted: dict[str, list[int]] = {name: [0, 0, 0] for name in prepared.splits}
    for text, heldout in [(t, False) for t in texts[:900] + txt_documents] + [(t, True) for t in texts[1000:]]:
        key = splits.split_key(splits.content_digest(text.encode()), 0)
        name = "heldout" if heldout else splits.split_of(key, 0.05, 0.1)
        for place, amount in enumerate((1, len(text.encode()), len(tokenizer.encode(text)) + 1)):
            counted[name][place] += amount
    for name, split in prepared.splits.items():
        assert [split.num_documents, split.num_text_bytes, split.num_tokens] == counted[name]
        kept = len(stream_of(options.out, prepared, name))
        assert kept == split.num_windows * prepared.window + 1
        assert kept + split.num_dropped_tokens == split.num_tokens
        assert split.num_dropped_tokens < prepared.window
    assert {filtered.name: filtered.num_dropped for filtered in prepared.filters} == {"blank": 1, "duplicate": 2}
    assert [source.num_documents for source in prepared.sources] == [200, 501, 402, len(txt_documents)]


def test_the_manifest_tells_what_was_written(options: PrepareOptions, prepared: Manifest) -> None:
    assert read_manifest(options.out) == prepared
    hashes = tree_hashes(options.out)
    listed = {f"{name}/{shard.file}": shard for name, split in prepared.splits.items() for shard in split.shards}
    assert hashes.keys() == {*listed, prepared.tokenizer.file, prepared.passages["test"], "manifest.json"}
    assert all((options.out / name).stat().st_size == shard.num_bytes for name, shard in listed.items())
    assert prepared.splits["train"].shards[-1].file == "index.json"
    assert not list(options.out.parent.glob(".*"))


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_no_byte(
    options: PrepareOptions, prepared: Manifest, tmp_path: Path, workers: int
) -> None:
    again = prepare(replace(options, out=tmp_path / "data", workers=workers), quiet)
    assert again == prepared
    assert tree_hashes(tmp_path / "data") == tree_hashes(options.out)


def test_order_and_names_of_the_files_change_no_shard(
    options: PrepareOptions, prepared: Manifest, tmp_path: Path
) -> None:
    names = ["c.txt.xz", "b.jsonl", "a.jsonl"]
    for place, name in enumerate(names):
        (tmp_path / f"{place}{name}").symlink_to(Path(options.sources[0]).parent / name)
    again = prepare(replace(options, sources=[str(tmp_path / "?[abc].*")], out=tmp_path / "data"), quiet)
    assert again.splits == prepared.splits
    assert again.tokenizer == prepared.tokenizer
    assert (tmp_path / "data" / "passages.jsonl").read_bytes() == (options.out / "passages.jsonl").read_bytes()


def test_nothing_is_left_running(options: PrepareOptions, tmp_path: Path) -> None:
    threads = threading.active_count()
    prepare(replace(options, out=tmp_path / "data", workers=2), quiet)
    assert threading.active_count() == threads
    assert not multiprocessing.active_children()


def test_a_second_run_reuses_and_says_so(options: PrepareOptions, prepared: Manifest) -> None:
    before = {path: path.stat().st_mtime_ns for path in options.out.rglob("*")}
    lines: list[str] = []
    assert prepare(replace(options, workers=3), lines.append) == prepared
    assert lines == [f"{options.out}: already prepared from this text with these options, reusing it"]
    assert {path: path.stat().st_mtime_ns for path in options.out.rglob("*")} == before


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"window": 64}, "prepared with window=32, now window=64"),
        ({"vocab_size": 500}, "prepared with vocab_size=600, now vocab_size=500"),
        ({"split_seed": 1}, "prepared with split_seed=0, now split_seed=1"),
        ({"corpus": "other"}, "prepared with corpus=corpus, now corpus=other"),
        ({"test_fraction": 0.2}, "prepared with test_fraction=0.1, now test_fraction=0.2"),
        ({"heldout_sources": ()}, "from other text (4 files, now 3)"),
        ({"sources": [__file__.replace(".py", ".missing")]}, "no such file"),
    ],
)
def test_other_data_in_the_folder_is_kept(options: PrepareOptions, change: dict, expected: str) -> None:
    before = tree_hashes(options.out)
    with pytest.raises(UserError) as caught:
        prepare(replace(options, **change), quiet)
    assert expected in str(caught.value)
    assert tree_hashes(options.out) == before


def test_changed_text_and_damaged_shards_are_noticed(options: PrepareOptions, tmp_path: Path) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    texts = paragraphs()[:600]
    write_jsonl(folder / "text.jsonl", texts)
    mine = replace(options, sources=[str(folder)], heldout_sources=(), out=tmp_path / "data", vocab_size=500)
    prepare(mine, quiet)
    write_jsonl(folder / "text.jsonl", [*texts[:-1], texts[-1] + "."])
    with pytest.raises(UserError, match=r"from other text \(.*text\.jsonl is new or changed\); choose another folder"):
        prepare(mine, quiet)
    write_jsonl(folder / "text.jsonl", texts)
    shard = mine.out / "validation" / "shard.00000.mds"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    with pytest.raises(UserError, match=r"validation/shard\.00000\.mds: damaged or missing; choose another folder"):
        prepare(mine, quiet)
    (mine.out / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json: unreadable.*or delete this one"):
        prepare(mine, quiet)


def test_a_foreign_folder_or_file_is_refused_and_an_empty_folder_taken(options: PrepareOptions, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    for out in (tmp_path, tmp_path / "notes.md"):
        with pytest.raises(UserError, match="not a folder of prepared data; choose another one"):
            prepare(replace(options, out=out), quiet)
    assert tree_hashes(tmp_path).keys() == {"notes.md"}
    (tmp_path / "empty folder").mkdir()
    prepare(replace(options, out=tmp_path / "empty folder"), quiet)
    assert read_manifest(tmp_path / "empty folder").corpus == "corpus"


@pytest.mark.parametrize(
    ("texts", "change", "expected"),
    [
        ([], {}, "the corpus is empty"),
        (["", " \n\t"], {}, "the corpus is empty"),
        (["one document only"], {}, "would be empty: give more text, a larger .*_fraction"),
        (
            paragraphs()[:150],
            {"window": 5000},
            r"holds \d+ tokens and window=5000 needs 5001: give more text, .* smaller window",
        ),
        (
            paragraphs()[:150],
            {"vocab_size": 60_000},
            r"vocab_size=60000 is more than the text supports; choose \d+ or less",
        ),
        (paragraphs()[:150], {"vocab_size": 10}, "vocab_size=10 is too small"),
    ],
)
def test_too_little_text_leaves_nothing_behind(
    options: PrepareOptions, tmp_path: Path, texts: list[str], change: dict, expected: str
) -> None:
    source = write_jsonl(tmp_path / "text.jsonl", texts)
    changed = replace(options, sources=[str(source)], heldout_sources=(), out=tmp_path / "data", vocab_size=400)
    with pytest.raises(UserError, match=expected) as caught:
        prepare(replace(changed, **change), quiet)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["text.jsonl"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"window": 0}, "window=0 must be 1 or more"),
        ({"workers": -1}, "workers=-1 must be 1 or more"),
        ({"test_fraction": 0.0}, "test_fraction=0.0 must lie between 0 and 1"),
        ({"test_fraction": 0.6, "validation_fraction": 0.4}, "leave nothing to train on"),
        ({"split_seed": -1}, "split_seed=-1 must lie between"),
    ],
)
def test_numbers_out_of_range(options: PrepareOptions, change: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        replace(options, **change)


def test_a_bad_source_is_named_and_leaves_nothing_behind(options: PrepareOptions, tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_bytes(b'{"text": "good"}\n{"text": "caf\xe9"}\n')
    with pytest.raises(UserError, match=r"text\.jsonl:2: not UTF-8"):
        prepare(replace(options, sources=[str(tmp_path)], out=tmp_path / "data"), quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["text.jsonl"]


SCRIPT = """
import pickle, sys
from data_prep.prepare import prepare
from scse_dist.errors import UserError

def report(line):
    print(line, flush=True)
    if line.startswith(sys.argv[2]):
        sys.stdin.readline()

try:
    with open(sys.argv[1], "rb") as file:
        prepare(pickle.load(file), report)
except UserError as error:
    sys.exit(f"UserError: {error}")
"""


def start(options: PrepareOptions, scratch: Path, pause_at: str, prefix: str = "") -> subprocess.Popen[str]:
    """A real process that prepares data and stops at the line that begins with ``pause_at``."""
    (scratch / "options.pickle").write_bytes(pickle.dumps(options))
    command = f'{prefix} exec "$0" -c "$1" "$2" "$3"'
    return subprocess.Popen(
        ["unshare", "-Urm"] * bool(prefix)
        + ["sh", "-c", command, sys.executable, SCRIPT, str(scratch / "options.pickle"), pause_at],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_killed_in_the_middle_there_is_nothing_and_the_next_run_is_a_clean_one(
    options: PrepareOptions, prepared: Manifest, tmp_path: Path
) -> None:
    mine = replace(options, out=tmp_path / "data")
    process = start(mine, tmp_path, pause_at="train:")
    assert process.stdout is not None
    while not process.stdout.readline().startswith("train:"):
        assert process.poll() is None, process.communicate()[1]
    with pytest.raises(UserError, match="another process is preparing this folder"):
        prepare(mine, quiet)
    assert not mine.out.exists()
    process.kill()
    process.communicate()
    assert not mine.out.exists()
    assert tree_hashes(tmp_path / ".data.partial")  # so the rerun does meet what the killed one left

    assert prepare(mine, quiet) == prepared
    assert tree_hashes(mine.out) == tree_hashes(options.out)
    assert not list(tmp_path.glob(".data*"))


def test_no_space_left_is_one_line(options: PrepareOptions, tmp_path: Path) -> None:
    disk = tmp_path / "full disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=200k none '{disk}' &&"
    if subprocess.run(["unshare", "-Urm", "sh", "-c", f"{mount} true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here to mount a small disk in")
    process = start(replace(options, out=disk / "data"), tmp_path, pause_at="never", prefix=mount)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors == f"UserError: {disk / 'data'}: no space left on that disk; free some or choose another folder\n"


def test_a_place_that_cannot_be_written_is_one_line(options: PrepareOptions) -> None:
    with pytest.raises(UserError, match=r"cannot be written \(.*\); choose another folder"):
        prepare(replace(options, out=Path("/sys/data")), quiet)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real text in {DATA}; set SCSE_TEST_DATA")
def test_real_web_text_end_to_end(tmp_path: Path) -> None:
    manifest = prepare(
        PrepareOptions(
            sources=[str(DATA / "c4" / "validation_200.jsonl.xz")], out=tmp_path / "c4", vocab_size=1000, window=64
        ),
        quiet,
    )
    assert sum(split.num_documents for split in manifest.splits.values()) == 200
    bytes_per_token = manifest.splits["train"].num_text_bytes / manifest.splits["train"].num_tokens
    assert 2 < bytes_per_token < 5
    assert manifest.splits["train"].num_windows > 500
