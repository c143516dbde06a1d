"""Triggers in chat: owners list, add, switch and remove them."""

from __future__ import annotations

import pytest

from storage.records.triggers import TriggerKind
from tests.handlers.router_harness import RouterHarness, text_of


async def test_an_owner_adds_switches_and_removes_triggers() -> None:
    desk = RouterHarness()

    await desk.send_message(
        '/trigger add message review by=anyone topic=cats pattern="deploy {service}"',
        who="x-olga",
        chat="c0",
    )
    (made,) = desk.world.triggers.all.values()
    assert (made.kind, made.workflow, made.pattern) == (
        TriggerKind.MESSAGE,
        "review",
        "deploy {service}",
    )
    assert made.sender == ""
    assert made.inputs == {"topic": "cats"}
    listed = await desk.send_message("/trigger", who="x-olga", chat="c0")
    assert "deploy {service}" in text_of(listed)
    await desk.send_message(f"/trigger off {made.id}", who="x-olga", chat="c0")
    assert not desk.world.triggers.all[made.id].enabled
    await desk.send_message(f"/触发器 删除 {made.id}", who="x-olga", chat="c0")
    assert desk.world.triggers.all == {}


@pytest.mark.parametrize(
    "line",
    ["/trigger", "/trigger add webhook review", "/trigger remove tr0", "/trigger token tr0"],
)
async def test_members_may_not_see_or_change_triggers(line: str) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(line, who="x-ann")

    assert not reply.good
    assert desk.world.triggers.all == {}


@pytest.mark.parametrize(
    "line", ["/trigger add", "/trigger add mail review", "/trigger on", "/trigger x"]
)
async def test_what_is_not_understood_is_told(line: str) -> None:
    desk = RouterHarness()

    assert not (await desk.send_message(line, who="x-olga", chat="c0")).good
    assert desk.world.triggers.all == {}
