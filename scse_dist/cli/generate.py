"""``scse-dist generate``."""

import math
from pathlib import Path

import torch

from scse_dist.checkpoint.open_run import open_run
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import ExitCode, UserError
from scse_dist.generate import continue_tokens


def generate_text(
    path: Path,
    prompt: str,
    num_loops: int | None,
    max_tokens: int,
    temperature: float,
    top_k: int,
    seed: int,
    step: int | None,
) -> int:
    """Prints the prompt and its continuation."""
    if not prompt:
        raise UserError("--prompt='' is empty; give some text to continue")
    if not math.isfinite(temperature):
        raise UserError(f"--temperature={temperature}: give a finite number, 0 or more")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = open_run(path, step, device)
    tokenizer = Tokenizer.load_file(run.folder.tokenizer)
    new = continue_tokens(
        run.model,
        tokenizer.encode(prompt),
        num_loops or run.config.depth.max,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        stop_id=tokenizer.end_of_text_id,
    )
    print(prompt + tokenizer.decode(new))
    return ExitCode.DONE
