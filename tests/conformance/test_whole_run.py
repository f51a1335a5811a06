"""A whole ``scse-dist train`` against the reference: the command line, shards, order of samples, depths, learning rate
and accumulation as they act together. What the reference is given is written out here."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from scse_dist.checkpoint.open_run import open_run
from scse_dist.config.schema import ModelSection
from scse_dist.data.order import window_at
from scse_dist.model import build_model
from tests.conformance import reference
from tests.conformance.cases import Outcome
from tests.conformance.compare import TOLERANCE, deviation
from tests.helpers.runs import metrics, scse_dist
from tests.helpers.shards import write_data_folder
from tests.model.formulas import Formula
from tests.model.names import to_formula

SEED, WINDOW, NUM_WINDOWS, BATCH, VOCAB_SIZE = 5, 8, 50, 12, 40
MODEL = {"width": 32, "num_heads": 4, "ffn_width": 48, "method": {"name": "scse"}}
RECIPE = {
    "seed": SEED,
    "model": MODEL,
    "depth": {"min": 1, "max": 8},
    "train": {"num_steps": 6, "global_batch_size": BATCH, "microbatch_size": 2},
    "optim": {"lr": 0.006, "eps": 1e-5, "warmup_steps": 2, "grad_clip": 1.8, "min_lr_ratio": 0.1},
    "parallel": {"zero_stage": 2, "recompute": "every_loop", "device": "cpu"},
    "telemetry": {"log_every": 1, "tensorboard": False},
}
DEPTHS = (2, 3, 4, 6, 2, 5)
"""What seed 5 draws."""
LR_BY_STEP = (0.002, 0.004, *(0.0006 + 0.0054 * 0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4)))


TOKENS = np.random.default_rng(0).integers(0, VOCAB_SIZE, NUM_WINDOWS * WINDOW + 1)


def global_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples step * 12 ... step * 12 + 11 of the run, which goes into its second epoch; labels are one token on."""
    starts = [WINDOW * window_at(BATCH * step + i, NUM_WINDOWS, SEED) for i in range(BATCH)]
    whole_BW = torch.tensor(np.stack([TOKENS[start : start + WINDOW + 1] for start in starts]), dtype=torch.int64)
    return whole_BW[:, :-1], whole_BW[:, 1:]


def test_a_run_of_two_ranks_equals_the_reference(tmp_path: Path):
    splits = {"train": TOKENS, "validation": TOKENS[: 2 * WINDOW + 1]}
    write_data_folder(tmp_path / "data", splits, WINDOW, vocab_size=VOCAB_SIZE)
    recipe, run = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(yaml.safe_dump(RECIPE | {"run": {"dir": str(run)}, "data": {"path": str(tmp_path / "data")}}))
    ended = scse_dist("train", str(recipe), "--nproc", "2")
    assert ended.returncode == 0, ended.stderr

    logged = metrics(run)
    assert [record["num_loops"] for record in logged] == list(DEPTHS)
    assert [record["lr"] for record in logged] == pytest.approx(LR_BY_STEP)
    assert [record["tokens"] for record in logged] == [BATCH * WINDOW * step for step in range(1, 7)]

    section = ModelSection.model_validate(MODEL | {"vocab_size": VOCAB_SIZE, "num_positions": WINDOW})
    history = reference.train(
        Formula("scse", num_heads=4, step_scale=0.5, projection_scale=0.1, mask_eps=1e-8),
        to_formula(build_model(section, SEED).state_dict()),
        reference.Optimizer(LR_BY_STEP, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1, grad_clip=1.8),
        [global_batch(step) for step in range(6)],
        DEPTHS,
    )
    outcome = Outcome(
        losses=[record["loss"] for record in logged],
        grad_norms=[record["grad_norm"] for record in logged],
        weights=open_run(run, None, torch.device("cpu")).model.state_dict(),
    )
    found = deviation(outcome, history)
    assert max(found) < TOLERANCE, found
