"""What one front stores is handled by the one that leads, once, and the reply reaches the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bot.transports import inbox
from bot.transports.chat_queue import PACE_BURST
from bot.transports.inbox import REPLY_PATIENCE, InboxService
from cards.card_json import dump_card
from handlers.request import Reply
from storage.records.messages import InboxId, IncomingPress
from storage.records.people import Channel
from tests.bot.transports.inbox_builders import FakeRouter, InboxHarness, inbox_harness
from tests.bot.transports.outbox_builders import text_card
from tests.storage.message_store import message, place, sender


@dataclass
class Fronts:
    """Two on one store: `serving` stores, `leader` handles once it has been told."""

    leader: InboxHarness
    serving: InboxService

    async def hear(self, text: str, **rest: Any) -> InboxId | None:
        incoming = message(text, sent_at=self.leader.clock.now(), **rest)
        return await self.serving.accept(incoming, dedupe=f"d:{text}")

    async def press(self, *, wait_seconds: float = 2.0) -> Any:
        incoming = IncomingPress(place=place(), sender=sender(), message_id="m1", token="t")
        return await self.serving.press(incoming, dedupe="p:t", wait_seconds=wait_seconds)

    def announce(self, inbox_id: int | None = None) -> None:
        """As the store does, to all."""
        number = None if inbox_id is None else InboxId(inbox_id)
        self.leader.inbox.notify_stored(number)
        self.serving.notify_stored(number)

    async def wait_stored(self, count: int = 1) -> None:
        while await self.leader.count("SELECT count(*) FROM inbox") < count:
            await asyncio.sleep(0)


@asynccontextmanager
async def fronts(folder: Path, *, leads: bool = True) -> AsyncIterator[Fronts]:
    async with inbox_harness(folder, started=leads) as leader:
        serving = replace(leader.inbox, leads=False, router=FakeRouter())
        running = asyncio.create_task(leader.inbox.run())
        try:
            yield Fronts(leader=leader, serving=serving)
        finally:
            running.cancel()
            await serving.drain()
            await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def taking_over(
    folder: Path,
) -> AsyncIterator[tuple[Fronts, Callable[[], Awaitable[None]]]]:
    """One that does not lead yet, and what makes it."""
    async with fronts(folder, leads=False) as both, AsyncExitStack() as stack:
        both.leader.inbox.leads = False
        yield both, lambda: both.leader.inbox.start(stack)


async def test_a_message_of_another_front_is_handled_once(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        number = await both.hear("hello")
        assert await both.hear("hello") is None
        assert both.leader.router.begun == []

        both.announce(number)
        both.announce()
        await both.leader.router.until(lambda: both.leader.router.done == ["hello"])
        await both.leader.say("more")
        await both.leader.router.until(lambda: both.leader.router.done == ["hello", "more"])

        both.announce()
        assert await both.leader.card(f"reply:{number}") == "echo hello"
        assert both.serving.router.begun == []  # type: ignore[attr-defined]


async def test_messages_of_another_front_keep_their_order(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        for text in "abc":
            await both.hear(text)
        both.announce(3)
        await both.leader.router.until(lambda: len(both.leader.router.done) == 3)
        assert both.leader.router.done == ["a", "b", "c"]


async def test_too_many_messages_of_another_front_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_DELAYED", 3)
    async with fronts(tmp_path) as both:
        for number in range(PACE_BURST + 5):
            await both.hear(f"message {number}")
        both.announce()
        held = "SELECT count(*) FROM inbox WHERE state = 'held'"
        while await both.leader.count(held) < 2:
            await asyncio.sleep(0)
        offer = await both.leader.card(f"held:{PACE_BURST + 4}")
        assert "2 messages are waiting for your decision" in offer


async def test_the_reply_reaches_the_front_that_asked(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        answer = Reply(card=text_card("two tasks"), good=False, data={"tasks": [1, 2]})
        both.leader.router.replies["/list"] = answer
        said = message("/list", sent_at=both.leader.clock.now(), quiet=True)
        asking = asyncio.create_task(both.serving.ask(said, dedupe="q1"))
        await both.wait_stored()

        both.announce(1)
        await both.leader.router.until(lambda: both.leader.router.done == ["/list"])
        await both.leader.inbox.wait_handled(InboxId(1))
        both.announce(1)
        reply = await asking

        assert reply is not None
        assert reply.card is not None
        assert dump_card(reply.card) == dump_card(text_card("two tasks"))
        assert (reply.good, reply.data) == (False, {"tasks": [1, 2]})
        assert await both.leader.count("SELECT count(*) FROM inbox_replies") == 0
        assert await both.serving.ask(said, dedupe="q1") is None


async def test_a_press_gets_its_toast_on_the_front_where_it_was_made(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        both.leader.router.replies["t"] = Reply(toast="Pausing")
        pressing = asyncio.create_task(both.press(wait_seconds=1e9))
        await both.wait_stored()

        both.announce(1)
        await both.leader.router.until(lambda: both.leader.router.done == ["t"])
        await both.leader.inbox.wait_handled(InboxId(1))
        both.announce(1)

        assert (await pressing).text == "Pausing"
        assert (await both.press()).good
        assert both.leader.router.begun == ["t"]


async def test_a_message_is_recalled_on_another_front(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        await both.hear("oops")
        await both.serving.recall(Channel.TELEGRAM, dedupe="d:oops")
        both.announce(1)
        assert await both.leader.post.room.inbox.list_unfinished() == ()

        both.leader.router.gates["begun"] = asyncio.Event()
        both.announce(await both.hear("begun"))
        await both.leader.router.until(lambda: both.leader.router.begun == ["begun"])
        await both.serving.recall(Channel.TELEGRAM, dedupe="d:begun")
        both.announce()
        await both.leader.router.until(lambda: both.leader.router.begun == ["begun", "/stop"])


async def test_who_takes_over_handles_what_was_stored_meanwhile(tmp_path: Path) -> None:
    async with fronts(tmp_path, leads=False) as both:
        first = await both.hear("while nobody led")
        pressing = asyncio.create_task(both.press(wait_seconds=1e9))
        await both.wait_stored(2)
        pressing.cancel()
        await asyncio.wait({pressing})
    async with inbox_harness(tmp_path) as next_leader:
        await next_leader.router.until(lambda: len(next_leader.router.done) == 2)
        assert first is not None
        await next_leader.inbox.wait_handled(first)
        assert await next_leader.card(f"reply:{first}") == "echo while nobody led"


async def test_a_press_in_the_moment_of_a_take_over_is_taken_up(tmp_path: Path) -> None:
    async with taking_over(tmp_path) as (both, start):
        both.leader.router.replies["t"] = Reply(toast="Pausing")
        async with both.leader.post.room.db.write():
            pressing = asyncio.create_task(both.leader.press(wait_seconds=1e9))
            await start()
        await both.wait_stored()
        both.leader.inbox.notify_stored(InboxId(1))
        await both.leader.router.until(lambda: both.leader.router.done == ["t"])
        await both.leader.inbox.wait_handled(InboxId(1))
        both.leader.inbox.notify_stored(InboxId(1))
        assert (await pressing).text == "Pausing"
        assert both.leader.router.begun == ["t"]


async def test_a_press_that_a_leader_has_begun_is_not_taken_up_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with taking_over(tmp_path) as (both, start):
        looked, go_on = asyncio.Event(), asyncio.Event()
        repo, actions = both.leader.inbox.inbox, both.leader.inbox.actions
        list_unfinished, get_action = repo.list_unfinished, actions.get_action
        pressing: list[asyncio.Task[Any]] = []

        async def list_after_a_press(*args: Any) -> Any:
            if not pressing:
                pressing.append(asyncio.create_task(both.leader.press(wait_seconds=1e9)))
                await looked.wait()
            return await list_unfinished(*args)

        async def wait_to_look(token: str) -> Any:
            looked.set()
            await go_on.wait()
            return await get_action(token)

        monkeypatch.setattr(repo, "list_unfinished", list_after_a_press)
        monkeypatch.setattr(actions, "get_action", wait_to_look)
        both.leader.router.gates["t"] = asyncio.Event()
        both.leader.router.replies["t"] = Reply(toast="Pausing")
        await start()
        await both.leader.inbox.inbox.list_unfinished()
        go_on.set()
        await both.leader.router.until(lambda: bool(both.leader.router.begun))
        both.leader.router.gates["t"].set()
        assert (await pressing[0]).text == "Pausing"
        assert both.leader.router.begun == ["t"]


async def test_a_press_whose_front_dies_is_answered_by_a_card(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        both.leader.router.replies["t"] = Reply(toast="Pausing")
        pressing = asyncio.create_task(both.press(wait_seconds=1e9))
        await both.wait_stored()
        pressing.cancel()
        await both.serving.drain()

        both.announce(1)
        await both.leader.inbox.wait_handled(InboxId(1))
        await both.leader.clock.someone_sleeps(REPLY_PATIENCE)
        assert await both.leader.card("toast:1") == ""
    # The process that handled it dies as well.
    async with inbox_harness(tmp_path) as next_leader:
        await next_leader.clock.someone_sleeps(REPLY_PATIENCE)
        next_leader.clock.advance(REPLY_PATIENCE)
        while await next_leader.count("SELECT count(*) FROM inbox_replies"):
            await asyncio.sleep(0)
        assert await next_leader.card("toast:1") == "Pausing"


async def test_a_press_whose_front_lives_gets_no_card(tmp_path: Path) -> None:
    async with fronts(tmp_path) as both:
        both.leader.router.replies["t"] = Reply(toast="Pausing")
        pressing = asyncio.create_task(both.press(wait_seconds=1e9))
        await both.wait_stored()
        both.announce(1)
        await both.leader.router.until(lambda: both.leader.router.done == ["t"])
        await both.leader.inbox.wait_handled(InboxId(1))
        both.announce(1)
        assert (await pressing).text == "Pausing"

        await both.leader.clock.someone_sleeps(REPLY_PATIENCE)
        both.leader.clock.advance(REPLY_PATIENCE)
        await both.leader.say("more")
        await both.leader.router.until(lambda: both.leader.router.done == ["t", "more"])
        assert await both.leader.card("toast:1") == ""
