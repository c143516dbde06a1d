"""One arrival, handled: counted, its files fetched, routed, its reply stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from bot.transports.attachments import Attachments, Fetched, Missing
from bot.transports.cleaning import language_of
from bot.transports.clock import Clock
from bot.transports.courier import OutboxCourier
from bot.transports.delivery import Delivery
from bot.transports.lanes import as_one, is_quiet
from bot.transports.routing import Router
from cards.model import Card, Text, Tone
from cards.words import Words, words_for
from handlers.request import Reply
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.mail.chats import Chats
from storage.mail.inbox import Inbox
from storage.records.messages import InboxId, InboxRow, MessageIn, Urgency
from storage.records.people import Chat, ChatKind, ChatSettings, Language

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""Failures of one message before it is put aside."""

MOST_STARTS = 6
"""Tries of one message, those included that a death or a restart cut short. Few deaths are a
message's doing, and what was begun is found again: it is worth more patience than a failure."""

_PAUSES = (1.0, 5.0)
_STORE_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_TYPING_AFTER = 1.0
_TYPING_EVERY = 4.0

_T = TypeVar("_T")


class Answering:
    def __init__(
        self,
        *,
        db: Database,
        chats: Chats,
        inbox: Inbox,
        courier: OutboxCourier,
        delivery: Delivery,
        router: Router,
        attachments: Attachments,
        clock: Clock,
    ) -> None:
        self._db = db
        self._chats = chats
        self._inbox = inbox
        self._courier = courier
        self._delivery = delivery
        self._router = router
        self._attachments = attachments
        self._clock = clock
        self._begun: set[InboxId] = set()

    async def answer(self, rows: Sequence[InboxRow]) -> Reply:
        """Handle rows that belong together, as one message. After three failures, or six tries
        with those that a death cut short, they are put aside with an apology. Never raises."""
        row, failures = as_one(rows), 0
        while failures < MOST_ATTEMPTS + len(_PAUSES):
            attempt = await self._kept(lambda: self._begin(row))
            if not attempt:
                break
            try:
                if failures >= MOST_ATTEMPTS or attempt > MOST_STARTS:
                    return await self._give_up(row, rows, attempt - 1)
                return await self._attempt(row, rows)
            # The boundary of one arrival: whatever it leads to, the next one gets its turn.
            except Exception:
                failures += 1
                log.exception("Handling inbox %s failed, attempt %s", row.id, attempt)
                if failures < MOST_ATTEMPTS:
                    await self._clock.sleep(_PAUSES[failures - 1])
        return Reply()

    async def send_away(self, row: InboxRow, refusal: Reply) -> None:
        """It is told so and done with, in one: no later life may answer it after all."""
        try:
            await self._settle(row, [row], refusal)
        except StoreUnavailable as error:
            log.warning("Inbox %s is sent away by this life only: %s", row.id, error)

    def begun(self, row: InboxRow) -> None:
        """The first attempt of this row was counted when it was stored."""
        self._begun.add(row.id)

    async def words(self, row: InboxRow) -> Words:
        """In what language to speak about this arrival."""
        chat = await self._chats.get(row.chat_id)
        language = chat.settings.language or language_of(row.incoming)
        return words_for(language or Language.ENGLISH)

    async def tell(self, row: InboxRow, text: str, *, key: str) -> None:
        """Say something about an arrival beside its reply."""
        card = Card(blocks=(Text(markdown=text),))
        reply_to = _reply_to(row)
        await self._kept(
            lambda: self._courier.send(
                row.chat_id, card, key=key, urgency=Urgency.ANSWER, reply_to=reply_to
            )
        )

    async def _begin(self, row: InboxRow) -> int:
        if row.id in self._begun:
            self._begun.discard(row.id)
            return row.attempts
        return await self._inbox.begin(row.id)

    async def _attempt(self, row: InboxRow, rows: Sequence[InboxRow]) -> Reply:
        key = f"reply:{row.id}"
        if not is_quiet(row.incoming):
            self._courier.expect(key, row.chat_id, reply_to=_reply_to(row))
        try:
            async with self._typing(row):
                fetched = await self._fetched(row, rows)
                if fetched.missing:
                    await self._tell_missing(row, fetched.missing)
                if fetched.files or not fetched.missing or _text(row):
                    reply = await self._router.handle(row, fetched.files)
                else:
                    reply = Reply()
            await self._kept(lambda: self._settle(row, rows, reply))
        finally:
            self._courier.expect_no_more(key)
        return reply

    async def _fetched(self, row: InboxRow, rows: Sequence[InboxRow]) -> Fetched:
        said = row.incoming
        if not isinstance(said, MessageIn) or not await self._router.knows(said):
            return Fetched()
        return await self._attachments.fetch(rows)

    async def _settle(
        self, row: InboxRow, rows: Sequence[InboxRow], reply: Reply, *, error: str = ""
    ) -> None:
        """The reply is stored, and what it replies to is done with, or neither is. Who asked
        quietly is not told here."""
        card = None
        if reply.card is not None and not is_quiet(row.incoming):
            card = await self._courier.prepared(reply.card)
        key = reply.key or f"reply:{row.id}"
        async with self._db.write() as tx:
            # A card with a key of its own belongs to somebody who keeps it true, and may have
            # put a newer one there already: a reply only ever introduces it.
            introduces = bool(reply.key) and not reply.in_place
            if introduces and await self._courier.is_there(tx, key):
                card = None
            if card is not None:
                await self._courier.post(
                    tx,
                    row.chat_id,
                    card,
                    key=key,
                    urgency=reply.urgency,
                    reply_to=_reply_to(row),
                )
            ids, now = [each.id for each in rows], self._clock.now()
            if error:
                await self._inbox.failed(tx, ids, error=error, now=now)
            else:
                await self._inbox.handled(tx, ids, now=now)
        if card is not None:
            self._courier.wake()

    async def _give_up(self, row: InboxRow, rows: Sequence[InboxRow], tries: int) -> Reply:
        """Put it aside, and say so."""
        log.error("Inbox %s is put aside after %s attempts", row.id, tries)
        words = await self.words(row)
        text = words("mail.apology", n=tries, number=row.id)
        sorry = Card(tone=Tone.BAD, blocks=(Text(markdown=text),))
        reply = Reply(card=sorry, toast=words("mail.failed"), good=False)
        error = f"failed {tries} times"
        await self._kept(lambda: self._settle(row, rows, reply, error=error))
        return reply

    async def _tell_missing(self, row: InboxRow, missing: Sequence[Missing]) -> None:
        words = await self.words(row)
        lines = [
            words(
                "mail.file_too_large" if each.too_large else "mail.file_not_fetched",
                name=each.name or words("mail.attachment"),
            )
            for each in missing
        ]
        await self.tell(row, "\n\n".join(lines), key=f"files:{row.id}")

    @asynccontextmanager
    async def _typing(self, row: InboxRow) -> AsyncIterator[None]:
        """Show that work is going on, if it takes long enough to be noticed."""
        if not isinstance(row.incoming, MessageIn) or row.incoming.quiet:
            yield
            return
        task = asyncio.create_task(self._show_typing(_chat(row)), name=f"typing {row.id}")
        try:
            yield
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Exception):
                log.debug("No typing shown", exc_info=ended)

    async def _show_typing(self, chat: Chat) -> None:
        await self._clock.sleep(_TYPING_AFTER)
        while True:
            await self._delivery.typing(chat)
            await self._clock.sleep(_TYPING_EVERY)

    async def _kept(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do it as soon as the store allows: a full disk is waited for, not failed on."""
        pauses = iter(_STORE_PAUSES)
        while True:
            try:
                return await work()
            except StoreUnavailable as error:
                log.error("The store cannot be written: %s", error)  # noqa: TRY400 - a known state, not a bug
                await self._clock.sleep(next(pauses, _STORE_PAUSES[-1]))


def _text(row: InboxRow) -> str:
    return row.incoming.text.strip() if isinstance(row.incoming, MessageIn) else ""


def _reply_to(row: InboxRow) -> str:
    said = row.incoming
    if isinstance(said, MessageIn) and said.place.kind is ChatKind.GROUP:
        return said.message_id
    return ""


def _chat(row: InboxRow) -> Chat:
    """As much of the chat as typing needs: a read could be cancelled half-way by the answer."""
    place = row.incoming.place
    return Chat(
        id=row.chat_id,
        channel=place.channel,
        external_id=place.chat,
        thread=place.thread,
        kind=place.kind,
        title=place.title,
        settings=ChatSettings(),
        person_id=None,
    )
