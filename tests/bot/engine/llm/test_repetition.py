"""Which streamed answers count as endless repetition, however they are cut into pieces."""

from __future__ import annotations

import random
import string

import pytest

from bot.engine.llm.repetition import MAX_REPEATED_TEXT, RepeatedTextGuard


def ends_early(text: str, seed: int = 1) -> bool:
    chance, guard, at = random.Random(seed), RepeatedTextGuard(), 0
    while at < len(text):
        size = chance.randint(1, 80)
        if guard.feed(text[at : at + size]):
            return True
        at += size
    return False


def words(count: int, seed: int) -> str:
    chance = random.Random(seed)
    return " ".join("".join(chance.choices(string.ascii_lowercase, k=6)) for _ in range(count))


@pytest.mark.parametrize("period", [1, 2, 13, 60, 333, 500])
@pytest.mark.parametrize("seed", range(5))
def test_a_short_text_again_and_again_is_endless(period: int, seed: int) -> None:
    unit = "".join(random.Random(seed).choices(string.printable, k=period))

    assert ends_early(words(300, seed) + unit * (3 * MAX_REPEATED_TEXT // period), seed)


@pytest.mark.parametrize(
    "text",
    [
        words(20_000, 1),
        "".join(f"row {number}, 0, 0, 0\n" for number in range(5_000)),
        "a" * 3_000 + words(500, 2) + "a" * 3_000,
        (words(120, 3) + "\n") * 60,
        ("-" * 90 + "\n") * 30 + words(2_000, 4),
    ],
    ids=["prose", "a table", "runs", "long paragraphs", "lines"],
)
def test_long_answers_that_only_resemble_it_are_not(text: str) -> None:
    assert not ends_early(text)
