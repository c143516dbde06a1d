"""Token estimates without a model's tokenizer, and fair division of a token budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil

TOKENS_PER_CJK_CHAR = 1.5
"""Per Chinese, Japanese or Korean character or punctuation mark."""
TOKENS_PER_ASTRAL_CHAR = 2.0
TOKENS_PER_OTHER_CHAR = 0.25

TOKENS_PER_ATTACHMENT = 1_600
"""Per image or file in a message, whatever its size."""

_HAN = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u2ff0-\u31ff\u3200-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]"
)
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def estimate_tokens(text: str) -> int:
    if text.isascii():
        return ceil(len(text) * TOKENS_PER_OTHER_CHAR)
    han = sum(1 for _ in _HAN.finditer(text))
    astral = sum(1 for _ in _ASTRAL.finditer(text))
    return ceil(
        han * TOKENS_PER_CJK_CHAR
        + astral * TOKENS_PER_ASTRAL_CHAR
        + (len(text) - han - astral) * TOKENS_PER_OTHER_CHAR
    )


def truncate_to_tokens(text: str, max_tokens: int) -> str:
    """The beginning of the text, at most `max_tokens` long."""
    # Every character costs at least `OTHER`, so the rest of a long text need not be counted.
    text = text[: int(max(max_tokens, 0) / TOKENS_PER_OTHER_CHAR) + 1]
    if estimate_tokens(text) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def divide_budget(budget: float, needs: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Divide by shares; unused parts are divided again among the rest. Each gets at most its need
    and at least the smaller of its need and its share."""
    given = [0.0] * len(needs)
    hungry = {at for at, need in enumerate(needs) if need > 0 and shares[at] > 0}
    left = max(0.0, budget)
    while hungry and left > 0:
        total = sum(shares[at] for at in hungry)
        portions = {at: left * shares[at] / total for at in hungry}
        full = {at for at in hungry if needs[at] <= portions[at]}
        if not full:
            for at, portion in portions.items():
                given[at] = portion
            break
        for at in full:
            given[at] = needs[at]
        left -= sum(needs[at] for at in full)
        hungry -= full
    return given
