"""Chinese characters: where a text has them, and simplified ones for traditional ones."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

HAN = r"\u3400-\u9fff"
"""The range of Chinese characters, for use inside a character class."""

_TRADITIONAL_FILE = Path(__file__).with_name("traditional.txt")
_HAN = re.compile(f"[{HAN}]")


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


@cache
def _simplified() -> dict[int, str]:
    """The pairs of `traditional.txt`, the traditional character first."""
    pairs = _TRADITIONAL_FILE.read_text(encoding="utf-8").split()
    return {ord(pair[0]): pair[1] for pair in pairs}
