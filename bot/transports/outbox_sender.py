"""Delivers due outbox messages by urgency within rate limits, and stores every result."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import PurePath
from typing import Any, TypeAlias

from bot.transports import ports
from bot.transports.alerts import AlertSource, ChannelAlerts
from bot.transports.outbox import AnswerStreams
from bot.transports.ports import Clock, wait_for_event
from bot.transports.quota import MonthlyQuota, QuotaLevel
from bot.transports.rate_limits import CHANNEL_LIMITS, ChannelLimits, ChannelRateLimiter
from cards.card_json import CardDecodeError, load_card
from cards.catalog import catalog_for
from cards.model import Card, FileBlock, ImageBlock, NoteBlock, TextBlock
from storage.db import STORE_RETRY_SECONDS, Database, retry_until_stored
from storage.errors import StoreUnavailable
from storage.home_files import NotLate
from storage.messages.outbox import DeliveryAttempt, NextDelivery, OutboxRepo
from storage.records.messages import (
    UNREACHABLE_ERROR,
    DeliveryUrgency,
    MessagePlacement,
    OutboxId,
)
from storage.records.people import Channel, Chat, Language
from storage.shared_files import FileShareError, OneFolder, SharedFiles

log = logging.getLogger(__name__)

_MAX_BACKOFF = 60.0
# Consecutive failures that indicate a problem of the channel rather than of a message.
_CHANNEL_FAILURE_LIMIT = 3
# After this many crashes a message is sent as plain text.
_CRASH_LIMIT = 3
# After so many attempts a message goes out without files that cannot be brought here.
_FILE_ATTEMPTS = 6

ReaderRemovedCheck: TypeAlias = Callable[[DeliveryAttempt], Awaitable[bool]]
"""Whether a message's reader was removed. Must not raise."""

ChatClosedCallback: TypeAlias = Callable[[DeliveryAttempt], Awaitable[None]]
"""Receives messages whose chat is unreachable. May raise StoreUnavailable."""


