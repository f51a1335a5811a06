"""Last-word completion passages cut from the texts of a split: prose of 40 to 100 words, verbatim, whose last word is
to be guessed. The rule is fixed, so the same texts give the same passages."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_PASSAGES = 500
MAX_PER_DOCUMENT = 2
MIN_WORDS, MAX_WORDS = 40, 100

_PLAIN_WORD = re.compile(r"[\"'(\u2018\u201c]?[A-Za-z]+(?:[-'\u2019][A-Za-z]+)*[\"')\u2019\u201d]?[.,;:!?]*")
_PLAIN_SHARE = 0.8
_NOT_PROSE = re.compile(r">>>|::|--|[{}<>|\\=@#~]|\s\s")

_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_START = re.compile(r"(?:\A|(?<=[.!?]\s))(?=[A-Z\"\u201c])")
# A word after a space (so that splitting at the last space finds it), then a full stop that ends a sentence.
_ABBREVIATION = r"(?:etc|Mrs|Rev|Gen|Col|Capt|Prof|resp|approx|vol|fig)\b"
_LAST_WORD = re.compile(rf"(?<= )(?!{_ABBREVIATION})([A-Za-z]{{3,}})\.(?=\s+[A-Z\"\u201c]|\s*\Z)")


def find_passages(texts: Iterable[str]) -> Iterator[str]:
    """Passages without their final full stop: at most two of a text, 500 in all, none twice."""
    found: set[str] = set()
    for text in texts:
        in_text = 0
        for passage in _passages_of(text):
            if passage not in found:
                found.add(passage)
                in_text += 1
                yield passage
            if in_text == MAX_PER_DOCUMENT or len(found) == MAX_PASSAGES:
                break
        if len(found) == MAX_PASSAGES:
            return


def write_passages(path: Path, texts: Iterable[str]) -> int:
    """Writes JSON lines with ``text`` and returns their number; no file where there are none."""
    lines = [json.dumps({"text": passage}) + "\n" for passage in find_passages(texts)]
    if lines:
        path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _passages_of(text: str) -> Iterator[str]:
    for paragraph in _BLANK_LINE.split(text):
        after = 0
        ends = [match.end(1) for match in _LAST_WORD.finditer(paragraph)]
        for start in (match.start() for match in _SENTENCE_START.finditer(paragraph)):
            if start < after:
                continue
            for end in ends:
                passage = paragraph[start:end] if end > start else ""
                words = len(passage.split())
                if words > MAX_WORDS:
                    break
                if words >= MIN_WORDS and _is_prose(passage):
                    yield passage
                    after = end
                    break


def _is_prose(passage: str) -> bool:
    if _NOT_PROSE.search(passage):
        return False
    words = passage.split()
    return sum(_PLAIN_WORD.fullmatch(word) is not None for word in words) >= _PLAIN_SHARE * len(words)
