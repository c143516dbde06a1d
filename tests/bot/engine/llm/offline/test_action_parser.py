"""Fixed forms of words are recognised in both languages; everything else is Unknown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.answer_schemas import MAX_STEPS
from bot.engine.llm.offline.action_parser import (
    MAX_STEP_TITLE,
    classify_intent,
    parse_action,
    split_steps,
    step_title,
    strip_courtesy,
)
from bot.engine.llm.offline.actions import (
    CountAction,
    EarlierOutput,
    FileText,
    GreetAction,
    HaikuAction,
    ListFolderAction,
    LiteralText,
    OfflineAction,
    ShowAction,
    SummariseAction,
    TextUnit,
    UnknownAction,
    WaitAction,
    WriteFileAction,
)
from tests.case_tables import all_cases


def _writes(path: str, text: str) -> WriteFileAction:
    return WriteFileAction(path=path, content=ShowAction(source=LiteralText(text=text)))


_IT = ShowAction(source=EarlierOutput())


@all_cases(
    ("text", "act"),
    [
        ("write a haiku about queues", HaikuAction(topic="queues", chinese=False)),
        ("写一首关于队列的俳句", HaikuAction(topic="队列", chinese=True)),
        ("save it to haiku.md", WriteFileAction(path="haiku.md", content=_IT)),
        ("把它保存到haiku.md", WriteFileAction(path="haiku.md", content=_IT)),
        ("保存到 haiku.md", WriteFileAction(path="haiku.md", content=_IT)),
        ("把摘要存到 s.md", WriteFileAction(path="s.md", content=_IT)),
        (
            "Can you write a haiku about rain and save it to a/b.md?",
            WriteFileAction(path="a/b.md", content=HaikuAction(topic="rain", chinese=False)),
        ),
        (
            "写一首关于雨的俳句，并保存到 雨.md",
            WriteFileAction(path="雨.md", content=HaikuAction(topic="雨", chinese=True)),
        ),
        (
            "write a summary of notes.txt to s.md",
            WriteFileAction(
                path="s.md", content=SummariseAction(source=FileText(path="notes.txt"))
            ),
        ),
        (
            "put the list of files in list.txt",
            WriteFileAction(path="list.txt", content=ListFolderAction(path=".")),
        ),
        ("write 'hello, world' to a.txt", _writes("a.txt", "hello, world")),
        ("create a file a.txt with the text hello there", _writes("a.txt", "hello there")),
        ('create a file called x.txt containing "a b"', _writes("x.txt", "a b")),
        ("create an empty file x.txt", _writes("x.txt", "")),
        ("write to notes.md:\n- a\n\n- b", _writes("notes.md", "- a\n\n- b")),
        ("把“你好”写入 a.txt", _writes("a.txt", "你好")),
        ('写 "急" 到 u.txt', _writes("u.txt", "急")),
        ("保存“你好”到 a.txt 文件", _writes("a.txt", "你好")),
        ("创建文件 a.txt，内容为 你好世界", _writes("a.txt", "你好世界")),
        ("在 a.txt 里写入“x”", _writes("a.txt", "x")),
        ("list files", ListFolderAction(path=".")),
        ("list the files in src", ListFolderAction(path="src")),
        ("ls", ListFolderAction(path=".")),
        ("列出 src 目录里的文件", ListFolderAction(path="src")),
        ("帮我列出文件", ListFolderAction(path=".")),
        ("summarise notes.txt", SummariseAction(source=FileText(path="notes.txt"))),
        ("summarize it", SummariseAction(source=EarlierOutput())),
        ("summarise: One. Two", SummariseAction(source=LiteralText(text="One. Two"))),
        ("总结 notes.txt", SummariseAction(source=FileText(path="notes.txt"))),
        ("总结：今天很好", SummariseAction(source=LiteralText(text="今天很好"))),
        ("wait 3 seconds", WaitAction(seconds=3)),
        ("wait for half an hour", WaitAction(seconds=1800)),
        ("sleep 2m", WaitAction(seconds=120)),
        ("等待半个小时", WaitAction(seconds=1800)),
        ("等 1.5 秒", WaitAction(seconds=1.5)),
        (
            "count the words in a.txt",
            CountAction(unit=TextUnit.WORDS, source=FileText(path="a.txt")),
        ),
        (
            "count words: one two",
            CountAction(unit=TextUnit.WORDS, source=LiteralText(text="one two")),
        ),
        ("统计 a.txt 的行数", CountAction(unit=TextUnit.LINES, source=FileText(path="a.txt"))),
        ("read notes.md", ShowAction(source=FileText(path="notes.md"))),
        ("read '报告 1.md'", ShowAction(source=FileText(path="报告 1.md"))),
        ("读取 notes.md", ShowAction(source=FileText(path="notes.md"))),
        ("say hello", ShowAction(source=LiteralText(text="hello"))),
        ("Hello there!", GreetAction()),
        ("你好", GreetAction()),
    ],
)
def test_a_form_of_words_is_recognised(text: str, act: OfflineAction) -> None:
    assert parse_action(text) == act


@pytest.mark.parametrize(
    "text",
    [
        "",
        "write a report about sales to report.md",
        "write unit tests to tests.py",
        "写一份报告保存到 r.md",
        "summarise the meeting",
        "summarise https://example.com/a.html",
        "read a book",
        "list the pros and cons",
        "wait 5 minutes for the server",
        "append 'x' to a.txt",
        "translate a.txt",
        "delete a.txt",
        "save" + " " * 5_000 + "x",
        "write " + "a" * 50_000,
    ],
)
def test_what_would_take_thought_is_unknown(text: str) -> None:
    assert parse_action(text) == UnknownAction()


@given(st.text())
def test_any_text_is_recognised_as_something_without_failing(text: str) -> None:
    parse_action(text)


@given(st.text(min_size=1).filter(lambda text: '"' not in text and "\n" not in text))
def test_quoted_words_are_written_as_they_are(text: str) -> None:
    act = parse_action(f'write "{text}" to a.txt')

    assert act == _writes("a.txt", text) or isinstance(act, UnknownAction)


def test_courtesy_is_no_part_of_the_wish() -> None:
    assert strip_courtesy("could you please, list files") == "list files"
    assert strip_courtesy("请帮我 列出文件") == "列出文件"
    assert strip_courtesy("pleased to meet you") == "pleased to meet you"


@pytest.mark.parametrize(
    "polite",
    [
        "please list the folder",
        "list the folder please",
        "Can you list the folder, thanks!",
        "list the folder, thank you.",
    ],
)
def test_courtesy_at_either_end_is_not_part_of_the_work(polite: str) -> None:
    assert parse_action(polite) == parse_action("list the folder")


def test_chinese_courtesy_is_not_part_of_the_work() -> None:
    assert parse_action("请帮我列出目录，谢谢") == parse_action("列出目录")


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
