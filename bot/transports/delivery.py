"""The outgoing side of the mail room: what is due leaves, most urgent first, at a bearable pace."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from bot.transports.alerts import Alerts
from bot.transports.base import DeliveryError, LanguageOf, Transport
from bot.transports.clock import Clock, event_or_timer
from bot.transports.pacing import PACES, ChannelPace, Pace
from bot.transports.postman import Closed, Gone, Postman
from bot.transports.quota import MonthlyQuota
from bot.transports.streams import Streams
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.mail.outbox import Head, Outbox, Try
from storage.records.messages import OutboxId
from storage.records.people import Channel, Chat

log = logging.getLogger(__name__)

# Chats served at the same time on one channel: one slow upload must not hold up the others.
_AT_ONCE = 8
_STORE_TROUBLE = 5.0
_SHORTEST_WAIT = 0.005


class Delivery:
    """A service. `transports` may be filled, and `closed` and `gone` be set, until `run`: the first
    is told of letters whose chat is closed to us, the second knows whose reader was removed.
    `wake` says that something is due. When it is cancelled, what is on its way has `last_words`
    seconds to arrive and to be noted: nobody could know, and it would be sent twice."""

    name = "delivery"

    def __init__(
        self,
        *,
        db: Database,
        outbox: Outbox,
        transports: Mapping[Channel, Transport],
        clock: Clock,
        alerts: Alerts,
        language_of: LanguageOf,
        quotas: Mapping[Channel, MonthlyQuota] | None = None,
        paces: Mapping[Channel, ChannelPace] = PACES,
        jitter: Callable[[], float] = random.random,
        last_words: float = 3.0,
    ) -> None:
        self._db = db
        self._outbox = outbox
        self._transports = transports
        self._clock = clock
        self._alerts = alerts
        self._language_of = language_of
        self._quotas = quotas or {}
        self._jitter = jitter
        self._last_words = last_words
        self._paces = {channel: Pace(limits, clock.elapsed) for channel, limits in paces.items()}
        self._rounds: list[_Round] = []
        self.closed: Closed = _nobody
        self.gone: Gone = _never
        self.streams = Streams(
            outbox=outbox, transports=transports, rests=self.rests, language_of=language_of
        )

    async def start(self, stack: AsyncExitStack) -> None:
        await self.streams.start(stack)

    async def run(self) -> None:
        self._rounds = [self._round(each) for each in self._transports.values()]
        async with asyncio.TaskGroup() as group:
            for each in self._rounds:
                group.create_task(each.run(), name=f"delivery {each.channel}")

    async def drain(self) -> None:
        """Wait until all that may be sent now has been, but no longer than `last_words`."""
        waits = [each.nothing_to_do() for each in self._rounds]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self._last_words)
        for wait in late:
            wait.cancel()

    def wake(self) -> None:
        for each in self._rounds:
            each.wake()

    def rests(self, chat: Chat) -> bool:
        """True while nothing that is only for the eye may be sent there."""
        return self._paces[chat.channel].rests(chat.external_id)

    async def typing(self, chat: Chat) -> None:
        """Show that work is going on, unless the platform wants its peace."""
        transport = self._transports.get(chat.channel)
        if transport is None or self.rests(chat):
            return
        try:
            await transport.typing(chat)
        except DeliveryError as error:
            log.debug("No typing shown: %s", error)

    def _round(self, transport: Transport) -> _Round:
        pace = self._paces[transport.channel]
        postman = Postman(
            db=self._db,
            outbox=self._outbox,
            transport=transport,
            pace=pace,
            clock=self._clock,
            alerts=self._alerts,
            jitter=self._jitter,
            shown=self.streams.resume,
            closed=self.closed,
            gone=self.gone,
            language_of=self._language_of,
            quota=self._quotas.get(transport.channel),
        )
        return _Round(
            channel=transport.channel,
            outbox=self._outbox,
            postman=postman,
            pace=pace,
            clock=self._clock,
            last_words=self._last_words,
        )


class _Round:
    """One channel's loop. It sleeps until woken, or until the next letter may go."""

    def __init__(
        self,
        *,
        channel: Channel,
        outbox: Outbox,
        postman: Postman,
        pace: Pace,
        clock: Clock,
        last_words: float,
    ) -> None:
        self.channel = channel
        self._outbox = outbox
        self._postman = postman
        self._pace = pace
        self._clock = clock
        self._last_words = last_words
        self._news = asyncio.Event()
        self._listeners: list[asyncio.Future[None]] = []
        # Which chat is being served; a chat gets one letter at a time, so that order holds.
        self._busy: set[str] = set()

    def wake(self) -> None:
        self._news.set()

    def nothing_to_do(self) -> asyncio.Future[None]:
        """Done when this round next finds nothing that could be sent soon, or is being sent."""
        listener = asyncio.get_running_loop().create_future()
        self._listeners.append(listener)
        self.wake()
        return listener

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                await event_or_timer(self._news, self._clock, await self._send_out(group))

    async def _send_out(self, group: asyncio.TaskGroup) -> float | None:
        """Start what may go now; seconds until there may be more, None for not before news."""
        # What is under way now may be done, and no longer due, when the answer is here.
        busy = set(self._busy)
        # Who listens from now on may know of letters that the store does not show us yet.
        listeners, now = tuple(self._listeners), self._clock.now()
        try:
            heads = await self._outbox.heads(self.channel, now=now)
            free = [head for head in heads if head.external_id not in busy]
            started = [self._send(head, group) for head in free]
            due = await self._outbox.next_due(self.channel, now=now)
        except StoreUnavailable as error:
            log.error("The outbox cannot be read: %s", error)  # noqa: TRY400 - a known state, not a bug
            return _STORE_TROUBLE
        waits = [wait for wait in started if wait is not None]
        if not self._busy and not any(wait <= self._last_words for wait in waits):
            self._tell(listeners)
        if due is not None:
            waits.append((due - now).total_seconds())
        return max(_SHORTEST_WAIT, min(waits)) if waits else None

    def _tell(self, listeners: Sequence[asyncio.Future[None]]) -> None:
        for listener in listeners:
            self._listeners.remove(listener)
            if not listener.done():
                listener.set_result(None)

    def _send(self, head: Head, group: asyncio.TaskGroup) -> float | None:
        """Start this one, or say how long it has to wait."""
        if len(self._busy) >= _AT_ONCE:
            return None  # the end of another wakes us
        wait = self._pace.delay(head.external_id, head.kind, head.urgency)
        if wait > 0:
            return wait
        self._pace.take(head.external_id, head.kind)
        self._busy.add(head.external_id)
        group.create_task(self._carry(head.id, head.external_id), name=f"letter {head.id}")
        return None

    async def _carry(self, outbox_id: OutboxId, chat: str) -> None:
        try:
            await _to_its_end(self._postman.carry(outbox_id), self._last_words)
        except StoreUnavailable as error:
            log.error("Outbox %s cannot be begun: %s", outbox_id, error)  # noqa: TRY400 - as above
            self._pace.rest(_STORE_TROUBLE)
        finally:
            self._busy.discard(chat)
            self._news.set()


async def _to_its_end(work: Coroutine[Any, Any, None], patience: float) -> None:
    """Do it; a cancellation comes through when it is done, or has had its time."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=patience)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


async def _nobody(_: Try) -> None:
    """Nobody asked to be told."""


async def _never(_: Try) -> bool:
    return False
