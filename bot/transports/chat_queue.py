"""Handles messages in order within a chat and concurrently between chats, each sender's at a
limited pace. Shell commands have their own queue per chat."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from bot.transports.limited_dict import LimitedDict
from bot.transports.ports import Clock, wait_for_event
from bot.transports.sanitize import truncate_text
from handlers.request import Reply, Silence
from storage.records.messages import InboxId, InboxRow, Incoming, IncomingMessage
from storage.records.people import Channel, ChatId

FILE_TEXT_WINDOW = timedelta(seconds=10)
"""How long a file waits for accompanying text."""

FRAGMENT_WINDOW = timedelta(seconds=1.5)
"""How long a fragment of a long text waits for the next one."""

MAX_FRAGMENTS = 100

_MAX_CLIENT_TEXT: Mapping[Channel, int] = {Channel.TELEGRAM: 4096}
"""Length in UTF-16 units at which the channel's clients split a text; other clients never split."""

_FRAGMENT_SLACK = 96
"""How much shorter a fragment may be: clients split between words, and the bot's name is removed.
"""

_COMMAND = re.compile(r"\s*[/／]\w+(?:@\w*)?(?:[:：\s]|$)")

_QueueKey: TypeAlias = tuple[ChatId, bool]
"""Chat, and whether it is the chat's shell queue."""

MessageRows: TypeAlias = Sequence[InboxRow]
"""Rows that form one message."""

RowsHandler: TypeAlias = Callable[[MessageRows, Sequence[MessageRows]], Coroutine[Any, Any, Reply]]
"""Handles one message, together with earlier ones whose answers it interrupted. Those named in the
reply's `joined` are settled with it. Must not raise."""

PACE_BURST = 60
"""Messages of one sender in one chat that are handled as they come."""

PACE_INTERVAL = 1.0
"""Seconds between the further ones."""

_MAX_TRACKED_SENDERS = 1000

_COMMAND_PATIENCE = 5.0
"""Seconds that a message waits for the commands sent before it."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Queue:
    rows: list[tuple[InboxId, InboxRow]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: list[MessageRows] = field(default_factory=list)


class SenderPace:
    """When each sender's messages may be handled: `PACE_BURST` as they come, further ones
    `PACE_INTERVAL` apart (the generic cell rate algorithm, ITU-T I.371).

    The time when a message was sent counts, so what people wrote over hours is not slowed down
    because it arrives at once. The pieces of a long text count as one message.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next: LimitedDict[tuple[str, ...], float] = LimitedDict(_MAX_TRACKED_SENDERS)
        self._last: LimitedDict[tuple[str, ...], Incoming] = LimitedDict(_MAX_TRACKED_SENDERS)

    def get_delay(self, incoming: Incoming) -> float:
        """Seconds until this message may be handled, 0 for now."""
        due = self._theoretical_arrival(incoming) - (PACE_BURST - 1) * PACE_INTERVAL
        return max(0.0, due - self._clock.elapsed())

    def count(self, incoming: Incoming) -> None:
        sender = sender_key(incoming)
        self._next[sender] = self._theoretical_arrival(incoming) + PACE_INTERVAL
        self._last[sender] = incoming

    def _theoretical_arrival(self, incoming: Incoming) -> float:
        sent, sender = self._clock.elapsed(), sender_key(incoming)
        if self._continues(incoming, self._last.get(sender)):
            return self._next[sender] - PACE_INTERVAL
        if isinstance(incoming, IncomingMessage):
            sent -= max(0.0, (self._clock.now() - incoming.sent_at).total_seconds())
        return max(sent, self._next.get(sender, sent))

    def _continues(self, incoming: Incoming, last: Incoming | None) -> bool:
        """Whether this is the next piece of the text that the sender's last message began."""
        return (
            isinstance(incoming, IncomingMessage)
            and isinstance(last, IncomingMessage)
            and is_fragment(last)
            and can_continue_fragment(incoming)
            and abs(incoming.sent_at - last.sent_at) <= FRAGMENT_WINDOW
        )


