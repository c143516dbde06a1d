"""One letter, one try: hand it to the platform and write down what became of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from bot.transports.alerts import Alerts, Source
from bot.transports.base import (
    Ambiguous,
    Delivery,
    DeliveryError,
    LanguageOf,
    Letter,
    RateLimited,
    Refused,
    TooLarge,
    Transport,
    Unavailable,
    Unreachable,
)
from bot.transports.clock import Clock
from bot.transports.pacing import Pace
from bot.transports.quota import MonthlyQuota
from cards.card_json import BadCard, load_card
from cards.model import Card, Text
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.mail.outbox import Outbox, Try
from storage.records.messages import OutboxId, Placed
from storage.records.people import Language

log = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0
# So many failures on end, whichever letters they were, are the channel's and not the letters'.
_CHANNEL_FAILURES = 3
# A letter that breaks our own code so often is shown as plain text instead.
_CRASHES = 3

Gone: TypeAlias = Callable[[Try], Awaitable[bool]]
"""Whether a letter has no reader any more. Never raises."""

Closed: TypeAlias = Callable[[Try], Awaitable[None]]
"""Told of a letter whose chat is closed to us. May raise StoreUnavailable."""


class Postman:
    """Serves one channel. `shown` is called with what has just been placed, `closed` with what
    cannot be, before it is given up: its chat does not take messages."""

    def __init__(
        self,
        *,
        db: Database,
        outbox: Outbox,
        transport: Transport,
        pace: Pace,
        clock: Clock,
        alerts: Alerts,
        jitter: Callable[[], float],
        shown: Callable[[OutboxId], None],
        closed: Closed,
        gone: Gone,
        language_of: LanguageOf,
        quota: MonthlyQuota | None = None,
    ) -> None:
        self._db = db
        self._outbox = outbox
        self._transport = transport
        self._pace = pace
        self._clock = clock
        self._alerts = alerts
        self._jitter = jitter
        self._shown = shown
        self._closed = closed
        self._gone = gone
        self._language_of = language_of
        self._quota = quota
        self._failures = 0
        self._crashes: Counter[OutboxId] = Counter()

    async def carry(self, outbox_id: OutboxId) -> None:
        """Try to show the newest revision. Every outcome is in the store when this returns."""
        async with self._db.write() as tx:
            tried = await self._outbox.begin_try(tx, outbox_id)
            if self._quota is not None:
                await self._quota.save(tx)
        if tried is not None:
            await self._try(tried)

    async def _try(self, tried: Try) -> None:
        if await self._gone(tried):
            await self._missed(tried, Unreachable("whoever read here was removed"))
            return
        card = _card(tried)
        letter = _letter(tried, card, await self._language_of(tried.chat, card))
        letter = replace(letter, on_part=partial(self._keep_part, tried))
        try:
            delivery = await self._deliver(letter, plain=self._crashes[tried.row.id] >= _CRASHES)
        except DeliveryError as error:
            await self._missed(tried, error)
        # The boundary of one letter: whatever a transport stumbles over, others are delivered.
        except Exception as error:
            self._crashes[tried.row.id] += 1
            log.exception("Delivery of outbox %s failed unexpectedly", tried.row.id)
            await self._later(tried, error, may_have_arrived=True)
        else:
            await self._arrived(tried, letter, delivery)

    async def _deliver(self, letter: Letter, *, plain: bool) -> Delivery:
        """Show the card; as plain text where the platform will not have it."""
        if plain:
            return await self._transport.deliver(_plain(letter))
        try:
            return await self._transport.deliver(letter)
        except (Refused, TooLarge) as error:
            log.warning("Outbox %s is refused, sent as plain text: %s", letter.outbox_id, error)
            return await self._transport.deliver(_plain(letter))

    async def _arrived(self, tried: Try, letter: Letter, delivery: Delivery) -> None:
        self._failures = 0
        self._crashes.pop(tried.row.id, None)
        if delivery.degraded:
            log.debug("Outbox %s degraded: %s", letter.outbox_id, "; ".join(delivery.degraded))
        extra = len(delivery.placed.message_ids) - 1
        if extra > 0 and letter.placed is None:
            self._pace.take(tried.chat.external_id, tried.chat.kind, extra)
        await self._persist(
            lambda: self._outbox.shown(
                tried, delivery.placed, revision=letter.revision, now=self._clock.now()
            )
        )
        self._shown(letter.outbox_id)

    async def _keep_part(self, tried: Try, placed: Placed) -> None:
        """Not waited for: where it cannot be kept, the letter is repeated from further back."""
        try:
            await self._outbox.partly(tried, placed)
        except StoreUnavailable as error:
            log.warning("A part of outbox %s is out and cannot be noted: %s", tried.row.id, error)

    async def _missed(self, tried: Try, error: DeliveryError) -> None:
        match error:
            case RateLimited(retry_after=seconds, whole_channel=everywhere):
                self._pace.rest(seconds, chat=None if everywhere else tried.chat.external_id)
                now = self._clock.now()
                due = now + timedelta(seconds=seconds)
                await self._persist(
                    lambda: self._outbox.retry_later(
                        tried, now=now, due=due, error=str(error), may_have_arrived=False
                    )
                )
            case Unreachable():
                await self._persist(lambda: self._closed(tried))
                await self._dead(tried, f"unreachable: {error}")
            case Unavailable() | Ambiguous():
                self._count_failure()
                doubt = isinstance(error, Ambiguous)
                await self._later(tried, error, may_have_arrived=doubt)
            case _:
                await self._dead(tried, f"refused: {error}")
                facts = {"letter": tried.row.key, "reason": str(error) or "?"}
                channel = tried.chat.channel
                self._alerts.tell(channel, "letter_refused", facts, source=Source.MAIL)

    async def _later(self, tried: Try, error: Exception, *, may_have_arrived: bool) -> None:
        seconds = self._backoff(tried.row.attempts)
        told = f"{type(error).__name__}: {error}"
        log.info("Outbox %s is tried again in %.1f s: %s", tried.row.id, seconds, told)
        now = self._clock.now()
        due = now + timedelta(seconds=seconds)
        await self._persist(
            lambda: self._outbox.retry_later(
                tried, now=now, due=due, error=told, may_have_arrived=may_have_arrived
            )
        )

    async def _dead(self, tried: Try, why: str) -> None:
        log.warning("Outbox %s (%s) is given up: %s", tried.row.id, tried.row.key, why)
        await self._persist(lambda: self._outbox.dead(tried, error=why))

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures >= _CHANNEL_FAILURES:
            self._pace.rest(self._backoff(self._failures - _CHANNEL_FAILURES + 1))

    def _backoff(self, attempts: int) -> float:
        """1 to 60 seconds, doubling, and not the same for all."""
        longest = min(_LONGEST_WAIT, 2.0 ** min(attempts, 10))
        return max(1.0, longest * (0.5 + self._jitter() / 2))

    async def _persist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write down what happened outside; it cannot be undone, so a full disk is waited for."""
        attempts = 0
        while True:
            try:
                return await write()
            except StoreUnavailable as error:
                attempts += 1
                log.error("What was delivered cannot be stored: %s", error)  # noqa: TRY400 - a known state, not a bug
                await self._clock.sleep(self._backoff(attempts))


