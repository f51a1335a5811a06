"""Continuing a text at a chosen depth.

Shapes: L length, V vocabulary, K kept tokens.
"""

import torch
from torch import Tensor

from scse_dist.model.lm import LoopedLM


@torch.no_grad()
def continue_tokens(
    model: LoopedLM,
    prompt: list[int],
    num_loops: int,
    *,
    max_tokens: int,
    temperature: float,
    top_k: int,
    seed: int,
    stop_id: int,
) -> list[int]:
    """Draws tokens one after another until ``stop_id`` or ``max_tokens``; the model sees as many as it has positions.

    Args:
        temperature: 0 takes the likeliest token.
        top_k: draws among the k likeliest; 0 means all.
        seed: of a generator of its own, so that equal arguments give equal text.

    Returns:
        The new tokens, without ``stop_id``.
    """
    device = model.embedding.token.device
    num_positions = model.embedding.position.shape[0]
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt) or [stop_id]
    new: list[int] = []
    while len(new) < max_tokens:
        input_ids_1L = torch.tensor([tokens[-num_positions:]], device=device)
        logits_V = model(input_ids_1L, num_loops).logits_BLV[0, -1].float().cpu()
        token = _draw(logits_V, temperature, top_k, generator)
        if token == stop_id:
            break
        tokens.append(token)
        new.append(token)
    return new


def _draw(logits_V: Tensor, temperature: float, top_k: int, generator: torch.Generator) -> int:
    kept_K, tokens_K = logits_V.topk(top_k if 0 < top_k < logits_V.numel() else logits_V.numel())
    if temperature == 0:
        return int(tokens_K[0])
    # Differences to the largest: a temperature near 0 then sends the others to 0 instead of overflowing.
    weights_K = ((kept_K - kept_K[0]).double() / temperature).softmax(-1)
    return int(tokens_K[torch.multinomial(weights_K, 1, generator=generator)])
