"""Order within a chat, none between chats: a lane for each, and a way past them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from bot.transports.clock import Clock, event_or_timer
from storage.records.messages import InboxId, InboxRow, MessageIn
from storage.records.people import ChatId

JOINED_WITHIN = timedelta(seconds=10)
"""How long a file waits for the words that belong to it."""

Work: TypeAlias = Callable[[Sequence[InboxRow]], Awaitable[None]]
"""Handles rows that belong together, the last of them being what was said. Never raises."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Lane:
    rows: list[tuple[InboxId, InboxRow]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Lanes:
    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self._lanes: dict[ChatId, _Lane] = {}
        self._known: dict[InboxId, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open = False

    async def start(self, stack: AsyncExitStack) -> None:
        """From now on rows are worked on; those put before are first."""
        stack.push_async_callback(self._close)
        self._open = True
        for chat_id in self._lanes:
            self._serve(chat_id)

    def idle(self, chat_id: ChatId) -> bool:
        """True if what is put into this chat's lane now is worked on at once."""
        return self._open and chat_id not in self._lanes

    def put(self, row: InboxRow) -> None:
        """Behind what was stored before it in its chat. A row that is here already stays one."""
        if row.id in self._known:
            return
        self._known[row.id] = asyncio.Event()
        lane = self._lanes.get(row.chat_id)
        if lane is None:
            lane = self._lanes[row.chat_id] = _Lane()
            if self._open:
                self._serve(row.chat_id)
        heapq.heappush(lane.rows, (row.id, row))
        lane.news.set()

    def jump(self, row: InboxRow, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Work on this row at once, past its lane."""
        self._known[row.id] = asyncio.Event()
        task = self.spawn(work, f"arrival {row.id}")
        task.add_done_callback(lambda _: self._done([row]))
        return task

    def spawn(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """A task that ends with the lanes, if not before."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finished(self, inbox_id: InboxId) -> None:
        """Wait until this row is done with; at once if it is, or is not here."""
        event = self._known.get(inbox_id)
        if event is not None:
            await event.wait()

    def _serve(self, chat_id: ChatId) -> None:
        self.spawn(self._run(chat_id), f"lane {chat_id}")

    async def _run(self, chat_id: ChatId) -> None:
        lane = self._lanes[chat_id]
        while lane.rows:
            rows = await self._together(lane)
            await self._work(rows)
            self._done(rows)
        del self._lanes[chat_id]

    async def _together(self, lane: _Lane) -> Sequence[InboxRow]:
        """The next row; files sent on their own wait a while for the words that belong to them."""
        rows = [heapq.heappop(lane.rows)[1]]
        while _is_wordless(rows[-1]) and await self._joined(lane, rows[-1]):
            rows.append(heapq.heappop(lane.rows)[1])
        return rows

    async def _joined(self, lane: _Lane, row: InboxRow) -> bool:
        """True if the lane's next row belongs to this one."""
        while not lane.rows:
            left = row.received_at + JOINED_WITHIN - self._clock.now()
            # More than all of it is left where the clock was set back: nobody waits for that.
            if not timedelta(0) < left <= JOINED_WITHIN:
                return False
            lane.news.clear()
            await event_or_timer(lane.news, self._clock, left.total_seconds())
        return _belongs(lane.rows[0][1], row)

    def _done(self, rows: Sequence[InboxRow]) -> None:
        for row in rows:
            event = self._known.pop(row.id, None)
            if event is not None:
                event.set()

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_wordless(row: InboxRow) -> bool:
    said = row.incoming
    return isinstance(said, MessageIn) and bool(said.attachments) and not said.text.strip()


def _belongs(later: InboxRow, row: InboxRow) -> bool:
    return (
        isinstance(later.incoming, MessageIn)
        and not later.incoming.edited
        and later.incoming.sender.external_id == row.incoming.sender.external_id
        and later.received_at - row.received_at <= JOINED_WITHIN
    )
