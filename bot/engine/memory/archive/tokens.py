"""How many tokens a text is, near enough for budgets, without any model's own tokenizer."""

from __future__ import annotations

import re
from math import ceil

HAN = 1.5
"""For a character of Chinese, Japanese or Korean, or of their punctuation."""
ASTRAL = 2.0
OTHER = 0.25

PICTURE = 1_600
"""For a picture or another file in a message, whatever its size."""

_HAN = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u2ff0-\u31ff\u3200-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]"
)
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def tokens(text: str) -> int:
    if text.isascii():
        return ceil(len(text) * OTHER)
    han = sum(1 for _ in _HAN.finditer(text))
    astral = sum(1 for _ in _ASTRAL.finditer(text))
    return ceil(han * HAN + astral * ASTRAL + (len(text) - han - astral) * OTHER)


def shortened(text: str, most: int) -> str:
    """The beginning of it, at most that many tokens long."""
    # No letter is less than `OTHER`: of a long text the rest need not be counted.
    text = text[: int(max(most, 0) / OTHER) + 1]
    if tokens(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens(text[:middle]) <= most:
            low = middle
        else:
            high = middle - 1
    return text[:low]
