"""The stream of events, read as a program reads it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot.dashboard.api import events
from tests.bot.dashboard.test_api import API, create
from tests.bot.dashboard.world import DashboardWorld
from tests.waiting import WAIT_SECONDS


class Stream:
    """What an open stream has sent. httpx's own transport would wait for its end."""

    def __init__(self, world: DashboardWorld, who: str, query: str = "", last_id: str = "") -> None:
        headers = [
            (b"host", b"127.0.0.1"),
            (b"authorization", f"Bearer {world.tokens[who]}".encode()),
        ]
        if last_id:
            headers.append((b"last-event-id", last_id.encode()))
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"{API}/events",
            "raw_path": b"/",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "root_path": "",
            "http_version": "1.1",
        }
        self.text = ""
        self.left = asyncio.Event()
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(world.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.text += message.get("body", b"").decode()
        self._changed.set()

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while text not in self.text:
                self._changed.clear()
                await self._changed.wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        rows = [line.removeprefix("data: ") for line in self.text.splitlines() if "data: " in line]
        return [json.loads(each) for each in rows]


async def test_a_stream_resumes_and_shows_only_what_its_reader_may_see(
    world: DashboardWorld,
) -> None:
    ann, bob = world.program("ann"), world.program("bob")
    await create(ann, "before")
    stream = Stream(world, "ann")
    await stream.wait_for("retry:")
    await create(bob, "of bob")
    id_ = await create(ann, "of ann")
    await stream.wait_for(id_)
    first = stream.events
    stream.left.set()
    await stream.task

    await ann.post(f"{API}/tasks/{id_}/pause", json={})
    resumed = Stream(world, "ann", last_id=str(first[-1]["id"]))
    await resumed.wait_for("event: paused")
    owner = Stream(world, "olga", query="after=0")
    await owner.wait_for("event: paused")
    for each in (resumed, owner):
        each.left.set()
        await each.task

    assert {each["task_id"] for each in first} == {id_}
    assert all(each["id"] > first[-1]["id"] for each in resumed.events)
    assert len({each["task_id"] for each in owner.events}) == 3


async def test_a_stream_ends_with_the_access_or_the_program(world: DashboardWorld) -> None:
    ann, olga, bob = (Stream(world, name) for name in ("ann", "olga", "bob"))
    for each in (ann, olga, bob):
        await each.wait_for("retry:")

    await world.core.repositories.people.remove(world.people["ann"].id)
    await world.core.repositories.people.demote(world.people["olga"].id)
    async with asyncio.timeout(WAIT_SECONDS):
        await ann.task
        await olga.task
    still = bob.task.done()
    world.web.stopping.set()

    async with asyncio.timeout(WAIT_SECONDS):
        await bob.task
    assert not still


async def test_a_person_opens_only_so_many_streams_and_closing_one_makes_room(
    world: DashboardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_MAX_STREAMS", 2)
    ann = world.program("ann")
    open_ones = [Stream(world, "ann"), Stream(world, "ann"), Stream(world, "bob")]
    for each in open_ones:
        await each.wait_for("retry:")

    refused = await ann.get(f"{API}/events")
    open_ones[0].left.set()
    await open_ones[0].task
    # HEAD ends by itself.
    allowed = await ann.head(f"{API}/events")

    assert (refused.status_code, refused.json()["title"]) == (429, "Too many streams are open")
    assert (allowed.status_code, allowed.text) == (200, "")
    for each in open_ones[1:]:
        each.left.set()
        await each.task
