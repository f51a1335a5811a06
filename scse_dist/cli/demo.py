"""``scse-dist demo``: from text that every installation has to a depth curve."""

import shlex
import sys
from pathlib import Path

from data_prep.docs_corpus import build_docs_corpus
from data_prep.options import PrepareOptions
from data_prep.prepare import prepare
from launchers import find_recipe
from launchers.local import launch, num_gpus
from scse_dist.cli.evaluate import DEFAULT_DEPTHS
from scse_dist.config import RunConfig, load_config
from scse_dist.errors import ExitCode
from scse_dist.run_folder import RunFolder

CORPUS = Path("data/demo-corpus")
DATA = Path("data/demo")
RECIPE = Path("demo.yaml")
VOCAB_SIZE = 2048
WINDOW = 128
PROMPT = "Return the"
EVAL_SETS = ("test", "heldout", "passages")
EVAL_WINDOWS = 192
_RANKS_ON_CPU = 2
"""The demo shows sharding, so it uses two processes where there is no GPU."""


def run_demo(nproc: int | None, overrides: list[str]) -> int:
    """Builds the corpus, prepares it, trains, evaluates and generates; what is there already is used again."""
    recipe = find_recipe(RECIPE)
    config = load_config(recipe, overrides)
    run_dir, data = config.run.dir, Path(config.data.path or DATA)
    nproc = nproc or ranks_for(config, num_gpus())
    share = config.train.global_batch_size // nproc
    if share < config.train.microbatch_size:
        overrides = [*overrides, f"train.microbatch_size={share}"]

    _title("1/5  text: documentation of the installed Python libraries")
    build_docs_corpus(CORPUS)
    _title("2/5  tokenizer, splits, shards")
    prepare(
        PrepareOptions(
            sources=(str(CORPUS / "corpus"),),
            heldout_sources=(str(CORPUS / "heldout"),),
            out=data,
            corpus="library documentation",
            vocab_size=VOCAB_SIZE,
            window=WINDOW,
            workers=2,
        )
    )
    sets = [part for name in EVAL_SETS for part in ("--set", name)]
    budget = ["--depths", DEFAULT_DEPTHS, "--max-windows", str(EVAL_WINDOWS)]
    for title, verb, ranks in (
        (f"3/5  training {config.model.method.name}", ["train", str(recipe), *overrides], nproc),
        ("4/5  quality as a function of depth, all depths from one unroll", ["eval", run_dir, *sets, *budget], nproc),
        ("5/5  a sentence", ["generate", run_dir, "--prompt", PROMPT], 1),
    ):
        _title(f"{title}   (scse-dist {shlex.join(verb)} --nproc {ranks})" if ranks > 1 else title)
        code = launch([sys.executable, "-m", "scse_dist", *verb], ranks, RunFolder(run_dir).logs)
        if code != ExitCode.DONE:
            return code
    print(_next_commands(run_dir))
    return ExitCode.DONE


def ranks_for(config: RunConfig, num_gpus: int) -> int:
    """As many ranks as there are GPUs and the global batch can be divided among."""
    batch = config.train.global_batch_size
    return max(n for n in range(1, min(num_gpus or _RANKS_ON_CPU, batch) + 1) if batch % n == 0)


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _next_commands(run_dir: str) -> str:
    return f"""
The picture: {run_dir}/figures/depth-response.png     The records: {run_dir}/metrics.jsonl, {run_dir}/evals.jsonl

Next:
  tensorboard --logdir {run_dir}/tensorboard      (tensorboard and scse-dist: in .venv/bin after `make demo`)
  scse-dist generate {run_dir} --prompt "The array is" --num-loops 16
  scse-dist train demo.yaml run.dir=runs/baseline model.method.name=looped_baseline --nproc 2
  scse-dist prepare --source 'my-text/*.txt' --out data/mine
  scse-dist train demo.yaml data.path=data/mine run.dir=runs/mine"""
