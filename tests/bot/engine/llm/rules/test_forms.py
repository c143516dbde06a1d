"""Fixed forms of words are recognised in both languages; everything else is Unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.llm.rules.acts import (
    Act,
    Count,
    Earlier,
    Greet,
    Haiku,
    InFile,
    ListFolder,
    Literal,
    Show,
    Summarise,
    Unit,
    Unknown,
    Wait,
    Write,
)
from bot.engine.llm.rules.forms import recognise, without_courtesy


def _writes(path: str, text: str) -> Write:
    return Write(path=path, content=Show(source=Literal(text=text)))


_IT = Show(source=Earlier())


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("write a haiku about queues", Haiku(topic="queues", chinese=False)),
        ("写一首关于队列的俳句", Haiku(topic="队列", chinese=True)),
        ("save it to haiku.md", Write(path="haiku.md", content=_IT)),
        ("把它保存到haiku.md", Write(path="haiku.md", content=_IT)),
        ("保存到 haiku.md", Write(path="haiku.md", content=_IT)),
        ("把摘要存到 s.md", Write(path="s.md", content=_IT)),
        (
            "Can you write a haiku about rain and save it to a/b.md?",
            Write(path="a/b.md", content=Haiku(topic="rain", chinese=False)),
        ),
        (
            "写一首关于雨的俳句，并保存到 雨.md",
            Write(path="雨.md", content=Haiku(topic="雨", chinese=True)),
        ),
        (
            "write a summary of notes.txt to s.md",
            Write(path="s.md", content=Summarise(source=InFile(path="notes.txt"))),
        ),
        (
            "put the list of files in list.txt",
            Write(path="list.txt", content=ListFolder(path=".")),
        ),
        ("write 'hello, world' to a.txt", _writes("a.txt", "hello, world")),
        ("create a file a.txt with the text hello there", _writes("a.txt", "hello there")),
        ('create a file called x.txt containing "a b"', _writes("x.txt", "a b")),
        ("create an empty file x.txt", _writes("x.txt", "")),
        ("write to notes.md:\n- a\n\n- b", _writes("notes.md", "- a\n\n- b")),
        ("把“你好”写入 a.txt", _writes("a.txt", "你好")),
        ("创建文件 a.txt，内容为 你好世界", _writes("a.txt", "你好世界")),
        ("在 a.txt 里写入“x”", _writes("a.txt", "x")),
        ("list files", ListFolder(path=".")),
        ("list the files in src", ListFolder(path="src")),
        ("ls", ListFolder(path=".")),
        ("列出 src 目录里的文件", ListFolder(path="src")),
        ("帮我列出文件", ListFolder(path=".")),
        ("summarise notes.txt", Summarise(source=InFile(path="notes.txt"))),
        ("summarize it", Summarise(source=Earlier())),
        ("summarise: One. Two", Summarise(source=Literal(text="One. Two"))),
        ("总结 notes.txt", Summarise(source=InFile(path="notes.txt"))),
        ("总结：今天很好", Summarise(source=Literal(text="今天很好"))),
        ("wait 3 seconds", Wait(seconds=3)),
        ("wait for half an hour", Wait(seconds=1800)),
        ("sleep 2m", Wait(seconds=120)),
        ("等待半个小时", Wait(seconds=1800)),
        ("等 1.5 秒", Wait(seconds=1.5)),
        ("count the words in a.txt", Count(unit=Unit.WORDS, source=InFile(path="a.txt"))),
        ("count words: one two", Count(unit=Unit.WORDS, source=Literal(text="one two"))),
        ("统计 a.txt 的行数", Count(unit=Unit.LINES, source=InFile(path="a.txt"))),
        ("read notes.md", Show(source=InFile(path="notes.md"))),
        ("read '报告 1.md'", Show(source=InFile(path="报告 1.md"))),
        ("读取 notes.md", Show(source=InFile(path="notes.md"))),
        ("say hello", Show(source=Literal(text="hello"))),
        ("Hello there!", Greet()),
        ("你好", Greet()),
    ],
)
def test_a_form_of_words_is_recognised(text: str, act: Act) -> None:
    assert recognise(text) == act


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
    assert recognise(text) == Unknown()


@given(st.text())
def test_any_text_is_recognised_as_something_without_failing(text: str) -> None:
    recognise(text)


@given(st.text(min_size=1).filter(lambda text: '"' not in text and "\n" not in text))
def test_quoted_words_are_written_as_they_are(text: str) -> None:
    act = recognise(f'write "{text}" to a.txt')

    assert act == _writes("a.txt", text) or isinstance(act, Unknown)


def test_courtesy_is_no_part_of_the_wish() -> None:
    assert without_courtesy("could you please, list files") == "list files"
    assert without_courtesy("请帮我 列出文件") == "列出文件"
    assert without_courtesy("pleased to meet you") == "pleased to meet you"
