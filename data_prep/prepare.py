"""From text files to a data folder: splits, tokenizer, shards, passages and the manifest that describes them.

Memory grows by about 150 bytes for each document; their texts wait in temporary files.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from data_prep import splits
from data_prep.documents import find_files, read_documents
from data_prep.folder import is_occupied, publish
from data_prep.options import PrepareOptions
from data_prep.pack import num_dropped_tokens, num_windows, pack, token_dtype
from data_prep.passages import write_passages
from data_prep.progress import Report, progress
from data_prep.reuse import find_prepared
from data_prep.shards import write_shards
from data_prep.sources import Input, Tally
from data_prep.spool import Spool
from data_prep.tokenizer import train_tokenizer
from scse_dist.data.manifest import Filter, Manifest, Source, Split
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError

PASSAGES = "passages.jsonl"
_BATCH_CHARS = 2_000_000
_WRITERS = ("mosaicml-streaming", "numpy", "sentencepiece")


def prepare(options: PrepareOptions, report: Report = print) -> Manifest:
    """Makes the data folder ``options.out``, or finds it already made from the same text with the same options.

    The folder appears complete or not at all. The same texts and options give the same tokenizer, shards and passages
    for any number of workers and whatever the order and the names of the files.

    Raises:
        UserError: unreadable, empty or too little text; a vocabulary that does not fit it; a folder that holds
            something else or cannot be written.
    """
    start = time.monotonic()
    # Held-out text goes first: where both repeat a document, training loses it.
    inputs = [Input(file, "heldout") for file in find_files(options.heldout_sources, options.out)]
    inputs += [Input(file, "corpus") for file in find_files(options.sources, options.out)]
    if is_occupied(options.out):
        manifest = find_prepared(options, inputs)
        report(f"{options.out}: already prepared from this text with these options, reusing it")
        return manifest
    with publish(options.out) as folder:
        manifest = _write(folder, options, inputs, report)
    report(f"{options.out}: ready in {time.monotonic() - start:.0f} s")
    return manifest


def _write(folder: Path, options: PrepareOptions, inputs: Sequence[Input], report: Report) -> Manifest:
    names = [splits.TRAIN, splits.VALIDATION, splits.TEST] + [splits.HELDOUT] * bool(options.heldout_sources)
    with ExitStack() as stack:
        spools = {name: stack.enter_context(Spool(folder / f".{name}.texts")) for name in names}
        sources, filters = _read(inputs, spools, options, report)
        tokenizer, entry = train_tokenizer(spools[splits.TRAIN], options.vocab_size, folder)
        report(f"trained a tokenizer of {entry.vocab_size} tokens")
        written = {
            name: _write_split(folder / name, spool, tokenizer, options, report) for name, spool in spools.items()
        }
        num_passages = write_passages(folder / PASSAGES, spools[splits.TEST])
        report(f"cut {num_passages} completion passages from the test split")
    manifest = Manifest(
        corpus=options.corpus,
        sources=sources,
        filters=filters,
        tokenizer=entry,
        window=options.window,
        windows_per_record=options.windows_per_record,
        token_dtype=token_dtype(entry.vocab_size),
        split_seed=options.split_seed,
        validation_fraction=options.validation_fraction,
        test_fraction=options.test_fraction,
        splits=written,
        passages={splits.TEST: PASSAGES} if num_passages else {},
        created_with={name: version(name) for name in _WRITERS},
    )
    manifest.save(folder)
    return manifest


def _read(
    inputs: Sequence[Input], spools: dict[str, Spool], options: PrepareOptions, report: Report
) -> tuple[tuple[Source, ...], tuple[Filter, ...]]:
    """Sends every document to the spool of its split, but for blank ones and repetitions."""
    sources: list[Source] = []
    dropped = Counter(blank=0, duplicate=0)
    seen: set[bytes] = set()
    with progress("reading", None, report) as advance:
        for given in inputs:
            tally = Tally()
            for document in read_documents(given.file):
                text = document.encode()
                tally.add(text)
                advance(len(text))
                digest = splits.content_digest(text)
                if not document.strip():
                    dropped["blank"] += 1
                elif digest in seen:
                    dropped["duplicate"] += 1
                else:
                    seen.add(digest)
                    key = splits.split_key(digest, options.split_seed)
                    drawn = splits.split_of(key, options.validation_fraction, options.test_fraction)
                    spools[splits.HELDOUT if given.group == "heldout" else drawn].append(key, text)
            sources.append(tally.source(given))
    report(
        f"read {sum(source.num_bytes for source in sources) / 1e6:.1f} MB in {len(seen)} documents from "
        f"{len(sources)} files; left out {dropped['duplicate']} duplicate and {dropped['blank']} blank ones"
    )
    _refuse_empty(spools)
    return tuple(sources), tuple(Filter(name=name, num_dropped=number) for name, number in dropped.items())


def _refuse_empty(spools: dict[str, Spool]) -> None:
    counts = {name: len(spool) for name, spool in spools.items()}
    if not sum(count for name, count in counts.items() if name != splits.HELDOUT):
        raise UserError("the sources hold no text: the corpus is empty")
    for name, count in counts.items():
        if not count:
            so_far = ", ".join(f"{name} {number}" for name, number in counts.items())
            raise UserError(f"split {name} would be empty: {_more_text(name)} (documents so far: {so_far})")


def _write_split(folder: Path, spool: Spool, tokenizer: Tokenizer, options: PrepareOptions, report: Report) -> Split:
    name, dtype = folder.name, token_dtype(tokenizer.vocab_size)
    num_tokens = 0

    def documents() -> Iterator[list[int]]:
        nonlocal num_tokens
        with progress(f"writing {name}", spool.num_bytes, report) as advance:
            for texts in spool.batches(_BATCH_CHARS):
                for document in tokenizer.encode_batch(texts, options.workers):
                    num_tokens += len(document) + 1
                    yield document
                advance(sum(len(text.encode()) for text in texts))

    records = pack(documents(), tokenizer.end_of_text_id, options.window, options.windows_per_record, dtype)
    shards = write_shards(folder, records, dtype)
    windows = num_windows(num_tokens, options.window)
    if not windows:
        raise UserError(
            f"split {name} holds {num_tokens} tokens and window={options.window} needs {options.window + 1}: "
            f"{_more_text(name)} or a smaller window"
        )
    report(f"{name}: {len(spool)} documents, {num_tokens} tokens, {windows} windows of {options.window}")
    return Split(
        num_documents=len(spool),
        num_text_bytes=spool.num_bytes,
        num_tokens=num_tokens,
        num_windows=windows,
        num_dropped_tokens=num_dropped_tokens(num_tokens, options.window),
        shards=shards,
    )


def _more_text(name: str) -> str:
    return "give more text" + (f", a larger {name}_fraction" if name in (splits.VALIDATION, splits.TEST) else "")
