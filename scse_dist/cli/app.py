"""The verbs of ``scse-dist`` and their options. Imports nothing heavy: ``--help`` answers at once."""

from pathlib import Path
from typing import Annotated

import typer

from scse_dist import __version__

app = typer.Typer(
    name="scse-dist",
    help="Distributed pretraining of looped transformers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 done, 2 your error, 75 checkpointed and to be resumed, 70 a rank was lost, 1 our fault.",
)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="SECTION.KEY=VALUE", help="Settings that replace the recipe's.", show_default=False),
]
NumProcesses = Annotated[
    int | None,
    typer.Option(
        "--nproc", min=1, help="Processes on this machine. [default: one per GPU, else 1]", show_default=False
    ),
]
Depths = Annotated[
    str, typer.Option("--depths", help="Loop counts, ascending, separated by commas. All come from one unroll.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Step = Annotated[
    int | None, typer.Option("--step", min=1, help="Which checkpoint. [default: the newest]", show_default=False)
]


def run(arguments: list[str]) -> None:
    """Runs the verb that ``arguments`` name and exits with its code; errors of usage exit with 2."""
    app(args=arguments, prog_name="scse-dist")


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"scse-dist {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of user errors, too (after any verb).")
    ] = False,
) -> None:
    """Distributed pretraining of looped transformers."""


@app.command(
    epilog="Example: `scse-dist prepare --source 'corpus/*.jsonl.xz' --out data/mine --vocab-size 8192 --window 128`"
)
def prepare(
    source: Annotated[
        list[str],
        typer.Option("--source", help="File, folder or glob of .txt or .jsonl (also .gz, .xz); repeatable."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder to make.")],
    heldout_source: Annotated[
        list[str] | None,
        typer.Option(
            "--heldout-source", help="Text that is never trained on: a further evaluation set.", show_default=False
        ),
    ] = None,
    vocab_size: Annotated[int, typer.Option("--vocab-size", min=2, help="Pieces of the tokenizer.")] = 4096,
    window: Annotated[int, typer.Option("--window", min=1, help="Predicted tokens per sample.")] = 128,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Threads; the bytes do not depend on it.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which document lies in which split.")] = 0,
    validation_fraction: Annotated[
        float, typer.Option("--validation-fraction", help="Share of the documents kept for validation.")
    ] = 0.02,
    test_fraction: Annotated[
        float, typer.Option("--test-fraction", help="Share of the documents kept for the test.")
    ] = 0.04,
    corpus: Annotated[str, typer.Option("--corpus", help="What to call it in records and figures.")] = "corpus",
) -> None:
    """Make tokenizer, splits and shards from raw text."""
    from data_prep.options import PrepareOptions
    from scse_dist.cli.prepare import prepare_data

    options = PrepareOptions(
        sources=tuple(source),
        heldout_sources=tuple(heldout_source or ()),
        out=out,
        corpus=corpus,
        vocab_size=vocab_size,
        window=window,
        workers=workers,
        split_seed=seed,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
    )
    raise typer.Exit(prepare_data(options))


@app.command(
    epilog="Examples: `scse-dist train demo.yaml` · `scse-dist train my.yaml optim.lr=5e-4 --nproc 2` · "
    "`torchrun --nnodes 2 --nproc_per_node 8 ... -m scse_dist train my.yaml`"
)
def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a shipped one.")],
    overrides: Overrides = None,
    nproc: NumProcesses = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print configuration, size, cost and depths; train nothing.")
    ] = False,
) -> None:
    """Train a recipe, or go on where its run folder stands."""
    from scse_dist.cli.train import train_recipe

    raise typer.Exit(train_recipe(recipe, overrides or [], nproc, dry_run=dry_run))


@app.command("eval", epilog="Example: `scse-dist eval runs/demo --set test --set heldout --depths 1,2,4,8,16`")
def evaluate(
    run: RunPath,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A split of the data, or `passages` for last-word completion; repeatable. [default: all but train]",
            show_default=False,
        ),
    ] = None,
    depths: Depths = "1,2,4,8,12,16,24,32,48",
    step: Step = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Windows per forward pass.")] = 16,
    max_windows: Annotated[int, typer.Option("--max-windows", min=0, help="Windows per set; 0 means all.")] = 0,
    nproc: Annotated[int, typer.Option("--nproc", min=1, help="Processes on this machine.")] = 1,
) -> None:
    """Measure a run's quality as a function of depth."""
    from scse_dist.cli.evaluate import evaluate_run

    raise typer.Exit(evaluate_run(run, sets or [], depths, step, batch_size, max_windows, nproc))


@app.command(epilog="Example: `scse-dist generate runs/demo --prompt 'Return the' --num-loops 8 --seed 1`")
def generate(
    run: RunPath,
    prompt: Annotated[str, typer.Option("--prompt", help="Text to continue.")],
    num_loops: Annotated[
        int | None, typer.Option("--num-loops", min=1, help="Depth. [default: the deepest trained]", show_default=False)
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens to add at most.")] = 64,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest token.")] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Only the k likeliest tokens; 0 means all.")] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Fixes what is drawn.")] = 0,
    step: Step = None,
) -> None:
    """Continue a text with a trained run."""
    from scse_dist.cli.generate import generate_text

    raise typer.Exit(generate_text(run, prompt, num_loops, max_tokens, temperature, top_k, seed, step))


@app.command(epilog="Example: `scse-dist demo` (what `make demo` runs)")
def demo(
    nproc: Annotated[
        int | None,
        typer.Option("--nproc", min=1, help="Processes. [default: one per GPU, else 2]", show_default=False),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """From text to a depth curve: corpus, tokenizer, shards, training, evaluation, a sentence."""
    from scse_dist.cli.demo import run_demo

    raise typer.Exit(run_demo(nproc, overrides or []))
