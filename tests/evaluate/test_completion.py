"""Last-word completion: batched equals one by one, and the four figures keep their identity."""

import json
import math
from pathlib import Path

import pytest
import torch

from data_prep.tokenizer import train_tokenizer
from scse_dist.config.schema import ModelSection
from scse_dist.data.tokenizer import Tokenizer
from scse_dist.errors import UserError
from scse_dist.evaluate.completion import CompletionScore, completion_curve, read_passages, split_passage
from scse_dist.model import LoopedLM, build_model
from scse_dist.parallel.env import World
from tests.helpers.dist import run_ranks

ALONE = World(0, 0, 1, 1, torch.device("cpu"), "gloo")
POSITIONS = 24
DEPTHS = (1, 4)
TEXTS = [
    "the loop returns the state it was given",
    "a deviation that is zero stays zero however long the loop runs on and on and on until nobody counts the steps",
    "short one",
    "the anchor is learned and the block sees the deviation alone",
    "every passage has a last word",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    train_tokenizer([text * 40 for text in TEXTS], 300, folder)
    (folder / "passages.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return folder


def tokenizer_in(folder: Path) -> Tokenizer:
    return Tokenizer.load_file(next(folder.glob("*.model")))


def small_model(vocab_size: int) -> LoopedLM:
    config = ModelSection(width=32, num_heads=2, vocab_size=vocab_size, num_positions=POSITIONS)
    return build_model(config, seed=1).eval()


def curve(world: World, folder: Path, batch_size: int) -> dict[int, CompletionScore]:
    tokenizer = tokenizer_in(folder)
    passages = read_passages(folder / "passages.jsonl", tokenizer, POSITIONS)
    return completion_curve(small_model(tokenizer.vocab_size), passages, DEPTHS, world, batch_size=batch_size)


def test_batched_equals_one_passage_at_a_time(folder: Path) -> None:
    tokenizer = tokenizer_in(folder)
    model = small_model(tokenizer.vocab_size)
    nll, correct_words = 0.0, 0
    for text in TEXTS:
        context, target = split_passage(text, tokenizer, POSITIONS)
        logits = model(torch.tensor([context + target[:-1]]), 4).logits_BLV[0, -len(target) :].detach().double()
        nll += float(torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="sum"))
        correct_words += logits.argmax(-1).tolist() == target
    for batch_size in (1, 2, 5):
        score = curve(ALONE, folder, batch_size)[4]
        assert (score.num_passages, score.num_correct_words) == (5, correct_words)
        assert score.nll_sum == pytest.approx(nll, rel=1e-6)


def test_the_number_of_ranks_moves_nothing(folder: Path) -> None:
    alone = curve(ALONE, folder, 2)
    for measured in run_ranks(curve, 2, folder, 2):
        for depth in DEPTHS:
            assert measured[depth]._replace(nll_sum=0) == alone[depth]._replace(nll_sum=0)
            assert measured[depth].nll_sum == pytest.approx(alone[depth].nll_sum, rel=1e-9)


def test_the_figures_keep_their_identity(folder: Path) -> None:
    score = curve(ALONE, folder, 2)[4]
    tokens_per_passage = score.num_tokens / score.num_passages
    log_ppl = math.log(score.figures["completion_ppl"])
    assert math.log(score.figures["ppl_per_passage"]) == pytest.approx(tokens_per_passage * log_ppl)


def test_a_long_passage_loses_context_from_the_left_and_never_its_target(folder: Path) -> None:
    tokenizer = tokenizer_in(folder)
    whole = tokenizer.encode(TEXTS[1])
    context, target = split_passage(TEXTS[1], tokenizer, POSITIONS)
    assert len(whole) > POSITIONS + 1 == len(context) + len(target)
    assert whole[-len(context + target) :] == context + target
    assert tokenizer.decode(target) == " steps"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "not a JSON object"),
        ('{"text": "one"}\n', "line 1: a passage needs at least two words"),
        ('{"text": "a b"}\n{"txt": "a b"}\n', 'line 2: not a JSON object with "text"'),
        ('{"text": "a ' + "xyz" * 40 + '"}\n', "line 1: its last word takes"),
    ],
)
def test_unsuitable_passages_are_named(folder: Path, tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "passages.jsonl").write_text(content)
    with pytest.raises(UserError, match=expected):
        read_passages(tmp_path / "passages.jsonl", tokenizer_in(folder), POSITIONS)
