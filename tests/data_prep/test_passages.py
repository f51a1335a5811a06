import json
import re
from pathlib import Path

from data_prep.passages import MAX_PASSAGES, find_passages, write_passages
from tests.data_prep.texts import paragraphs

SENTENCE = "Every morning the old man walked down to the quiet harbour and looked for the boats of his sons"


def sentences(count: int, last: str = "home") -> str:
    return " ".join([f"{SENTENCE}."] * (count - 1) + [f"On the third day they came {last}."])


def test_a_passage_is_verbatim_prose_that_ends_in_a_plain_word() -> None:
    texts = paragraphs()
    passages = list(find_passages(texts))
    assert len(passages) > 50
    whole = "\0".join(texts)
    for passage in passages:
        assert passage + "." in whole
        assert 40 <= len(passage.split()) <= 100
        assert re.search(r" [A-Za-z]{3,}\Z", passage)
        assert passage[0].isupper() or passage[0] in '"\u201c'
        assert ">>>" not in passage
    assert passages == list(find_passages(texts))
    assert len(set(passages)) == len(passages)


def test_what_makes_no_passage() -> None:
    assert list(find_passages([sentences(3)])) == [sentences(3)[:-1]]
    for unsuitable in [
        sentences(2),  # too short
        sentences(3, last="to it"),  # a last word of two letters
        sentences(3, last="at 9"),  # a number
        sentences(3, last="home etc"),  # no end of a sentence
        sentences(3).replace("harbour", "`harbour = {}`"),  # code
        sentences(3).replace(" harbour", "    harbour"),  # a table or an indented block
        " ".join(f"X{i}_y" for i in range(60)) + " home.",  # no words
        "\n\n".join([f"{SENTENCE}."] * 3),  # no paragraph is long enough
    ]:
        assert list(find_passages([unsuitable])) == []


def test_two_of_a_document_and_500_in_all() -> None:
    long_documents = [
        "\n\n".join(sentences(3).replace("third", f"{number} {part}") for part in range(5)) for number in range(400)
    ]
    assert len(list(find_passages(long_documents[:3]))) == 6
    assert len(list(find_passages(long_documents))) == MAX_PASSAGES
    assert len(list(find_passages([sentences(3)] * 3))) == 1


def test_the_file_holds_json_lines_and_is_absent_without_passages(tmp_path: Path) -> None:
    text = sentences(3).replace("quiet harbour", "quiet\u2028harbour")
    path = tmp_path / "passages.jsonl"
    assert write_passages(path, ["Nothing here."]) == 0
    assert not path.exists()
    assert write_passages(path, [text]) == 1
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == [{"text": text[:-1]}]