@dataclass(kw_only=True, eq=False)
class ChannelSender:
    """Delivers the messages of one channel. `on_shown` is called after a delivery, `on_chat_closed`
    before a message is given up because its chat is unreachable. `next_files` returns how many
    files a message's next turn sends, if this process knows.
    """

    db: Database
    outbox: OutboxRepo
    transport: ports.Transport
    limiter: ChannelRateLimiter
    clock: Clock
    alerts: ChannelAlerts
    jitter: Callable[[], float]
    on_shown: Callable[[OutboxId], None]
    on_chat_closed: ChatClosedCallback
    is_reader_removed: ReaderRemovedCheck
    language_of: ports.LanguageResolver
    quota: MonthlyQuota | None = None
    files: SharedFiles = field(default_factory=OneFolder)
    next_files: dict[OutboxId, int] = field(default_factory=dict, init=False)
    _failures: int = field(default=0, init=False)
    _crashes: Counter[OutboxId] = field(default_factory=Counter, init=False)

    @property
    def shows_progress(self) -> bool:
        """Whether the month's quota allows progress updates."""
        return self.quota is None or self.quota.level.edit_factor is not None

    async def send(self, outbox_id: OutboxId) -> None:
        """Try to deliver the latest revision; the result is stored on return."""
        async with self.db.write() as tx:
            tried = await self.outbox.begin_attempt(tx, outbox_id)
            if self.quota is not None:
                await self.quota.save(tx)
        if tried is not None:
            await self._attempt(tried)
        if self.quota is not None:
            await self.quota.announce()

    async def _attempt(self, tried: DeliveryAttempt) -> None:
        if await self.is_reader_removed(tried):
            await self._record_failure(
                tried, ports.ChatUnreachable("whoever read here was removed")
            )
            return
        card = _load_stored_card(tried)
        try:
            await self._bring_files(card)
        except FileShareError as error:
            if tried.row.attempts < _FILE_ATTEMPTS:
                await self._schedule_retry(tried, error, may_have_arrived=False)
                return
            log.error("Outbox %s is sent without its files: %s", tried.row.id, error)  # noqa: TRY400
            card = await self._leave_late_files(tried, card)
        message = _build_message(tried, card, await self.language_of(tried.chat, card))
        message = replace(message, on_part=partial(self._save_part, tried))
        try:
            delivery = await self._deliver(
                message, plain=self._crashes[tried.row.id] >= _CRASH_LIMIT
            )
        except ports.DeliveryError as error:
            await self._record_failure(tried, error)
        # Error boundary: one message must not stop the others.
        except Exception as error:
            self._crashes[tried.row.id] += 1
            log.exception("Delivery of outbox %s failed unexpectedly", tried.row.id)
            await self._schedule_retry(tried, error, may_have_arrived=True)
        else:
            await self._record_delivered(tried, message, delivery)

    async def _bring_files(self, card: Card) -> None:
        for block in card.blocks:
            if isinstance(block, FileBlock | ImageBlock):
                await self.files.ensure(block.path)

    async def _leave_late_files(self, tried: DeliveryAttempt, card: Card) -> Card:
        """Name the files in the card that only another machine has; they follow in messages of
        their own.
        """
        files = (each.path for each in card.blocks if isinstance(each, FileBlock | ImageBlock))
        late = await self.files.list_late([*dict.fromkeys(files)])
        if not late:
            return card
        try:
            async with self.db.write() as tx:
                await self.files.mark_told(tx, late)
        except NotLate:
            # Out meanwhile: the transport finds it, or names it.
            return card
        words = catalog_for(await self.language_of(tried.chat, card))
        names = ", ".join(PurePath(each).name for each in late)
        left = [each for each in card.blocks if getattr(each, "path", "") not in late]
        note = NoteBlock(words("task.late_files", names=names))
        return replace(card, blocks=(*left, note))

    async def end_outage(self) -> None:
        """End the waits for the platform because it answers again: messages to retry
        are due now.
        """
        await self.outbox.retry_now(self.transport.channel, now=self.clock.now())
        self.limiter.end_outage()
        self._failures = 0

    async def _deliver(
        self, message: ports.OutboundMessage, *, plain: bool
    ) -> ports.DeliveryResult:
        """Show the card, as plain text if the platform refuses it."""
        if plain:
            return await self.transport.deliver(_as_plain_text(message))
        try:
            return await self.transport.deliver(message)
        except (ports.ContentRefused, ports.FileTooLarge) as error:
            log.warning("Outbox %s is refused, sent as plain text: %s", message.outbox_id, error)
            return await self.transport.deliver(_as_plain_text(message))

    async def _record_delivered(
        self, tried: DeliveryAttempt, message: ports.OutboundMessage, delivery: ports.DeliveryResult
    ) -> None:
        if self._failures >= _CHANNEL_FAILURE_LIMIT:
            await self._write_until_stored(self.end_outage)
        self._failures = 0
        self._crashes.pop(tried.row.id, None)
        if delivery.degraded:
            log.debug("Outbox %s degraded: %s", message.outbox_id, "; ".join(delivery.degraded))
        before = message.placed.message_ids if message.placed is not None else ()
        extra = len({*delivery.placed.message_ids} - {*before}) - 1
        if extra > 0:
            self.limiter.consume(tried.chat.external_id, tried.chat.kind, extra)
        now = self.clock.now()
        await self._write_until_stored(
            lambda: self.outbox.mark_shown(
                tried,
                delivery.placed,
                revision=message.revision,
                now=now,
                edit_at=now + timedelta(seconds=self._edit_interval()),
                files_left=delivery.files_left > 0,
            )
        )
        self.next_files.pop(tried.row.id, None)
        if delivery.files_left:
            self.next_files[tried.row.id] = delivery.files_left
        self.on_shown(message.outbox_id)

    def _edit_interval(self) -> float:
        factor = self.quota.level.edit_factor if self.quota is not None else 1.0
        return self.limiter.edit_interval * (factor or 1.0)

    async def _save_part(self, tried: DeliveryAttempt, placed: MessagePlacement) -> None:
        """Best effort: if storing fails, more parts are sent again."""
        try:
            await self.outbox.mark_partly_shown(tried, placed)
        except StoreUnavailable as error:
            log.warning(
                "A part of outbox %s was sent but cannot be recorded: %s", tried.row.id, error
            )

    async def _record_failure(self, tried: DeliveryAttempt, error: ports.DeliveryError) -> None:
        match error:
            case ports.DeliveryRateLimited(retry_after=seconds, whole_channel=everywhere):
                self.limiter.pause(seconds, chat=None if everywhere else tried.chat.external_id)
                now = self.clock.now()
                due = now + timedelta(seconds=seconds)
                await self._write_until_stored(
                    lambda: self.outbox.retry_later(
                        tried, now=now, due=due, error=str(error), may_have_arrived=False
                    )
                )
            case ports.ChatUnreachable():
                await self._write_until_stored(lambda: self.on_chat_closed(tried))
                await self._give_up(tried, f"{UNREACHABLE_ERROR}: {error}")
            case ports.PlatformUnavailable() | ports.DeliveryUncertain():
                self._count_failure()
                doubt = isinstance(error, ports.DeliveryUncertain)
                await self._schedule_retry(tried, error, may_have_arrived=doubt)
            case _:
                await self._give_up(tried, f"refused: {error}")
                facts = {"letter": tried.row.key, "reason": str(error) or "?"}
                channel = tried.chat.channel
                self.alerts.report(channel, "letter_refused", facts, source=AlertSource.OUTBOX)

    async def _schedule_retry(
        self, tried: DeliveryAttempt, error: Exception, *, may_have_arrived: bool
    ) -> None:
        seconds = self._backoff(tried.row.attempts)
        told = f"{type(error).__name__}: {error}"
        log.info("Outbox %s is tried again in %.1f s: %s", tried.row.id, seconds, told)
        now = self.clock.now()
        due = now + timedelta(seconds=seconds)
        await self._write_until_stored(
            lambda: self.outbox.retry_later(
                tried, now=now, due=due, error=told, may_have_arrived=may_have_arrived
            )
        )

    async def _give_up(self, tried: DeliveryAttempt, why: str) -> None:
        log.warning("Outbox %s (%s) is given up: %s", tried.row.id, tried.row.key, why)
        await self._write_until_stored(lambda: self.outbox.mark_dead(tried, error=why))

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures >= _CHANNEL_FAILURE_LIMIT:
            seconds = self._backoff(self._failures - _CHANNEL_FAILURE_LIMIT + 1)
            self.limiter.pause_for_outage(seconds)

    def _backoff(self, attempts: int) -> float:
        """Seconds from 1 to 60, doubling, with jitter."""
        longest = min(_MAX_BACKOFF, 2.0 ** min(attempts, 10))
        return max(1.0, longest * (0.5 + self.jitter() / 2))

    async def _write_until_stored(self, write: Callable[[], Awaitable[None]]) -> None:
        """Store an external result that cannot be undone, retrying until the store accepts it."""
        await retry_until_stored(
            write, self.clock.sleep, "a delivery's result", map(self._backoff, count(1))
        )


