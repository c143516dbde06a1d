"""Summaries are made of the text's own sentences; counts count what a reader would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.offline.actions import TextUnit, count_units, split_sentences, summarise_text

ENGLISH = (
    "The queue holds every task. My cat is grey. The queue orders each task by priority."
    " It rained. A worker takes a task from the queue. Tea is nice."
)
CHINESE = (
    "队列保存每个任务。我的猫是灰色的。队列按优先级排列任务。下雨了。工人从队列领取任务。茶很好喝。"
)


def test_the_sentences_that_share_their_words_are_picked_in_order() -> None:
    assert summarise_text(ENGLISH) == (
        "The queue holds every task.",
        "The queue orders each task by priority.",
        "A worker takes a task from the queue.",
    )


def test_chinese_is_scored_by_pairs_of_characters() -> None:
    assert summarise_text(CHINESE) == (
        "队列保存每个任务。",
        "队列按优先级排列任务。",
        "工人从队列领取任务。",
    )


@given(st.text(alphabet=st.sampled_from("ab c.。!\n队列任务- #")), st.integers(1, 5))
def test_a_summary_is_made_of_the_texts_own_sentences(text: str, kept: int) -> None:
    picked = summarise_text(text, kept)

    assert len(picked) <= kept
    assert all(sentence in text for sentence in picked)
    assert bool(picked) == bool(split_sentences(text))


@pytest.mark.parametrize(
    ("text", "unit", "n"),
    [
        ("one two  three", TextUnit.WORDS, 3),
        ("it's a well-known fact", TextUnit.WORDS, 4),
        ("你好 world", TextUnit.WORDS, 3),
        ("", TextUnit.WORDS, 0),
        ("a\nb\n", TextUnit.LINES, 2),
        ("你好\n", TextUnit.CHARACTERS, 3),
    ],
)
def test_counts(text: str, unit: TextUnit, n: int) -> None:
    assert count_units(text, unit) == n
