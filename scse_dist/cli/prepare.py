"""``scse-dist prepare``."""

from pathlib import Path

from data_prep.options import PrepareOptions
from data_prep.prepare import prepare
from scse_dist.errors import ExitCode


def prepare_data(
    sources: list[str], heldout_sources: list[str], out: Path, vocab_size: int, window: int, workers: int, seed: int
) -> int:
    """Makes a data folder and says what is in it."""
    options = PrepareOptions(
        sources=tuple(sources),
        heldout_sources=tuple(heldout_sources),
        out=out,
        vocab_size=vocab_size,
        window=window,
        workers=workers,
        split_seed=seed,
    )
    manifest = prepare(options)
    for name, split in manifest.splits.items():
        counts = f"{split.num_documents:9,} documents {split.num_tokens:13,} tokens {split.num_windows:10,} windows"
        print(f"{name:12} {counts}")
    print(f"next: scse-dist train demo.yaml data.path={out} run.dir=runs/first")
    return ExitCode.DONE