def _build_message(tried: DeliveryAttempt, card: Card, language: Language) -> ports.OutboundMessage:
    row = tried.row
    first = row.placement is None or not row.placement.message_ids
    # A first send that may have arrived keeps its key, so that platforms recognise it. It counts as
    # the old revision; the new one follows as an edit.
    revision = (
        tried.possibly_shown_revision if first and tried.possibly_shown_revision else row.revision
    )
    return ports.OutboundMessage(
        outbox_id=row.id,
        chat=tried.chat,
        card=card,
        revision=revision,
        urgency=row.urgency,
        # Row numbers begin again in a new database, whose chat IDs are others, and after a restore,
        # when the times are. Platforms take some 50 characters.
        idempotency_key=f"{row.chat_id}-{row.id}-{revision}-{int(row.created_at.timestamp()):x}",
        reply_to=row.reply_to,
        placed=row.placement,
        repeat=(first or tried.is_partly_shown or tried.files_only)
        and tried.possibly_shown_revision > 0,
        files_only=tried.files_only,
        language=language,
    )


def _load_stored_card(tried: DeliveryAttempt) -> Card:
    try:
        return load_card(tried.row.card)
    except CardDecodeError:
        log.warning("Outbox %s was written by another version: its text is shown", tried.row.id)
        fallback = str(tried.row.card.get("fallback", ""))
        return Card(blocks=(TextBlock(fallback or "…"),), fallback=fallback)


def _as_plain_text(message: ports.OutboundMessage) -> ports.OutboundMessage:
    text = message.card.fallback or message.card.summary or message.card.title or "…"
    card = Card(blocks=(TextBlock(text),), summary=message.card.summary, fallback=text)
    key = f"{message.idempotency_key}-p"
    return replace(message, card=card, idempotency_key=key, files_only=False)


async def _ignore_closed_chat(_: DeliveryAttempt) -> None: ...


async def _reader_never_removed(_: DeliveryAttempt) -> bool:
    return False


# Chats served concurrently per channel, so that a slow upload does not block the others.
_MAX_CONCURRENT_CHATS = 8
# Files begin only while fewer chats are served, so that uploads leave room for answers.
_MAX_FILE_CHATS = 4
_MIN_WAIT = 0.005
# A typing indicator needs the room that an edit would need, and leaves it.
_TYPING = DeliveryUrgency.PROGRESS


