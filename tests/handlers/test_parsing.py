"""What typed messages mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.parsing import Directives, Ordered, Said, Verdict, parse, priority_of, verdict_of
from handlers.table import COMMANDS
from tests.fakes import FakeModels

PICK = FakeModels().pick


def ordered(text: str) -> tuple[str, str]:
    meaning = parse(text, COMMANDS, PICK)
    assert isinstance(meaning, Ordered), text
    return meaning.command.name, meaning.args


def said(text: str) -> Said:
    meaning = parse(text, COMMANDS, PICK)
    assert isinstance(meaning, Said), text
    return meaning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/list", ("list", "")),
        ("  /LIST  paused ", ("list", "paused")),
        ("/list@shiftboss_bot paused", ("list", "paused")),
        ("@shiftboss_bot /list", ("list", "")),
        ("@_user_1 /list", ("list", "")),
        ("/list @_user_1 paused", ("list", "paused")),
        ("/list @bot paused", ("list", "paused")),
        ("/列表 进行中", ("list", "进行中")),
        ("／列表", ("list", "")),
        ("/新任务 写诗", ("run", "写诗")),
        ("/新任务：写诗", ("run", "写诗")),
        ("/run line one\nline two", ("run", "line one\nline two")),
        ("/run mail bob@example.com and @alice", ("run", "mail bob@example.com and @alice")),
        ("/run -p 紧急 write", ("run", "-p 紧急 write")),
        ("/run haiku about queues", ("run", "haiku about queues")),
        ("/暂停 k3m9 等一下", ("pause", "k3m9 等一下")),
        ("/通过", ("approve", "")),
        ("/否决 太贵", ("reject", "太贵")),
    ],
)
def test_a_command_is_understood(text: str, expected: tuple[str, str]) -> None:
    assert ordered(text) == expected


@pytest.mark.parametrize(
    "text",
    ["hello", "/dance", "/tmp/file explain this", "/", "a /list", "", "@alice hi", "／", "通过"],
)
def test_anything_else_is_talk(text: str) -> None:
    assert said(text).text == text.strip()


@pytest.mark.parametrize(
    ("text", "rest", "chosen"),
    [
        ("@openai hello", "hello", Directives(backend="openai")),
        ("@OpenAI\nhello", "hello", Directives(backend="openai")),
        ("/backend:openai hello", "hello", Directives(backend="openai")),
        ("/use openai hello", "hello", Directives(backend="openai")),
        ("@opus hello", "hello", Directives(backend="anthropic", model="claude-opus")),
        ("Opus hello", "hello", Directives(backend="anthropic", model="claude-opus")),
        ("@gpt-5 hello", "hello", Directives(backend="openai", model="gpt-5")),
        ("@openai @gpt-5 hi", "hi", Directives(backend="openai", model="gpt-5")),
        ("@opus", "@opus", Directives(backend="anthropic", model="claude-opus")),
        ("@openai", "@openai", Directives()),
        ("@unknown stays", "@unknown stays", Directives()),
        ("opusculum is a word", "opusculum is a word", Directives()),
        ("say @opus", "say @opus", Directives()),
        ("sonnet 18", "sonnet 18", Directives()),
    ],
)
def test_directives_count_at_the_start_only(text: str, rest: str, chosen: Directives) -> None:
    meaning = said(text)

    assert (meaning.text, meaning.directives) == (rest, chosen)


def test_a_directive_may_stand_before_a_command() -> None:
    meaning = parse("@opus /run write", COMMANDS, PICK)

    assert isinstance(meaning, Ordered)
    assert meaning.directives.model == "claude-opus"
    assert meaning.args == "write"


def test_backend_with_a_colon_and_nothing_to_say_is_the_command() -> None:
    assert ordered("/backend:openai") == ("backend", "openai")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        *((word, Verdict(approve=True)) for word in ("通过", "approve", "批准", "ok", "yes")),
        *((word, Verdict(approve=False)) for word in ("拒绝", "reject", "no", "否")),
        (" OK ", Verdict(approve=True)),
        ("@bot 通过", Verdict(approve=True)),
        ("通过 ap7x", Verdict(approve=True, target="ap7x")),
        ("Approve ap7x", Verdict(approve=True, target="ap7x")),
        ("拒绝 太贵了 换一个", Verdict(approve=False, reason="太贵了 换一个")),
        ("reject too dear", Verdict(approve=False, reason="too dear")),
    ],
)
def test_the_approval_grammar(text: str, verdict: Verdict) -> None:
    assert verdict_of(text) == verdict


@pytest.mark.parametrize(
    "text",
    [
        "好的",
        "ok 开始吧",
        "no problem",
        "yes please",
        "否决",
        "okay",
        "通过了吗",
        "approve it now",
        "",
        "OK!",
        "no, wait",
        "批准这个 和那个",
    ],
)
def test_everything_else_is_no_approval(text: str) -> None:
    assert verdict_of(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-p urgent write", ("urgent", "write")),
        ("-p 紧急 写诗", ("紧急", "写诗")),
        ("--priority=normal x", ("normal", "x")),
        ("—p urgent x", ("urgent", "x")),
        ("write -p urgent", ("", "write -p urgent")),
        ("-pretty print", ("", "-pretty print")),
    ],
)
def test_a_priority_is_taken_from_the_start(text: str, expected: tuple[str, str]) -> None:
    assert priority_of(text) == expected


pieces = st.one_of(
    st.text(),
    st.sampled_from(
        ["/run ", "@opus ", "@_user_1 ", "/use ", "-p ", "／", "通过 ", "\n", "@", ":"]
    ),
)


@given(st.lists(pieces, max_size=8).map("".join))
def test_no_text_at_all_breaks_the_parser(text: str) -> None:
    meaning = parse(text, COMMANDS, PICK)
    verdict_of(text)

    assert isinstance(meaning, Ordered | Said)


@given(st.lists(pieces, min_size=1, max_size=8).map("".join))
def test_talk_never_loses_all_of_its_text(text: str) -> None:
    meaning = parse(text, COMMANDS, PICK)

    if isinstance(meaning, Said) and text.strip() and "@_user_1" not in text:
        assert meaning.text


def test_where_nobody_can_be_mentioned_an_at_belongs_to_the_text() -> None:
    meaning = parse("/pause 3k see @bob @_user_1", COMMANDS, PICK, mentions=False)

    assert isinstance(meaning, Ordered)
    assert meaning.args == "3k see @bob @_user_1"
