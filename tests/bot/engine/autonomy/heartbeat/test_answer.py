"""What a heartbeat run says and claims is cleaned and checked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from bot.engine.autonomy.heartbeat.run import (
    HeartbeatAction,
    check_claims,
    clean_message,
    find_named,
)
from storage.records.approvals import ToolCallRecord, ToolCallState
from storage.records.autonomy import HeartbeatTask

PENDING = tuple(
    HeartbeatTask(line=n, text=f"task {n}", is_done=False, checkbox=True) for n in (3, 4, 5)
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "HEARTBEAT_OK",
        "  HEARTBEAT_OK \n",
        "**HEARTBEAT_OK**",
        "`HEARTBEAT_OK`.",
        "# HEARTBEAT_OK",
        "> *HEARTBEAT_OK*!",
        "<b>HEARTBEAT_OK</b>",
        "heartbeat_ok",
        "HEARTBEAT_OK\n\nHEARTBEAT_OK",
        "---\nHEARTBEAT_OK",
    ],
)
def test_nothing_to_say_is_not_said(text: str) -> None:
    assert clean_message(text) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The disk is full.\n\nHEARTBEAT_OK", "The disk is full."),
        ("HEARTBEAT_OK\nThe disk is full.", "The disk is full."),
        ("**HEARTBEAT_OK** The disk is full.", "The disk is full."),
        ("one\nHEARTBEAT_OK\ntwo", "one\ntwo"),
        ("  plain text ", "plain text"),
        ("NOT_HEARTBEAT_OKAY is a name", "NOT_HEARTBEAT_OKAY is a name"),
    ],
)
def test_what_stands_beside_it_is_said_without_it(text: str, said: str) -> None:
    assert clean_message(text) == said


def action(
    line: int, evidence: Literal["tool", "file", "told"], reference: str = ""
) -> HeartbeatAction:
    return HeartbeatAction(line=line, did="did it", evidence=evidence, reference=reference)


def call(tool: str, state: ToolCallState = ToolCallState.DONE, **arguments: Any) -> ToolCallRecord:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    return ToolCallRecord(
        session_id="s",
        call_id="c",
        task_id=None,
        path="",
        chat_id=None,
        person_id=None,
        backend="b",
        tool=tool,
        kind="other",
        title=tool,
        detail="",
        arguments=arguments,
        command_hash="",
        verdict="allow",
        why="",
        pattern="",
        state=state,
        id=1,
        suspended=False,
        approval_id="",
        answer="",
        outcome="",
        size=0,
        asked_at=at,
        started_at=at,
        ended_at=at,
    )


def backed(
    *actions: HeartbeatAction, calls: Any = (), told: bool = False, file: bool = True
) -> Any:
    claims = check_claims(actions, PENDING, calls, is_told=told, is_file=lambda _: file)
    return {each.line: each.is_backed for each in claims}


def test_a_call_backs_the_claim_that_names_it_and_only_one() -> None:
    made = [call("web_fetch", url="https://a.example/x")]
    assert backed(action(3, "tool", "web_fetch"), calls=made) == {3: True}
    assert backed(action(3, "tool", "web_fetch https://a.example/x"), calls=made) == {3: True}
    assert backed(action(3, "tool", "web_fetch https://b.example"), calls=made) == {3: False}
    assert backed(action(3, "tool", "exec"), calls=made) == {3: False}
    assert backed(action(3, "tool", ""), calls=made) == {3: False}
    twice = [action(3, "tool", "web_fetch"), action(4, "tool", "web_fetch")]
    assert backed(*twice, calls=made) == {3: True, 4: False}


@pytest.mark.parametrize(
    "state", [state for state in ToolCallState if state is not ToolCallState.DONE]
)
def test_a_call_without_a_result_backs_nothing(state: ToolCallState) -> None:
    assert backed(action(3, "tool", "list"), calls=[call("list", state)]) == {3: False}


def test_a_file_must_have_been_written_in_this_run_and_be_there() -> None:
    wrote = [call("write", path="a.md")]
    assert backed(action(3, "file", "a.md"), calls=wrote) == {3: True}
    assert backed(action(3, "file", "a.md"), calls=wrote, file=False) == {3: False}
    assert backed(action(3, "file", "b.md"), calls=wrote) == {3: False}
    assert backed(action(3, "file", "a.md"), calls=[call("read", path="a.md")]) == {3: False}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "Tell me when https://Status.example.com/api?x=1 reports an outage",
            {"status.example.com"},
        ),
        (
            "Look through notes.md and ./plans/q4.txt again",
            {"notes.md", "plans/q4.txt"},
        ),
        ("看看 https://a.example/x，再读notes.md", {"a.example", "notes.md"}),
        ("Ask web_search for news at 9.30 a.m. and 3/4", {"web_search"}),
        ("Look at the inbox and mail ann@b.example.", set()),
    ],
)
def test_what_a_line_names(line: str, named: set[str]) -> None:
    assert find_named(line) == named


@pytest.mark.parametrize(
    ("line", "evidence", "made", "is_backed", "is_verified"),
    [
        (
            "Check https://a.example/x",
            "tool",
            call("web_fetch", url="https://a.example/"),
            True,
            True,
        ),
        (
            "Check https://a.example/x",
            "tool",
            call("web_fetch", url="https://b.example"),
            False,
            False,
        ),
        ("Check https://a.example/x", "told", call("list", path="."), True, False),
        (
            "Check https://a.example/x",
            "told",
            call("web_fetch", url="https://a.example"),
            True,
            True,
        ),
        ("Check the weather", "tool", call("web_fetch", url="https://b.example"), True, False),
        ("Drink water", "told", call("list", path="."), True, True),
        ("Update notes.md", "file", call("write", path="notes.md"), True, True),
        ("Update notes.md", "file", call("write", path="other.md"), False, False),
    ],
)
def test_a_call_must_fit_what_the_line_names(
    line: str, evidence: Any, made: ToolCallRecord, *, is_backed: bool, is_verified: bool
) -> None:
    reference = str(made.arguments["path"]) if evidence == "file" else made.tool
    pending = [HeartbeatTask(line=3, text=line, is_done=False, checkbox=True)]

    (claim,) = check_claims(
        [action(3, evidence, reference)], pending, [made], is_told=True, is_file=lambda _: True
    )

    assert (claim.is_backed, claim.is_verified) == (is_backed, is_verified)


def test_told_is_backed_only_by_a_message_that_is_sent() -> None:
    assert backed(action(3, "told"), told=True) == {3: True}
    assert backed(action(3, "told"), told=False) == {3: False}


def test_claims_on_other_lines_and_second_claims_on_one_are_dropped() -> None:
    found = backed(action(1, "told"), action(5, "told"), action(5, "tool", "x"), told=True)
    assert found == {5: True}