@dataclass(kw_only=True, eq=False)
class OutboxSender:
    """A service. `on_chat_closed`, `is_reader_removed` and `transports` may be set until `run`.
    When it is cancelled or its channel disconnected, a delivery in progress has `grace_seconds` to
    finish and be stored; otherwise it would be sent twice.
    """

    name = "outbox"

    db: Database
    outbox: OutboxRepo
    transports: Mapping[Channel, ports.Transport]
    clock: Clock
    alerts: ChannelAlerts
    language_of: ports.LanguageResolver
    quotas: Mapping[Channel, MonthlyQuota]
    channel_limits: Mapping[Channel, ChannelLimits] = field(default_factory=lambda: CHANNEL_LIMITS)
    files: SharedFiles = field(default_factory=OneFolder)
    jitter: Callable[[], float] = random.random
    grace_seconds: float = 3.0
    on_chat_closed: ChatClosedCallback = field(
        default_factory=lambda: _ignore_closed_chat, init=False
    )
    is_reader_removed: ReaderRemovedCheck = field(
        default_factory=lambda: _reader_never_removed, init=False
    )
    streams: AnswerStreams = field(init=False)
    _loops: dict[Channel, _ChannelLoop] = field(default_factory=dict, init=False)
    _tasks: dict[Channel, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup, init=False)
    _is_running: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._limiters = {
            channel: ChannelRateLimiter(limits, self.clock.elapsed)
            for channel, limits in self.channel_limits.items()
        }
        self.streams = AnswerStreams(
            outbox=self.outbox,
            transports=self.transports,
            is_paused=self.is_paused,
            may_stream=self.may_stream,
            may_send=self.may_send_progress,
            language_of=self.language_of,
        )

    async def start(self, stack: AsyncExitStack) -> None:
        for quota in self.quotas.values():
            await quota.load()
        await self.streams.start(stack)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            self._is_running = True
            for each in self.transports.values():
                self.connect(each)
            await asyncio.get_running_loop().create_future()

    def connect(self, transport: ports.Transport) -> None:
        """Send the messages of a channel through this transport. `run` connects all initial
        `transports`; in a process without `run` nothing is sent.
        """
        if not self._is_running:
            return
        channel = transport.channel
        loop = self._loops[channel] = self._build_loop(transport)
        self._tasks[channel] = self._group.create_task(loop.run(), name=f"delivery {channel}")

    async def disconnect(self, channel: Channel) -> None:
        """Stop sending on the channel; its messages wait. Returns when the deliveries in progress
        are stored.
        """
        self._loops.pop(channel, None)
        if (task := self._tasks.pop(channel, None)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def drain(self) -> None:
        """Wait until everything that may be sent now has been sent, at most `grace_seconds`."""
        waits = [each.wait_idle() for each in self._loops.values()]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self.grace_seconds)
        for wait in late:
            wait.cancel()

    def wake(self) -> None:
        for each in self._loops.values():
            each.wake()

    def connected(self, channel: Channel) -> None:
        """End the waits for the platform because it answers again."""
        if (loop := self._loops.get(channel)) is not None:
            loop.end_outage()

    def is_paused(self, chat: Chat) -> bool:
        """True while streaming and typing indicators must pause in this chat."""
        return self._limiters[chat.channel].is_paused(chat.external_id)

    def _level(self, channel: Channel) -> QuotaLevel:
        quota = self.quotas.get(channel)
        return QuotaLevel.FULL if quota is None else quota.level

    def may_stream(self, chat: Chat, edits: int) -> bool:
        """Whether the month's quota allows another edit of a streamed answer after that
        many edits.
        """
        most = self._level(chat.channel).edits
        return most is None or edits < most

    def may_send_progress(self, chat: Chat, edits: int) -> bool:
        """Count the next edit of a streamed answer, after that many, against the chat's limits;
        False if the limits are reached.
        """
        if not self.may_stream(chat, edits):
            return False
        limiter = self._limiters[chat.channel]
        return limiter.try_consume(chat.external_id, chat.kind, DeliveryUrgency.PROGRESS)

    async def show_typing(self, chat: Chat) -> None:
        """Show a typing indicator unless messages have to wait for a limit."""
        transport = self.transports.get(chat.channel)
        limiter = self._limiters[chat.channel]
        if self._level(chat.channel) is not QuotaLevel.FULL:
            return
        if transport is None or limiter.get_delay(chat.external_id, chat.kind, _TYPING) > 0:
            return
        try:
            await transport.show_typing(chat)
        except ports.DeliveryError as error:
            log.debug("The typing indicator could not be shown: %s", error)

    def _build_loop(self, transport: ports.Transport) -> _ChannelLoop:
        pace = self._limiters[transport.channel]
        sender = ChannelSender(
            db=self.db,
            outbox=self.outbox,
            transport=transport,
            limiter=pace,
            clock=self.clock,
            alerts=self.alerts,
            jitter=self.jitter,
            on_shown=self.streams.resume,
            on_chat_closed=self.on_chat_closed,
            is_reader_removed=self.is_reader_removed,
            language_of=self.language_of,
            quota=self.quotas.get(transport.channel),
            files=self.files,
        )
        return _ChannelLoop(
            channel=transport.channel,
            outbox=self.outbox,
            channel_sender=sender,
            limiter=pace,
            clock=self.clock,
            grace_seconds=self.grace_seconds,
        )


