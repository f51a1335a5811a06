"""The reference stands on its own feet."""

import subprocess
import sys

import torch

from tests.conformance.reference import Optimizer, train
from tests.model.formulas import Formula, logits, loss_sum, states


def test_the_reference_imports_nothing_of_the_project():
    code = (
        "import sys, tests.conformance.reference;"
        "ours = ('scse_dist', 'launchers', 'data_prep', 'ds_configs', 'deepspeed');"
        "print([name for name in sys.modules if name.split('.')[0] in ours])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_its_optimizer_is_the_one_of_torch():
    """AdamW by hand against torch's, with the clip acting and with two decay groups."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"token": (9, 4), "position": (5, 4), "final": (4,), "A": (4, 4), "I": (4, 4)}
    shapes |= {f"0.{name}": (4, 4) for name in "qkvo"} | {"0.gate": (6, 4), "0.up": (6, 4), "0.down": (4, 6)}
    shapes |= {"0.norm1": (4,), "0.norm2": (4,)}
    initial = {name: 0.5 * torch.randn(shape, generator=generator).double() for name, shape in shapes.items()}
    tokens_BW = torch.randint(0, 9, (3, 6), generator=generator)
    batch = tokens_BW[:, :-1], tokens_BW[:, 1:]
    formula = Formula("scse", num_heads=2)
    optimizer = Optimizer((0.1, 0.05, 0.02), betas=(0.8, 0.9), eps=1e-8, weight_decay=0.3, grad_clip=0.2)
    history = train(formula, initial, optimizer, [batch] * 3, (2, 1, 3))

    ours = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in initial.items()}
    decayed = [name for name in ours if ours[name].ndim == 2 and name not in ("token", "position")]
    groups = [
        {"params": [ours[name] for name in decayed], "weight_decay": 0.3},
        {"params": [p for name, p in ours.items() if name not in decayed], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, betas=(0.8, 0.9))
    for step, num_loops in enumerate((2, 1, 3)):
        _fill_gradients(formula, ours, batch, num_loops)
        norm = torch.nn.utils.clip_grad_norm_(list(ours.values()), 0.2).item()
        assert norm > 0.2 and abs(norm / history.grad_norms[step] - 1) < 1e-5  # torch clips to 0.2 / (norm + 1e-6)
        for group in adamw.param_groups:
            group["lr"] = optimizer.lr_by_step[step]
        adamw.step()
    for name, tensor in history.weights.items():
        torch.testing.assert_close(ours[name].detach(), tensor, rtol=1e-4, atol=1e-6)


def _fill_gradients(formula: Formula, weights: dict, batch: tuple, num_loops: int) -> None:
    for parameter in weights.values():
        parameter.grad = None
    total, num_tokens = loss_sum(logits(weights, states(formula, weights, batch[0], num_loops)[1][-1]), batch[1])
    (total / num_tokens).backward()