def _letter(tried: Try, card: Card, language: Language) -> Letter:
    row = tried.row
    first = row.placed is None
    # A first send that may have arrived keeps its name, so that platforms know it again; it then
    # counts as the old revision, and the new one follows as an edit.
    revision = tried.unsure if first and tried.unsure else row.revision
    return Letter(
        outbox_id=row.id,
        chat=tried.chat,
        card=card,
        revision=revision,
        urgency=row.urgency,
        # Row numbers start anew in a new database; the chat's id does not come again.
        uuid=f"{row.chat_id}-{row.id}-{revision}",
        reply_to=row.reply_to,
        placed=row.placed,
        repeat=(first or tried.begun) and tried.unsure > 0,
        language=language,
    )


def _card(tried: Try) -> Card:
    try:
        return load_card(tried.row.card)
    except BadCard:
        log.warning("Outbox %s was written by another version: its text is shown", tried.row.id)
        fallback = str(tried.row.card.get("fallback", ""))
        return Card(blocks=(Text(markdown=fallback or "…"),), fallback=fallback)


def _plain(letter: Letter) -> Letter:
    text = letter.card.fallback or letter.card.summary or letter.card.title or "…"
    card = Card(blocks=(Text(markdown=text),), summary=letter.card.summary, fallback=text)
    return replace(letter, card=card, uuid=f"{letter.uuid}-p")
