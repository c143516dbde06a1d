"""The meaning of typed messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.command_table import COMMANDS
from handlers.flags import ParsedFlags, parse_flags, quote_value
from handlers.parsing import (
    ApprovalReply,
    CommandMessage,
    MessageDirectives,
    PlainMessage,
    parse_approval_reply,
    parse_message,
    split_priority_flag,
)
from tests.fakes.services import FakeModels

PICK = FakeModels().resolve_choice


def ordered(text: str) -> tuple[str, str]:
    meaning = parse_message(text, COMMANDS, PICK)
    assert isinstance(meaning, CommandMessage), text
    return meaning.command.name, meaning.args


def said(text: str) -> PlainMessage:
    meaning = parse_message(text, COMMANDS, PICK)
    assert isinstance(meaning, PlainMessage), text
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
        ("@openai hello", "hello", MessageDirectives(backend="openai")),
        ("@OpenAI\nhello", "hello", MessageDirectives(backend="openai")),
        ("/backend:openai hello", "hello", MessageDirectives(backend="openai")),
        ("/use openai hello", "hello", MessageDirectives(backend="openai")),
        ("@opus hello", "hello", MessageDirectives(backend="anthropic", model="claude-opus")),
        ("Opus hello", "hello", MessageDirectives(backend="anthropic", model="claude-opus")),
        ("@gpt-5 hello", "hello", MessageDirectives(backend="openai", model="gpt-5")),
        ("@openai @gpt-5 hi", "hi", MessageDirectives(backend="openai", model="gpt-5")),
        ("@opus", "@opus", MessageDirectives(backend="anthropic", model="claude-opus")),
        ("@openai", "@openai", MessageDirectives()),
        ("@unknown stays", "@unknown stays", MessageDirectives()),
        ("opusculum is a word", "opusculum is a word", MessageDirectives()),
        ("say @opus", "say @opus", MessageDirectives()),
        ("sonnet 18", "sonnet 18", MessageDirectives()),
    ],
)
def test_directives_count_at_the_start_only(
    text: str, rest: str, chosen: MessageDirectives
) -> None:
    meaning = said(text)

    assert (meaning.text, meaning.directives) == (rest, chosen)


def test_a_directive_may_stand_before_a_command() -> None:
    meaning = parse_message("@opus /run write", COMMANDS, PICK)

    assert isinstance(meaning, CommandMessage)
    assert meaning.directives.model == "claude-opus"
    assert meaning.args == "write"


def test_backend_with_a_colon_and_nothing_to_say_is_the_command() -> None:
    assert ordered("/backend:openai") == ("backend", "openai")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        *((word, ApprovalReply(approve=True)) for word in ("通过", "approve", "批准", "ok", "yes")),
        *((word, ApprovalReply(approve=False)) for word in ("拒绝", "reject", "no", "否")),
        (" OK ", ApprovalReply(approve=True)),
        ("@bot 通过", ApprovalReply(approve=True)),
        ("通过 ap7x", ApprovalReply(approve=True, target="ap7x")),
        ("Approve ap7x", ApprovalReply(approve=True, target="ap7x")),
        ("拒绝 太贵了 换一个", ApprovalReply(approve=False, reason="太贵了 换一个")),
        ("reject too dear", ApprovalReply(approve=False, reason="too dear")),
    ],
)
def test_the_approval_grammar(text: str, verdict: ApprovalReply) -> None:
    assert parse_approval_reply(text) == verdict


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
    assert parse_approval_reply(text) is None


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
    assert split_priority_flag(text) == expected


pieces = st.one_of(
    st.text(),
    st.sampled_from(
        ["/run ", "@opus ", "@_user_1 ", "/use ", "-p ", "／", "通过 ", "\n", "@", ":"]
    ),
)


@given(st.lists(pieces, max_size=8).map("".join))
def test_no_text_at_all_breaks_the_parser(text: str) -> None:
    meaning = parse_message(text, COMMANDS, PICK)
    parse_approval_reply(text)

    assert isinstance(meaning, CommandMessage | PlainMessage)


@given(st.lists(pieces, min_size=1, max_size=8).map("".join))
def test_talk_never_loses_all_of_its_text(text: str) -> None:
    meaning = parse_message(text, COMMANDS, PICK)

    if isinstance(meaning, PlainMessage) and text.strip() and "@_user_1" not in text:
        assert meaning.text


def test_where_nobody_can_be_mentioned_an_at_belongs_to_the_text() -> None:
    meaning = parse_message("/pause 3k see @bob @_user_1", COMMANDS, PICK, mentions=False)

    assert isinstance(meaning, CommandMessage)
    assert meaning.args == "3k see @bob @_user_1"


@pytest.mark.parametrize(
    ("text", "options", "rest"),
    [
        ("plain words", {}, "plain words"),
        ("-p urgent fix it", {"p": "urgent"}, "fix it"),
        ("—p=urgent fix it", {"p": "urgent"}, "fix it"),
        ('--title "two words" --self do', {"title": "two words", "self": ""}, "do"),
        ("-P 1 -p 2 x", {"p": "2"}, "x"),
        ("--unknown thing", {}, "--unknown thing"),
        ("- a list\n- of points", {}, "- a list\n- of points"),
        ("do -p urgent", {}, "do -p urgent"),
        ("-p", {"p": ""}, ""),
    ],
)
def test_flags_are_taken_off_until_the_text_begins(
    text: str, options: dict[str, str], rest: str
) -> None:
    assert parse_flags(text, valued=("p", "title"), bare=("self",)) == ParsedFlags(
        options=options, text=rest
    )


def test_two_dashes_end_the_flags() -> None:
    found = parse_flags("-p urgent -- -p normal -- @opus", valued=("p",))

    assert found == ParsedFlags(options={"p": "urgent"}, text="-p normal -- @opus", terminated=True)


@given(value=st.text(), text=st.text())
def test_whatever_is_quoted_and_whatever_follows_two_dashes_arrives(value: str, text: str) -> None:
    found = parse_flags(f"--title {quote_value(value)} -- {text}", valued=("title",))

    assert found == ParsedFlags(options={"title": value}, text=text.strip(), terminated=True)
