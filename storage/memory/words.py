"""The words of a text as indexes know them: the same for what is stored and what is asked."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_RUN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+|[^\W_]+")
_LONGEST = 80


def terms(text: str) -> Iterator[str]:
    """Latin words and numbers as they are; of Chinese every character and every pair."""
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).lower()):
        if _HAN.fullmatch(run):
            yield from run
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        else:
            yield run[:_LONGEST]


def same(text: str) -> str:
    """A hash that two texts share if they differ in nothing but case, spaces and punctuation."""
    plain = unicodedata.normalize("NFKC", text).lower()
    letters = "".join(each for each in plain if each.isalnum())
    return hashlib.sha256((letters or plain).encode()).hexdigest()
