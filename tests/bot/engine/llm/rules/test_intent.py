"""Work is told from talk in both languages, and doubt is talk."""

from __future__ import annotations

import pytest

from bot.engine.llm.rules.intent import intent


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
    found = intent(text)

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
    assert intent(text).kind == "talk"


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
    found = intent(text)

    assert (found.kind, found.priority) == ("task", priority)
