"""A task's text is cut into steps, and no word of it is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.answer_schemas import MAX_STEPS
from bot.engine.llm.offline.task_parser import (
    MAX_STEP_TITLE,
    classify_intent,
    split_steps,
    step_title,
)


@pytest.mark.parametrize(
    "text",
    [
        "write a haiku about queues and save it to haiku.md",
        "Can you write a report about our sales?",
        "please fix the login bug",
        "list the files",
        "1. read notes.md\n2. summarise it",
        "帮我写一份周报",
        "写一首关于队列的俳句，并保存到 haiku.md",
        "翻译这份合同",
        "整理一下会议纪要",
    ],
)
def test_a_wish_for_something_made_is_a_task(text: str) -> None:
    found = classify_intent(text)

    assert found.kind == "task"
    assert found.title


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "你好",
        "thanks!",
        "what is a queue?",
        "How do I write a report?",
        "did you write the report",
        "周报怎么写？",
        "今天天气不错",
        "I like reports",
        "say hello",
        "count words: one two three",
        "写得不错",
    ],
)
def test_questions_greetings_and_remarks_are_talk(text: str) -> None:
    assert classify_intent(text).kind == "talk"


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("urgent: write the release notes", "urgent"),
        ("紧急：写一份故障报告", "urgent"),
        ("write an important letter to the bank", "important"),
        ("write a letter to the bank", None),
    ],
)
def test_the_priority_is_only_what_the_message_says(text: str, priority: str | None) -> None:
    found = classify_intent(text)

    assert (found.kind, found.priority) == ("task", priority)


_LINKS = {
    *("and", "then", "first", "firstly", "second", "secondly", "third", "thirdly", "next"),
    *("finally", "lastly", "after", "that", "afterwards"),
    *"然后接着随后再并且同时最后首先其次第一二三四五六七八九十步",
}
_WORDS = re.compile(r"[A-Za-z]+|[\u4e00-\u9fff]")

_clauses = st.sampled_from(
    [
        "list files",
        "write a haiku about queues",
        "save it to haiku.md",
        "count the words in a.txt",
        "列出文件",
        "写一首关于队列的俳句",
        "保存到 haiku.md",
        "写入 'one, then two. And three' 到 b.txt",
        "等 3 秒",
    ]
)
_joints = st.sampled_from(
    [", then ", " and ", ". ", "。", "，然后", "并", "；", "\n", ". Finally, "]
)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(text) if word.lower() not in _LINKS]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (
            "write a haiku about queues and save it to haiku.md",
            ("write a haiku about queues", "save it to haiku.md"),
        ),
        ("先列出文件，然后等 3 秒，最后总结 a.md", ("列出文件", "等 3 秒", "总结 a.md")),
        ("写一首关于队列的俳句并保存到 haiku.md", ("写一首关于队列的俳句", "保存到 haiku.md")),
        ("1. list files\n2) wait 3 seconds\n", ("list files", "wait 3 seconds")),
        ("1、列出文件 2、等 2 秒", ("列出文件", "等 2 秒")),
        ("- list files\n  - all of them\n- wait", ("list files\n  - all of them", "wait")),
        ("Read notes.md. Then summarise it.", ("Read notes.md.", "summarise it.")),
        ("read 1.txt, then read 2.txt", ("read 1.txt", "read 2.txt")),
        ("salt and pepper", ("salt and pepper",)),
        ("write 'wait, then go' to a.txt", ("write 'wait, then go' to a.txt",)),
        ("再见", ("再见",)),
        ("version 3.5 of a.b.c is out", ("version 3.5 of a.b.c is out",)),
        ("If it rains, then read a book", ("If it rains, then read a book",)),
        ("write to n.md:\n- a\n- b", ("write to n.md:\n- a\n- b",)),
        ("", ()),
        ("…!", ()),
    ],
)
def test_text_is_cut_where_its_own_marks_are(text: str, steps: tuple[str, ...]) -> None:
    assert split_steps(text).steps == steps


def test_what_stands_before_a_list_is_kept_apart_from_its_items() -> None:
    pieces = split_steps("Please do this:\n1. list files\n2. wait 1 second")

    assert pieces.intro == "Please do this:"
    assert pieces.steps == ("list files", "wait 1 second")


@pytest.mark.parametrize(
    "text", [" " * 100_000, ", " * 50_000, "“" * 50_000, "列出文件然后" * 16_000]
)
def test_a_hundred_kilobytes_are_no_trap(text: str) -> None:
    assert len(split_steps(text).steps) <= MAX_STEPS


def test_marks_inside_a_code_block_are_no_steps() -> None:
    assert split_steps("```\n1. a\n2. b\n```").steps == ("```\n1. a\n2. b\n```",)


@given(st.lists(st.tuples(_clauses, _joints), min_size=1, max_size=8))
def test_joined_clauses_lose_no_word(parts: list[tuple[str, str]]) -> None:
    text = "".join(clause + joint for clause, joint in parts)

    assert _words(" ".join(split_steps(text).steps)) == _words(text)


@given(
    st.text(
        alphabet=st.sampled_from("ab .,;:\n\t-*1234)(、。，然后再并写列最'\"`“”and then"),
        max_size=200,
    )
)
def test_any_text_loses_no_word(text: str) -> None:
    pieces = split_steps(text)

    assert _words("\n".join([pieces.intro, *pieces.steps])) == _words(text)


@given(st.integers(min_value=1, max_value=80))
def test_there_are_never_more_steps_than_a_plan_may_have(n: int) -> None:
    pieces = split_steps("\n".join(f"{at}. word{at}" for at in range(1, n + 1)))

    assert len(pieces.steps) <= MAX_STEPS
    assert _words("\n".join(pieces.steps)) == ["word"] * n


@given(st.text())
def test_a_title_is_one_short_line(text: str) -> None:
    title = step_title(text)

    assert len(title) <= MAX_STEP_TITLE
    assert len(title.splitlines()) <= 1