class ChatQueues:
    def __init__(self, handle: RowsHandler, clock: Clock) -> None:
        self._handle = handle
        self._clock = clock
        self._pace = SenderPace(clock)
        self._delayed: dict[tuple[str, ...], deque[tuple[float, InboxRow, bool]]] = {}
        self._queues: dict[_QueueKey, _Queue] = {}
        self._pending: dict[InboxId, asyncio.Event] = {}
        self._handling: set[InboxId] = set()
        self._immediate: dict[InboxId, ChatId] = {}
        self._withdrawn: set[InboxId] = set()
        self._held: set[ChatId] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._started = False
        self._closed = False

    async def start(self, stack: AsyncExitStack) -> None:
        """Start handling rows, those already queued first."""
        stack.push_async_callback(self.close)
        self._started = True
        for name in self._queues:
            self._start_worker(name)

    def hold(self, chat_id: ChatId) -> None:
        """Handle nothing queued for the chat until `release`, except what is immediate."""
        self._held.add(chat_id)

    def release(self, chat_id: ChatId) -> None:
        self._held.discard(chat_id)
        for name in self._queues:
            if name[0] == chat_id and self._started:
                self._start_worker(name)

    def is_idle(self, chat_id: ChatId, incoming: Incoming) -> bool:
        """True if the message would be handled at once when queued now."""
        queued = (chat_id, is_quiet(incoming)) in self._queues
        return self._started and not queued and chat_id not in self._held

    def is_too_fast(self, incoming: Incoming) -> bool:
        """True if the message would have to wait for its sender's pace."""
        return sender_key(incoming) in self._delayed or self._pace.get_delay(incoming) > 0

    def count_delayed(self, incoming: Incoming) -> int:
        """Messages of the same sender in the same chat that wait for their pace."""
        return len(self._delayed.get(sender_key(incoming), ()))

    def enqueue(self, row: InboxRow, *, immediate: bool = False, paced: bool = True) -> None:
        """Queue the row behind earlier ones of its chat, or handle it at once if `immediate`; with
        `paced` not before its sender's pace allows. A row already queued is ignored."""
        if row.id in self._pending:
            return
        self._pending[row.id] = asyncio.Event()
        if not paced:
            self._dispatch(row, immediate)
            return
        delay, sender = self._pace.get_delay(row.incoming), sender_key(row.incoming)
        self._pace.count(row.incoming)
        if sender in self._delayed:
            self._delayed[sender].append((self._clock.elapsed() + delay, row, immediate))
        elif delay > 0:
            self._delayed[sender] = deque([(self._clock.elapsed() + delay, row, immediate)])
            self.spawn(self._release_delayed(sender), f"pace of {row.chat_id}")
        else:
            self._dispatch(row, immediate)

    def is_pending(self, inbox_id: InboxId) -> bool:
        return inbox_id in self._pending

    def withdraw(self, inbox_id: InboxId) -> bool:
        """Take a queued row out; False if it is being handled."""
        if inbox_id in self._handling:
            return False
        if inbox_id in self._pending:
            self._withdrawn.add(inbox_id)
        return True

    async def _release_delayed(self, sender: tuple[str, ...]) -> None:
        waiting = self._delayed[sender]
        while waiting:
            at, row, immediate = waiting[0]
            if (wait := at - self._clock.elapsed()) > 0:
                await self._clock.sleep(wait)
            waiting.popleft()
            self._dispatch(row, immediate)
        del self._delayed[sender]

    def _dispatch(self, row: InboxRow, immediate: bool) -> None:
        if immediate:
            self._immediate[row.id] = row.chat_id
            self._spawn_pending(row, self._handle([row], ()))
        else:
            self._push(row)

    def _push(self, row: InboxRow) -> None:
        name = row.chat_id, is_quiet(row.incoming)
        lane = self._queues.get(name)
        if lane is None:
            lane = self._queues[name] = _Queue()
            if self._started:
                self._start_worker(name)
        heapq.heappush(lane.rows, (row.id, row))
        lane.changed.set()

    def run_now(self, row: InboxRow, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run this work at once, outside the queue."""
        self._pending[row.id] = asyncio.Event()
        return self._spawn_pending(row, work)

    def _spawn_pending(self, row: InboxRow, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self._handling.add(row.id)
        task = self.spawn(work, f"arrival {row.id}")
        task.add_done_callback(lambda _: self._mark_handled([row]))
        return task

    def spawn(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Start a task that is cancelled with the queues."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait_handled(self, inbox_id: InboxId) -> None:
        """Wait until the row is handled; returns at once if it is not queued."""
        event = self._pending.get(inbox_id)
        if event is not None:
            await event.wait()

    def _start_worker(self, key: _QueueKey) -> None:
        if key[0] in self._held:
            return
        self.spawn(self._run(key), f"lane {key[0]}")

    async def _run(self, key: _QueueKey) -> None:
        lane = self._queues[key]
        while lane.rows:
            rows = await self._take_related(lane)
            self._handling.update(row.id for row in rows)
            lane.interrupted = [
                kept for each in lane.interrupted if (kept := self._without_withdrawn(each))
            ]
            reply = await self._handle(rows, lane.interrupted) if rows else Reply()
            self._handling.difference_update(row.id for row in rows)
            interrupted = reply.silence is Silence.INTERRUPTED
            if interrupted:
                lane.interrupted.append(rows)
            else:
                self._mark_handled(rows)
            if not (interrupted and lane.rows):
                self._take_up_interrupted(lane, reply)
        del self._queues[key]

    async def _wait_for_commands(self, row: InboxRow) -> None:
        """Wait for the commands before this message. They are handled at once, but their settings
        (a model, a private chat) apply to the messages sent after them.
        """
        ends = self._clock.elapsed() + _COMMAND_PATIENCE
        for earlier, chat_id in tuple(self._immediate.items()):
            event = self._pending.get(earlier)
            if chat_id == row.chat_id and earlier < row.id and event is not None:
                await wait_for_event(event, self._clock, ends - self._clock.elapsed())

    def _take_up_interrupted(self, lane: _Queue, reply: Reply) -> None:
        """Queue again the messages that were interrupted by this one but not answered together with
        it, for example because it was a command.
        """
        for rows in lane.interrupted:
            if is_joined(rows, reply):
                self._mark_handled(rows)
            else:
                for row in rows:
                    heapq.heappush(lane.rows, (row.id, row))
        lane.interrupted.clear()

    async def _take_related(self, queue: _Queue) -> Sequence[InboxRow]:
        """The next row with the rows that belong to it, without those that were withdrawn. Files
        wait a while for accompanying text, and fragments of text for the next one.
        """
        rows = [heapq.heappop(queue.rows)[1]]
        while len(rows) < MAX_FRAGMENTS and (
            later := await self._find_continuation(queue, rows[-1])
        ):
            queue.rows.remove((later.id, later))
            heapq.heapify(queue.rows)
            rows.append(later)
        await self._wait_for_commands(rows[-1])
        return self._without_withdrawn(rows)

    def _without_withdrawn(self, rows: MessageRows) -> MessageRows:
        withdrawn = [row for row in rows if row.id in self._withdrawn]
        self._mark_handled(withdrawn)
        return [row for row in rows if row not in withdrawn]

    async def _find_continuation(self, queue: _Queue, row: InboxRow) -> InboxRow | None:
        """The row that continues this one, if it arrives in time."""
        if _has_only_files(row):
            left = row.received_at + FILE_TEXT_WINDOW - self._clock.now()
            later = await self._wait_for_row(queue, left, lambda _: True)
            return later if later and _is_text_for_files(later, row) else None
        if isinstance(row.incoming, IncomingMessage) and is_fragment(row.incoming):
            # Measured from now: after a restart the platform may still have to deliver the next
            # one.
            later = await self._wait_for_row(
                queue, FRAGMENT_WINDOW, lambda each: _same_sender(each, row)
            )
            return later if later and _is_next_fragment(later, row) else None
        return None

    async def _wait_for_row(
        self, queue: _Queue, remaining: timedelta, wanted: Callable[[InboxRow], bool]
    ) -> InboxRow | None:
        """The first matching row in the queue, waiting at most `remaining`."""
        ends = self._clock.elapsed() + remaining.total_seconds()
        # The clock was set back; waiting longer than the whole window is pointless.
        patient = remaining <= FILE_TEXT_WINDOW
        while True:
            found = next((row for _, row in sorted(queue.rows) if wanted(row)), None)
            seconds = ends - self._clock.elapsed()
            if found or not patient or seconds <= 0:
                return found
            queue.changed.clear()
            await wait_for_event(queue.changed, self._clock, seconds)

    def _mark_handled(self, rows: Sequence[InboxRow]) -> None:
        for row in rows:
            self._handling.discard(row.id)
            self._immediate.pop(row.id, None)
            self._withdrawn.discard(row.id)
            event = self._pending.pop(row.id, None)
            if event is not None:
                event.set()

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Cancel running work and start no more; the rows stay in the inbox."""
        self._closed, self._started = True, False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_joined(rows: MessageRows, reply: Reply) -> bool:
    """Whether this reply to a newer message also answers an interrupted one."""
    return merge_rows(rows).source in reply.joined


def sender_key(incoming: Incoming) -> tuple[str, ...]:
    """A key for one sender in one chat."""
    place = incoming.place
    return place.channel, place.chat, place.thread, incoming.sender.external_id


def merge_rows(rows: Sequence[InboxRow]) -> InboxRow:
    """Merge rows into one message. Merged fragments keep the ID of the first, so that a fragment
    arriving after a crash is recognised."""
    said = [(row, row.incoming) for row in rows if isinstance(row.incoming, IncomingMessage)]
    pieces = [(row, message) for row, message in said if message.text.strip()]
    if len(pieces) < 2:  # noqa: PLR2004 - a single fragment
        return pieces[0][0] if pieces else rows[-1]
    (first, message), *others = pieces
    text, last = message.text, message
    for _, each in others:
        text, last = f"{text}{_fragment_joiner(last)}{each.text}", each
    return replace(first, incoming=truncate_text(replace(message, text=text)))


def is_quiet(incoming: Incoming) -> bool:
    """True for shell commands, which are answered in the shell and not part of the conversation."""
    return isinstance(incoming, IncomingMessage) and incoming.quiet


def is_fragment(message: IncomingMessage) -> bool:
    """Whether the client may have split this text, which is about as long as the limit."""
    longest = _MAX_CLIENT_TEXT.get(message.place.channel)
    return (
        longest is not None
        and not message.edited
        and _utf16_length(message.text) >= longest - _FRAGMENT_SLACK
    )


def can_continue_fragment(message: IncomingMessage) -> bool:
    """Whether this may be the next fragment: text, but not a command."""
    return not message.edited and bool(message.text.strip()) and not _COMMAND.match(message.text)


def _fragment_joiner(message: IncomingMessage) -> str:
    """The newline or space at which the platform split the text, which it drops."""
    whole = (
        _utf16_length(message.text) >= _MAX_CLIENT_TEXT[message.place.channel]
        or message.text[-1:].isspace()
    )
    return "" if whole else "\n"


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _has_only_files(row: InboxRow) -> bool:
    said = row.incoming
    return isinstance(said, IncomingMessage) and bool(said.attachments) and not said.text.strip()


def _is_text_for_files(later: InboxRow, row: InboxRow) -> bool:
    return (
        isinstance(later.incoming, IncomingMessage)
        and not later.incoming.edited
        and not later.incoming.told
        and _same_sender(later, row)
        and later.received_at - row.received_at <= FILE_TEXT_WINDOW
    )


def _is_next_fragment(later: InboxRow, row: InboxRow) -> bool:
    said, before = later.incoming, row.incoming
    if not (
        isinstance(said, IncomingMessage)
        and isinstance(before, IncomingMessage)
        and can_continue_fragment(said)
    ):
        return False
    # Either time is sufficient: a message delayed by the platform arrives late but was sent at
    # once.
    soon = later.received_at - row.received_at <= FRAGMENT_WINDOW
    at_once = abs(said.sent_at - before.sent_at) <= FRAGMENT_WINDOW
    return _same_sender(later, row) and (soon or at_once)


def _same_sender(later: InboxRow, row: InboxRow) -> bool:
    return later.incoming.sender.external_id == row.incoming.sender.external_id
