"""Which initial scales train best, for each method alike: the study behind the defaults of ``model.init``.

    python scripts/init_study.py data/demo --out runs/init-study

One process, plain PyTorch around the product's model; every run is one line of ``study.jsonl``, and runs that are
there already are not repeated. A data folder comes from ``scse-dist prepare`` or ``scse-dist demo``.

Shapes: B batch, L length, W window + 1 tokens.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from scse_dist.config.methods import AnyMethodConfig, LoopedBaselineConfig, ScseConfig, TunedAdapterConfig
from scse_dist.config.schema import DepthSection, InitSection, ModelSection, OptimSection
from scse_dist.data.manifest import read_manifest
from scse_dist.data.order import window_at
from scse_dist.data.stream import WindowReader
from scse_dist.evaluate.depth_curve import depth_curve
from scse_dist.model import LoopedLM, build_model
from scse_dist.model.depth import depth_at
from scse_dist.parallel.env import World
from scse_dist.train.schedule import learning_rate

BATCH_SIZE = 16
EVAL_DEPTHS = (1, 4, 8, 24, 48)
EVAL_WINDOWS = 512
WORLD = World(0, 0, 1, 1, torch.device("cpu"), "gloo")


def grid() -> Iterator[tuple[AnyMethodConfig, InitSection]]:
    """Embedding scale for every method, then the scale of A and I and of the linear maps where SCSE is concerned."""
    methods = (ScseConfig(), TunedAdapterConfig(), LoopedBaselineConfig())
    for embedding_std, method in itertools.product((0.1, 0.02, 0.3), methods):
        yield method, InitSection(embedding_std=embedding_std)
    for projection_std in (0.2, 0.4):
        yield ScseConfig(), InitSection(projection_std=projection_std)
        yield TunedAdapterConfig(), InitSection(projection_std=projection_std)
    for method in methods:
        yield method, InitSection(linear_std=0.02)


def train(model: LoopedLM, reader: WindowReader, num_steps: int, lr: float, seed: int) -> float:
    """Trains in place with the demo's protocol; returns the mean loss of the last 50 steps."""
    depth, optim = DepthSection(), OptimSection(lr=lr, warmup_steps=50)
    matrices = [p for name, p in model.named_parameters() if p.ndim >= 2 and not name.startswith("embedding")]
    others = [p for name, p in model.named_parameters() if p.ndim < 2 or name.startswith("embedding")]
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, betas=optim.betas, eps=optim.eps, fused=True)
    losses = []
    for step in range(num_steps):
        first = step * BATCH_SIZE
        tokens_BW = reader.batch_BW([window_at(g, len(reader), seed) for g in range(first, first + BATCH_SIZE)])
        output = model(tokens_BW[:, :-1], depth_at(depth, seed, step), labels_BL=tokens_BW[:, 1:])
        loss = output.loss_sum / output.num_tokens
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optim.grad_clip)
        for group in adamw.param_groups:
            group["lr"] = learning_rate(optim, num_steps, step)
        adamw.step()
        losses.append(float(loss.detach()))
    return sum(losses[-50:]) / len(losses[-50:])


def main() -> None:
    """Runs what is missing of the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num-steps", type=int, default=600)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    manifest = read_manifest(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    records = options.out / "study.jsonl"
    done = [json.loads(line)["run"] for line in records.read_text().splitlines()] if records.exists() else []
    for method, init in grid():
        run = {
            "method": method.model_dump(mode="json"),
            "init": init.model_dump(mode="json"),
            "num_steps": options.num_steps,
            "width": options.width,
            "lr": options.lr,
            "seed": options.seed,
            "data": manifest.fingerprint,
        }
        if run in done:
            continue
        config = ModelSection(
            width=options.width,
            num_heads=max(1, options.width // 32),
            vocab_size=manifest.tokenizer.vocab_size,
            num_positions=manifest.window,
            init=init,
            method=method,
        )
        model = build_model(config, options.seed)
        loss = train(model, WindowReader(options.data, manifest, "train"), options.num_steps, options.lr, options.seed)
        reader = WindowReader(options.data, manifest, "test")
        with torch.no_grad():
            scores = depth_curve(model.eval(), reader, EVAL_DEPTHS, WORLD, batch_size=32, max_windows=EVAL_WINDOWS)
        result = {"train_loss": loss} | {f"ppl@{depth}": score.perplexity for depth, score in scores.items()}
        with records.open("a") as file:
            file.write(json.dumps({"run": run} | result) + "\n")
        print(method.name, init.model_dump(), {key: round(value, 2) for key, value in result.items()}, flush=True)


if __name__ == "__main__":
    main()
