"""Order within a chat, none between chats: a lane for each, and a way past them. Commands typed
in a shell have a lane of their own beside their chat's."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from bot.transports.cleaning import fitting
from bot.transports.clock import Clock, event_or_timer
from storage.records.messages import InboxId, InboxRow, Incoming, MessageIn
from storage.records.people import Channel, ChatId

JOINED_WITHIN = timedelta(seconds=10)
"""How long a file waits for the words that belong to it."""

PIECES_WITHIN = timedelta(seconds=1.5)
"""How long a piece of a long text waits for the next one."""

MOST_PIECES = 100

_LONGEST: Mapping[Channel, int] = {Channel.TELEGRAM: 4096}
"""At how many UTF-16 units the channel's clients cut a text in pieces; others send it whole."""

_SPARE = 96
"""What a piece may lack: clients cut between words, and the bot's own name is taken out."""

_COMMAND = re.compile(r"\s*[/／]\w+(?:@\w*)?(?:[:：\s]|$)")

_Name: TypeAlias = tuple[ChatId, bool]
"""Of a lane: its chat's, and whether it is that of the shell."""

Work: TypeAlias = Callable[[Sequence[InboxRow]], Awaitable[None]]
"""Handles rows that belong together, and are `as_one`. Never raises."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Lane:
    rows: list[tuple[InboxId, InboxRow]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Lanes:
    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self._lanes: dict[_Name, _Lane] = {}
        self._known: dict[InboxId, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open = False
        self._closed = False

    async def start(self, stack: AsyncExitStack) -> None:
        """From now on rows are worked on; those put before are first."""
        stack.push_async_callback(self.close)
        self._open = True
        for name in self._lanes:
            self._serve(name)

    def idle(self, chat_id: ChatId, incoming: Incoming) -> bool:
        """True if this is worked on at once when it is put into its chat's lane now."""
        return self._open and (chat_id, is_quiet(incoming)) not in self._lanes

    def put(self, row: InboxRow) -> None:
        """Behind what was stored before it in its chat. A row that is here already stays one."""
        if row.id in self._known:
            return
        self._known[row.id] = asyncio.Event()
        name = row.chat_id, is_quiet(row.incoming)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            if self._open:
                self._serve(name)
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

    def _serve(self, name: _Name) -> None:
        self.spawn(self._run(name), f"lane {name[0]}")

    async def _run(self, name: _Name) -> None:
        lane = self._lanes[name]
        while lane.rows:
            rows = await self._together(lane)
            await self._work(rows)
            self._done(rows)
        del self._lanes[name]

    async def _together(self, lane: _Lane) -> Sequence[InboxRow]:
        """The next row. Files sent on their own wait a while for the words that belong to them,
        and a piece of a text for the next one."""
        rows = [heapq.heappop(lane.rows)[1]]
        while len(rows) < MOST_PIECES and (later := await self._joined(lane, rows[-1])):
            lane.rows.remove((later.id, later))
            heapq.heapify(lane.rows)
            rows.append(later)
        return rows

    async def _joined(self, lane: _Lane, row: InboxRow) -> InboxRow | None:
        """What belongs to this row, if it is there or comes in time."""
        if _is_wordless(row):
            left = row.received_at + JOINED_WITHIN - self._clock.now()
            later = await self._next(lane, left, lambda _: True)
            return later if later and _belongs(later, row) else None
        if isinstance(row.incoming, MessageIn) and is_piece(row.incoming):
            # From now on, not from when it came: after a restart the next may be delivered yet.
            later = await self._next(lane, PIECES_WITHIN, lambda each: _same_sender(each, row))
            return later if later and _goes_on(later, row) else None
        return None

    async def _next(
        self, lane: _Lane, left: timedelta, wanted: Callable[[InboxRow], bool]
    ) -> InboxRow | None:
        """The lane's first such row; waits for it no longer than `left`."""
        ends = self._clock.elapsed() + left.total_seconds()
        # More than all of it is left where the clock was set back: nobody waits for that.
        patient = left <= JOINED_WITHIN
        while True:
            found = next((row for _, row in sorted(lane.rows) if wanted(row)), None)
            seconds = ends - self._clock.elapsed()
            if found or not patient or seconds <= 0:
                return found
            lane.news.clear()
            await event_or_timer(lane.news, self._clock, seconds)

    def _done(self, rows: Sequence[InboxRow]) -> None:
        for row in rows:
            event = self._known.pop(row.id, None)
            if event is not None:
                event.set()

    @property
    def closed(self) -> bool:
        """True once nothing is worked on any more."""
        return self._closed

    async def close(self) -> None:
        """Break off what is worked on, and begin nothing more; the rows stay in the inbox."""
        self._closed, self._open = True, False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def as_one(rows: Sequence[InboxRow]) -> InboxRow:
    """What was said by rows that belong together. Pieces of a text are one message under the
    name of the first: whatever more of it comes after a crash, it is known by that."""
    said = [(row, row.incoming) for row in rows if isinstance(row.incoming, MessageIn)]
    pieces = [(row, message) for row, message in said if message.text.strip()]
    if len(pieces) < 2:  # noqa: PLR2004 - one is no pieces
        return pieces[0][0] if pieces else rows[-1]
    (first, message), *others = pieces
    text, last = message.text, message
    for _, each in others:
        text, last = f"{text}{_seam(last)}{each.text}", each
    return replace(first, incoming=fitting(replace(message, text=text)))


def is_quiet(incoming: Incoming) -> bool:
    """True for what was typed in a shell: answered there, and no part of the conversation."""
    return isinstance(incoming, MessageIn) and incoming.quiet


def is_piece(said: MessageIn) -> bool:
    """True if its client may have cut it: it is (nearly) as long as a text can be."""
    longest = _LONGEST.get(said.place.channel)
    return longest is not None and not said.edited and _units(said.text) >= longest - _SPARE


def can_go_on(said: MessageIn) -> bool:
    """True if this may be the next piece of a text: words, and not an order of its own."""
    return not said.edited and bool(said.text.strip()) and not _COMMAND.match(said.text)


def _seam(said: MessageIn) -> str:
    """What was lost after a piece: platforms strip the line end or the space it was cut at."""
    whole = _units(said.text) >= _LONGEST[said.place.channel] or said.text[-1:].isspace()
    return "" if whole else "\n"


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _is_wordless(row: InboxRow) -> bool:
    said = row.incoming
    return isinstance(said, MessageIn) and bool(said.attachments) and not said.text.strip()


def _belongs(later: InboxRow, row: InboxRow) -> bool:
    return (
        isinstance(later.incoming, MessageIn)
        and not later.incoming.edited
        and not later.incoming.told
        and _same_sender(later, row)
        and later.received_at - row.received_at <= JOINED_WITHIN
    )


def _goes_on(later: InboxRow, row: InboxRow) -> bool:
    """True if `later` is the next piece of the text that `row` is a piece of."""
    said, before = later.incoming, row.incoming
    if not (isinstance(said, MessageIn) and isinstance(before, MessageIn) and can_go_on(said)):
        return False
    # One of both is enough: what waited with the platform came late, but was sent at once.
    soon = later.received_at - row.received_at <= PIECES_WITHIN
    at_once = abs(said.sent_at - before.sent_at) <= PIECES_WITHIN
    return _same_sender(later, row) and (soon or at_once)


def _same_sender(later: InboxRow, row: InboxRow) -> bool:
    return later.incoming.sender.external_id == row.incoming.sender.external_id