@dataclass(kw_only=True, eq=False)
class _ChannelLoop:
    """One channel's loop, which sleeps until woken or until the next message may be sent."""

    channel: Channel
    outbox: OutboxRepo
    channel_sender: ChannelSender
    limiter: ChannelRateLimiter
    clock: Clock
    grace_seconds: float
    _wake_event: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _idle_waiters: list[asyncio.Future[None]] = field(default_factory=list, init=False)
    _busy_chats: set[str] = field(default_factory=set, init=False)
    _outage_ended: bool = field(default=False, init=False)

    def wake(self) -> None:
        self._wake_event.set()

    def end_outage(self) -> None:
        self._outage_ended = True
        self.wake()

    def wait_idle(self) -> asyncio.Future[None]:
        """Done when nothing is being sent or can be sent soon."""
        listener = asyncio.get_running_loop().create_future()
        self._idle_waiters.append(listener)
        self.wake()
        return listener

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake_event.clear()
                await wait_for_event(self._wake_event, self.clock, await self._send_due(group))

    async def _send_due(self, group: asyncio.TaskGroup) -> float | None:
        """Start deliveries that are allowed now. Returns seconds until the next one, or None to
        wait for news."""
        # Deliveries in progress may finish while the query runs.
        busy = set(self._busy_chats)
        # A new waiter may know of messages that this query does not return yet.
        listeners, now = tuple(self._idle_waiters), self.clock.now()
        try:
            if self._outage_ended:
                await self.channel_sender.end_outage()
                self._outage_ended = False
            found = await self.outbox.list_due(self.channel, now=now)
        except StoreUnavailable as error:
            log.error("The outbox cannot be read: %s", error)  # noqa: TRY400 - a known state, not a bug
            return STORE_RETRY_SECONDS
        free = [head for head in found.deliveries if head.external_id not in busy]
        started = [self._start_send(head, group) for head in free]
        waits = [wait for wait in started if wait is not None]
        if not self._busy_chats and not any(wait <= self.grace_seconds for wait in waits):
            self._resolve_idle_waiters(listeners)
        if found.next_due is not None:
            waits.append((found.next_due - now).total_seconds())
        return max(_MIN_WAIT, min(waits)) if waits else None

    def _resolve_idle_waiters(self, waiters: Sequence[asyncio.Future[None]]) -> None:
        for listener in waiters:
            self._idle_waiters.remove(listener)
            if not listener.done():
                listener.set_result(None)

    def _start_send(self, head: NextDelivery, group: asyncio.TaskGroup) -> float | None:
        """Start this delivery, or return the seconds to wait."""
        files = head.urgency is DeliveryUrgency.FILES
        slots = _MAX_FILE_CHATS if files else _MAX_CONCURRENT_CHATS
        if len(self._busy_chats) >= slots:
            return None  # the end of another delivery wakes the loop
        if head.urgency is DeliveryUrgency.PROGRESS and not self.channel_sender.shows_progress:
            return None  # until the quota is renewed, or the card has something better to show
        count = self.channel_sender.next_files.get(head.id, 1) if files else 1
        wait = self.limiter.get_delay(head.external_id, head.kind, head.urgency, count)
        if wait > 0:
            return wait
        self.limiter.consume(head.external_id, head.kind)
        self._busy_chats.add(head.external_id)
        group.create_task(self._send_one(head.id, head.external_id), name=f"message {head.id}")
        return None

    async def _send_one(self, outbox_id: OutboxId, chat: str) -> None:
        try:
            await _finish_within(self.channel_sender.send(outbox_id), self.grace_seconds)
        except StoreUnavailable as error:
            log.error("Outbox %s cannot be started: %s", outbox_id, error)  # noqa: TRY400 - as above
            self.limiter.pause(STORE_RETRY_SECONDS)
        finally:
            self._busy_chats.discard(chat)
            self._wake_event.set()


async def _finish_within(work: Coroutine[Any, Any, None], grace_seconds: float) -> None:
    """Finish the work before a cancellation takes effect, within the grace period."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=grace_seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
