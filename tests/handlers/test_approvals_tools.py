"""Standing permissions are listed and revoked, and tool calls are logged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cards.catalog import catalog_for
from storage.records.approvals import (
    StandingPermission,
    StandingPermissionScope,
    ToolCallRecord,
    ToolCallState,
)
from storage.records.people import Language, PersonId
from storage.records.tasks import TaskId
from tests.builders import NOW, make_task
from tests.handlers.router_harness import RouterHarness, text_of


def a_grant(number: int, scope: StandingPermissionScope, subject: str = "") -> StandingPermission:
    return StandingPermission(
        id=number,
        scope=scope,
        subject=subject,
        tool="exec",
        pattern=f"make part{number}",
        approval_id="ap7x2k",
        granted_by=PersonId("olga"),
        at=NOW,
    )


def a_call(state: ToolCallState, title: str = "exec make all") -> ToolCallRecord:
    return ToolCallRecord(
        id=1,
        session_id="s",
        call_id="c",
        task_id=TaskId("k3m9qa"),
        path="s1",
        chat_id=None,
        person_id=None,
        backend="anthropic",
        tool="exec",
        kind="execute",
        title=title,
        detail="make all\nthe rest of it",
        arguments={},
        command_hash="",
        verdict="ask",
        why="",
        pattern="",
        state=state,
        suspended=False,
        approval_id="ap7x2k",
        answer="",
        outcome="",
        size=0,
        asked_at=NOW - timedelta(minutes=1),
        started_at=None,
        ended_at=None,
    )


def desk_with_grants() -> RouterHarness:
    desk = RouterHarness(make_task())
    desk.world.toolbook.held = [
        a_grant(1, StandingPermissionScope.ALWAYS),
        a_grant(2, StandingPermissionScope.TASK, "k3m9qa"),
        a_grant(3, StandingPermissionScope.CHAT, "c1"),
    ]
    return desk


async def test_an_owner_sees_in_private_all_that_was_allowed_and_by_whom() -> None:
    desk = desk_with_grants()

    told = text_of(await desk.send_message("/tools", who="x-olga", chat="c0"))

    for part in ("part1", "part2", "part3", "always", "task k3m9qa", "Olga"):
        assert part in told


@pytest.mark.parametrize("chat", ["c1", "g1"])
async def test_others_see_what_was_allowed_in_their_chat(chat: str) -> None:
    told = text_of(await desk_with_grants().send_message("/工具", chat=chat))

    assert ("part3" in told) is (chat == "c1")
    assert "part1" not in told


async def test_an_owner_takes_leave_back_and_nobody_else_does() -> None:
    desk = desk_with_grants()

    refused = await desk.send_message("/tools revoke 3")
    taken = await desk.send_message("/tools revoke 1", who="x-olga", chat="c0")
    again = await desk.send_message("/tools 收回 1", who="x-olga", chat="c0")

    assert "can't do that" in text_of(refused)
    assert "Revoked" in text_of(taken)
    assert "No permission number 1" in text_of(again)
    assert [each.id for each in desk.world.toolbook.held] == [2, 3]


async def test_to_take_back_without_a_number_says_how_to() -> None:
    told = text_of(await desk_with_grants().send_message("/tools revoke", who="x-olga", chat="c0"))

    assert "/tools [revoke n" in told


async def test_the_log_of_a_task_says_what_was_asked_and_what_came_of_it() -> None:
    desk = desk_with_grants()
    states = (ToolCallState.DENIED, ToolCallState.DONE)
    desk.world.toolbook.made = [a_call(state) for state in states]

    told = text_of(await desk.send_message("/tools log k3m9qa"))

    for part in ("denied", "done", "make all", "the rest of it"):
        assert part in told


@pytest.mark.parametrize(
    "typed", ["/tools log", "/tools log zzzz", "/tools revoke x", "/tools fly"]
)
async def test_what_makes_no_sense_is_explained(typed: str) -> None:
    desk = desk_with_grants()

    told = text_of(await desk.send_message(typed, who="x-olga", chat="c0"))

    assert catalog_for(Language.ENGLISH)("error.unexpected.title") not in told
    assert [each.id for each in desk.world.toolbook.held] == [1, 2, 3]


async def test_a_number_far_too_large_is_unknown_and_shown_as_it_was_typed() -> None:
    desk = desk_with_grants()

    told = text_of(await desk.send_message(f"/tools revoke {'9' * 40}", who="x-olga", chat="c0"))

    assert f"No permission number {'9' * 11}…" in told
