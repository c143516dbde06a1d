"""The JSON data that programs get in place of a card."""

from __future__ import annotations

import json

import pytest

from cards.json_data import approval_data, task_data
from storage.records.tasks import TaskStatus
from tests.builders import make_approval, make_task
from tests.handlers.router_harness import RouterHarness


@pytest.mark.parametrize(
    "command",
    ["/list", "/get 3k", "/logs 3k", "/run -p normal write", "/pause 3k", "/msg 3k hi", "/status"],
)
async def test_what_a_command_tells_is_told_to_programs_as_plain_json(command: str) -> None:
    desk = RouterHarness(make_task("3kx"))

    reply = await desk.send_message(command)

    assert reply.good
    assert reply.data
    assert json.loads(json.dumps(reply.data)) == reply.data


async def test_a_list_names_every_task_whatever_the_card_has_room_for() -> None:
    desk = RouterHarness(*(make_task(f"t{n:02}") for n in range(12)))

    reply = await desk.send_message("/list")

    assert reply.data
    assert reply.data["total"] == 12
    assert len(reply.data["tasks"]) == 12


async def test_a_move_tells_how_the_task_is_now() -> None:
    desk = RouterHarness(make_task("3kx", status=TaskStatus.PENDING))

    reply = await desk.send_message("/pause 3kx")

    assert reply.data
    assert (reply.data["id"], reply.data["status"]) == ("3kx", "paused")
    assert reply.data["told"]


async def test_a_refusal_is_data_too() -> None:
    reply = await RouterHarness().send_message("/get nothing")

    assert not reply.good
    assert reply.data
    assert set(reply.data) == {"error", "hint"}


def test_records_are_plain_values_only() -> None:
    for data in (task_data(make_task("3kx")), approval_data(make_approval())):
        assert json.loads(json.dumps(data)) == data
