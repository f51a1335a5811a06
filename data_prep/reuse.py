"""Whether a folder already holds what was asked for."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.options import PrepareOptions
from data_prep.sources import Input, describe
from scse_dist.data.manifest import MANIFEST, Manifest, read_manifest
from scse_dist.errors import UserError
from scse_dist.files import hash_file


def find_prepared(options: PrepareOptions, inputs: Sequence[Input]) -> Manifest:
    """The manifest of a folder that holds the same text prepared with the same options, whole and unchanged.

    Raises:
        UserError: naming what differs; a folder of something else; damaged files.
    """
    out = options.out
    way_out = "choose another folder, or delete this one to have it made again"
    if not (out / MANIFEST).is_file():
        raise UserError(f"{out}: not empty and not a folder of prepared data; choose another one")
    try:
        manifest = read_manifest(out)
    except UserError as error:
        raise UserError(f"{error}; {way_out}") from error
    for name, was, now in _options(manifest, options):
        if was != now:
            raise UserError(f"{out}: was prepared with {name}={was}, now {name}={now} is asked for; {way_out}")
    if difference := _changed_source(manifest, inputs):
        raise UserError(f"{out}: was prepared from other text ({difference}); {way_out}")
    if damaged := _damaged_file(out, manifest):
        raise UserError(f"{damaged}: damaged or missing; {way_out}")
    return manifest


def _options(manifest: Manifest, options: PrepareOptions) -> list[tuple[str, object, object]]:
    names = ["corpus", "window", "windows_per_record", "split_seed", "validation_fraction", "test_fraction"]
    pairs: list[tuple[str, object, object]] = [("vocab_size", manifest.tokenizer.vocab_size, options.vocab_size)]
    return pairs + [(name, getattr(manifest, name), getattr(options, name)) for name in names]


def _changed_source(manifest: Manifest, inputs: Sequence[Input]) -> str | None:
    if len(inputs) != len(manifest.sources):
        return f"{len(manifest.sources)} files, now {len(inputs)}"
    known = {(source.split_group, source.xxh3_128) for source in manifest.sources}
    for given in inputs:
        source = describe(given)
        if (source.split_group, source.xxh3_128) not in known:
            return f"{given.file} is new or changed"
    return None


def _damaged_file(out: Path, manifest: Manifest) -> Path | None:
    files = {out / manifest.tokenizer.file: manifest.tokenizer.xxh3_128}
    for name, split in manifest.splits.items():
        files |= {out / name / shard.file: shard.xxh3_128 for shard in split.shards}
    for path, expected in files.items():
        if not path.is_file() or hash_file(path)[1] != expected:
            return path
    return None
