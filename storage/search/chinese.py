"""Chinese characters: where a text has them, and simplified ones for traditional ones."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

HAN = r"\u3400-\u9fff"
"""The range of Chinese characters, for use inside a character class."""

_TRADITIONAL_FILE = Path(__file__).with_name("traditional.txt")
_HAN = re.compile(f"[{HAN}]")
_MAX_SPELLINGS = 12
_BOTH_SCRIPTS = 2


def contains_han(text: str) -> bool:
    return _HAN.search(text) is not None


def count_han(text: str) -> int:
    return len(_HAN.findall(text))


def simplify_han(text: str) -> str:
    """The text with simplified characters, each in its place: rules and comparisons read both
    scripts alike. Not for showing: of several traditional forms, one stands for all."""
    if text.isascii():
        return text
    return text.translate(_simplified())


def han_spellings(word: str) -> tuple[str, ...]:
    """The word as written and in either script, for stores that compare characters: a dozen at
    most, the commonest first where several traditional characters stand for one."""
    plain = simplify_han(word)
    if plain.isascii():
        return (word,)
    choices = [(each, *_traditional().get(each, ())) for each in plain]
    while prod(map(len, choices)) > _MAX_SPELLINGS:
        longest = max(range(len(choices)), key=lambda n: len(choices[n]))
        if len(choices[longest]) <= _BOTH_SCRIPTS:
            # Nobody mixes the scripts within a word.
            whole = "".join(each[-1] for each in choices)
            return tuple(dict.fromkeys((word, plain, whole)))
        choices[longest] = choices[longest][:-1]
    spelled = ("".join(each) for each in product(*choices))
    return tuple(dict.fromkeys((word, *spelled)))


@cache
def _traditional() -> dict[str, tuple[str, ...]]:
    """The traditional characters of each simplified one."""
    found: dict[str, list[str]] = {}
    for traditional, simplified in _simplified().items():
        found.setdefault(simplified, []).append(chr(traditional))
    return {simplified: tuple(each) for simplified, each in found.items()}


@cache
def _simplified() -> dict[int, str]:
    """The pairs of `traditional.txt`, the traditional character first."""
    pairs = _TRADITIONAL_FILE.read_text(encoding="utf-8").split()
    return {ord(pair[0]): pair[1] for pair in pairs}
