"""Made-up conversations with the word frequencies of a language, the same at every call."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate, product
from typing import Any

QUERIES = 200
_FIRST = datetime(2023, 1, 1, tzinfo=UTC)
_TURNS = 20


class Language(StrEnum):
    ENGLISH = "english"
    CHINESE = "chinese"


def made_up(entries: int, language: Language) -> Iterator[dict[str, Any]]:
    """Turns of two people, twenty to a sitting. English ones have 8 to 30 words, Chinese ones 20
    to 120 characters."""
    dice = random.Random(7)
    say = _Speech(language, dice)
    least, most = (8, 30) if language is Language.ENGLISH else (20, 120)
    for number in range(entries):
        yield {
            "text": say(dice.randint(least, most)),
            "sender": dice.choice(("Mara", "Owen")),
            "thread": f"t{number // _TURNS}",
            "said_at": _FIRST + timedelta(hours=number // _TURNS),
            "source": f"s{number}",
        }


def questions(language: Language) -> Sequence[str]:
    """Questions of six words, or of fourteen characters, drawn like those of the turns. Frequent
    words are among them, which makes them harder."""
    say = _Speech(language, random.Random(11))
    length = 6 if language is Language.ENGLISH else 14
    return [say(length) for _ in range(QUERIES)]


class _Speech:
    """Words by Zipf's law."""

    def __init__(self, language: Language, dice: random.Random) -> None:
        self._dice = dice
        self._blank = " " if language is Language.ENGLISH else ""
        if language is Language.ENGLISH:
            syllables = ["".join(each) for each in product("bdfgklmnprstvz", "aeiou")]
            self._words = ["".join(each) for each in product(syllables, repeat=3)][::11]
            random.Random(3).shuffle(self._words)
            first = 10
        else:
            self._words = [chr(0x4E00 + 5 * n) for n in range(3000)]
            first = 20
        self._sums = list(accumulate(1 / (n + first) for n in range(len(self._words))))

    def __call__(self, length: int) -> str:
        last = self._sums[-1]
        drawn = (bisect(self._sums, self._dice.random() * last) for _ in range(length))
        return self._blank.join(self._words[min(at, len(self._words) - 1)] for at in drawn)
