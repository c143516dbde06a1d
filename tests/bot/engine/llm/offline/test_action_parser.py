"""Fixed forms of words are recognised in both languages; everything else is Unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.offline.action_parser import parse_action, strip_courtesy
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


def _writes(path: str, text: str) -> WriteFileAction:
    return WriteFileAction(path=path, content=ShowAction(source=LiteralText(text=text)))


_IT = ShowAction(source=EarlierOutput())


@pytest.mark.parametrize(
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
