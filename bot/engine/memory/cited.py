"""Whether an answer has used an entry: by words that it can have from nowhere else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from storage.records.memory.entries import Entry

_RUN = re.compile(r"[\u3400-\u9fff]+|[^\W_]+(?:[-'’.][^\W_]+)*")
_HAN = re.compile(r"[\u3400-\u9fff]")
_LONGEST = 8_000
_HAN_RUN = 4
"""So many characters in a row are no chance."""
_WORDS = 2
_RARE = 7
"""So long a word, or one with a digit in it, is none that everybody uses."""
_KEYWORDS = 0.5

_COMMON = """\
    a about after again all also always am an and any are as at back be because been before being
    but by can could did do does done each even every for from get go had has have he her here him
    his how i if in into is it its just know let like made make many may me more most much must my
    need never new no not now of off on once one only or other our out over own please same say see
    she should so some such take than that the their them then there these they this those through
    to too under up us use very want was way we well were what when where which while who will with
    without would yes yet you your answer nothing something anything everything remember
    information question understand"""
_STOP = frozenset(_COMMON.split())


def is_cited(entry: Entry, answer: str, asked: str = "") -> bool:
    """Two uncommon words in a row, one that is rare in itself, four Chinese characters, or half of
    the entry's keywords: none of them said by who `asked`."""
    said = _plain(answer)
    known = _plain(asked)
    if not said:
        return False
    pieces = [piece for piece in _pieces(_plain(entry.text)) if piece not in known]
    if any(piece in said for piece in pieces):
        return True
    keywords = [each for each in map(_plain, entry.keywords) if each.strip() and each not in known]
    hits = sum(each in said for each in keywords)
    return bool(hits) and hits >= _KEYWORDS * len(keywords)


def _pieces(text: str) -> list[str]:
    """What of the text is telling enough to be looked for."""
    runs = text.split()
    found: list[str] = []
    for run in runs:
        if _HAN.match(run):
            found += [run[at : at + _HAN_RUN] for at in range(len(run) - _HAN_RUN + 1)]
        elif _is_rare(run):
            found.append(f" {run} ")
    return found + _pairs(runs)


def _pairs(runs: Sequence[str]) -> list[str]:
    words = [(at, run) for at, run in enumerate(runs) if run not in _STOP and not _HAN.match(run)]
    return [
        f" {one} {other} " for (at, one), (next_at, other) in pairwise(words) if next_at == at + 1
    ]


def _is_rare(word: str) -> bool:
    if word in _STOP:
        return False
    return len(word) >= _RARE or (len(word) > _WORDS and any(map(str.isdigit, word)))


def _plain(text: str) -> str:
    """Words with one space around each, so that a part of a word is none."""
    runs = _RUN.findall(unicodedata.normalize("NFKC", text[:_LONGEST]).lower())
    return f" {' '.join(runs)} "
