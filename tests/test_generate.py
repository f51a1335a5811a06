"""Continuing a text: what is drawn, when it ends, and how much of the text the model sees."""

from typing import Any

import pytest
import torch

from scse_dist.generate import continue_tokens
from scse_dist.model import LoopedLM
from tests.model.models import LENGTH, VOCAB_SIZE, small_model

NUM_LOOPS = 3
NUM_TOKENS = 25
PROMPT = [7, 3, 11]
NEVER = VOCAB_SIZE
"""A stop token that no draw can give."""


@pytest.fixture(scope="module")
def model() -> LoopedLM:
    return small_model()


def draw(model: LoopedLM, prompt: list[int], **changed: Any) -> list[int]:
    settings = {"max_tokens": NUM_TOKENS, "temperature": 1.5, "top_k": 0, "seed": 0, "stop_id": NEVER}
    return continue_tokens(model, prompt, NUM_LOOPS, **settings | changed)


@torch.no_grad()
def logits_after(model: LoopedLM, tokens: list[int]) -> torch.Tensor:
    """Of the next token, as far back as the model can look."""
    logits_BLV = model(torch.tensor([tokens[-LENGTH:]]), NUM_LOOPS).logits_BLV
    assert logits_BLV is not None
    return logits_BLV[0, -1]


def greedy(model: LoopedLM, prompt: list[int], num_tokens: int = NUM_TOKENS) -> list[int]:
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(logits_after(model, tokens).argmax()))
    return tokens[len(prompt) :]


def test_temperature_0_takes_the_likeliest_token_whatever_the_seed(model: LoopedLM) -> None:
    expected = greedy(model, PROMPT)
    assert len(set(expected)) > 1
    assert draw(model, PROMPT, temperature=0.0, seed=1) == draw(model, PROMPT, temperature=0.0, seed=2) == expected


@pytest.mark.parametrize("setting", [{"top_k": 1}, {"temperature": 1e-4}])
def test_one_candidate_or_hardly_any_temperature_is_the_likeliest_token(
    model: LoopedLM, setting: dict[str, float]
) -> None:
    assert draw(model, PROMPT, **setting) == greedy(model, PROMPT)


def test_a_high_temperature_draws_nearly_evenly(model: LoopedLM) -> None:
    assert len(set(draw(model, PROMPT, temperature=1e4, max_tokens=100))) > 0.7 * VOCAB_SIZE


def test_only_the_k_likeliest_are_drawn_and_each_of_them(model: LoopedLM) -> None:
    allowed = logits_after(model, PROMPT).topk(3).indices.tolist()
    drawn = {draw(model, PROMPT, temperature=1e4, top_k=3, max_tokens=1, seed=seed)[0] for seed in range(40)}
    assert drawn == set(allowed)


@pytest.mark.parametrize("top_k", [VOCAB_SIZE, VOCAB_SIZE + 1])
def test_as_many_candidates_as_tokens_are_all_of_them(model: LoopedLM, top_k: int) -> None:
    assert draw(model, PROMPT, top_k=top_k) == draw(model, PROMPT, top_k=0)


def test_the_seed_alone_decides_what_is_drawn(model: LoopedLM) -> None:
    torch.manual_seed(1)
    first = draw(model, PROMPT, seed=5)
    torch.manual_seed(2)
    assert draw(model, PROMPT, seed=5) == first
    assert draw(model, PROMPT, seed=6) != first


def test_the_stop_token_ends_the_text_and_is_not_part_of_it(model: LoopedLM) -> None:
    whole = draw(model, PROMPT)
    stop_id = whole[5]
    until_stop = whole[: whole.index(stop_id)]
    assert until_stop
    assert draw(model, PROMPT, stop_id=stop_id) == until_stop


@pytest.mark.parametrize("max_tokens", [1, 4, NUM_TOKENS])
def test_there_are_as_many_tokens_as_asked_for_and_the_first_do_not_depend_on_it(
    model: LoopedLM, max_tokens: int
) -> None:
    drawn = draw(model, PROMPT, max_tokens=max_tokens)
    assert len(drawn) == max_tokens
    assert drawn == draw(model, PROMPT)[:max_tokens]


def test_of_a_long_prompt_the_model_sees_the_end(model: LoopedLM) -> None:
    prompt = [token % VOCAB_SIZE for token in range(0, 7 * 3 * LENGTH, 7)]
    drawn = draw(model, prompt)
    assert drawn == draw(model, prompt[-LENGTH:])
    assert drawn != draw(model, prompt[:LENGTH])
    assert drawn != draw(model, prompt[-LENGTH + 1 :])


def test_the_prompt_is_left_as_it_is_and_an_empty_one_starts_a_text(model: LoopedLM) -> None:
    prompt = list(PROMPT)
    draw(model, prompt)
    assert prompt == PROMPT
    assert draw(model, [], stop_id=0, max_tokens=1) == draw(model, [0], stop_id=0, max_tokens=1)
