"""Summaries are made of the text's own sentences; counts count what a reader would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.rules.acts import Unit
from bot.engine.llm.rules.extract import count, sentences_of, summary

ENGLISH = (
    "The queue holds every task. My cat is grey. The queue orders each task by priority."
    " It rained. A worker takes a task from the queue. Tea is nice."
)
CHINESE = (
    "队列保存每个任务。我的猫是灰色的。队列按优先级排列任务。下雨了。工人从队列领取任务。茶很好喝。"
)


def test_the_sentences_that_share_their_words_are_picked_in_order() -> None:
    assert summary(ENGLISH) == (
        "The queue holds every task.",
        "The queue orders each task by priority.",
        "A worker takes a task from the queue.",
    )


def test_chinese_is_scored_by_pairs_of_characters() -> None:
    assert summary(CHINESE) == (
        "队列保存每个任务。",
        "队列按优先级排列任务。",
        "工人从队列领取任务。",
    )


@given(st.text(alphabet=st.sampled_from("ab c.。!\n队列任务- #")), st.integers(1, 5))
def test_a_summary_is_made_of_the_texts_own_sentences(text: str, kept: int) -> None:
    picked = summary(text, kept)

    assert len(picked) <= kept
    assert all(sentence in text for sentence in picked)
    assert bool(picked) == bool(sentences_of(text))


@pytest.mark.parametrize(
    ("text", "unit", "n"),
    [
        ("one two  three", Unit.WORDS, 3),
        ("it's a well-known fact", Unit.WORDS, 4),
        ("你好 world", Unit.WORDS, 3),
        ("", Unit.WORDS, 0),
        ("a\nb\n", Unit.LINES, 2),
        ("你好\n", Unit.CHARACTERS, 3),
    ],
)
def test_counts(text: str, unit: Unit, n: int) -> None:
    assert count(text, unit) == n
