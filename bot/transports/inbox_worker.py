"""Handles one incoming message: counts the attempt, downloads files, routes it, and stores the
reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TypeVar

from bot.transports.chat_queue import is_quiet, merge_rows
from bot.transports.clock import Clock
from bot.transports.files import AttachmentFetcher, FetchedFiles, MissingFile
from bot.transports.outbox import OutboxCourier
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import IncomingRouter
from bot.transports.sanitize import detect_language
from cards.catalog import TextCatalog, catalog_for
from cards.model import Card, CardTone, TextBlock
from handlers.request import Reply
from storage.db import Database, retry_until_stored
from storage.errors import StoreUnavailable
from storage.messages.chats import ChatRepo
from storage.messages.inbox import InboxRepo
from storage.records.messages import DeliveryUrgency, InboxId, InboxRow, IncomingMessage
from storage.records.people import Chat, ChatKind, ChatSettings, Language

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Failures before a message is skipped."""

MAX_ATTEMPTS = 6
"""Attempts before a message is skipped, including those ended by a crash or restart. Higher than
`MAX_FAILURES`, since few crashes are caused by a message."""

_RETRY_DELAYS = (1.0, 5.0)
_STORE_RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)
_TYPING_DELAY = 1.0
_TYPING_INTERVAL = 4.0

_T = TypeVar("_T")


@dataclass(kw_only=True, eq=False)
class InboxWorker:
    db: Database
    chats: ChatRepo
    inbox: InboxRepo
    courier: OutboxCourier
    outbox_sender: OutboxSender
    router: IncomingRouter
    attachments: AttachmentFetcher
    clock: Clock
    _first_attempts: set[InboxId] = field(default_factory=set, init=False)

    async def handle(self, rows: Sequence[InboxRow]) -> Reply:
        """Handle rows as one message. After `MAX_FAILURES` or `MAX_ATTEMPTS` they are skipped with
        an apology. Never raises."""
        row, failures = merge_rows(rows), 0
        while failures < MAX_FAILURES + len(_RETRY_DELAYS):
            attempt = await self._retry_while_store_fails(lambda: self._start_attempt(row))
            if not attempt:
                break
            try:
                if failures >= MAX_FAILURES or attempt > MAX_ATTEMPTS:
                    return await self._give_up(row, rows, attempt - 1)
                return await self._attempt(row, rows)
            # Error boundary: one message must not stop the next ones.
            except Exception:
                failures += 1
                log.exception("Handling inbox %s failed, attempt %s", row.id, attempt)
                if failures < MAX_FAILURES:
                    await self.clock.sleep(_RETRY_DELAYS[failures - 1])
        return Reply()

    async def refuse(self, row: InboxRow, refusal: Reply) -> None:
        """Store the refusal and finish the row in one transaction, so that it is never handled
        again."""
        try:
            await self._store_reply(row, [row], refusal)
        except StoreUnavailable as error:
            log.warning("The refusal of inbox %s cannot be stored: %s", row.id, error)

    def note_first_attempt(self, row: InboxRow) -> None:
        """Record that the first attempt was counted when the row was stored."""
        self._first_attempts.add(row.id)

    async def load_words(self, row: InboxRow) -> TextCatalog:
        """Texts in the language for replies to this message."""
        chat = await self.chats.get(row.chat_id)
        language = chat.settings.language or detect_language(row.incoming)
        return catalog_for(language or Language.ENGLISH)

    async def notify(self, row: InboxRow, text: str, *, key: str) -> None:
        """Send a note in addition to the reply."""
        card = Card(blocks=(TextBlock(text),))
        reply_to = _reply_to(row)
        await self._retry_while_store_fails(
            lambda: self.courier.send(
                row.chat_id, card, key=key, urgency=DeliveryUrgency.ANSWER, reply_to=reply_to
            )
        )

    async def _start_attempt(self, row: InboxRow) -> int:
        if row.id in self._first_attempts:
            self._first_attempts.discard(row.id)
            return row.attempts
        return await self.inbox.count_attempt(row.id)

    async def _attempt(self, row: InboxRow, rows: Sequence[InboxRow]) -> Reply:
        key = f"reply:{row.id}"
        if not is_quiet(row.incoming):
            self.courier.expect_answer(key, row.chat_id, reply_to=_reply_to(row))
        try:
            async with self._typing_indicator(row):
                fetched = await self._fetch_attachments(row, rows)
                if fetched.missing:
                    await self._notify_missing_files(row, fetched.missing)
                if fetched.files or not fetched.missing or _message_text(row):
                    reply = await self.router.handle(row, fetched.files)
                else:
                    reply = Reply()
            await self._retry_while_store_fails(lambda: self._store_reply(row, rows, reply))
        finally:
            self.courier.cancel_expected(key)
        return reply

    async def _fetch_attachments(self, row: InboxRow, rows: Sequence[InboxRow]) -> FetchedFiles:
        said = row.incoming
        # Without files nobody has to be looked up here: the router does that anyway.
        if not isinstance(said, IncomingMessage) or not any(map(_has_attachments, rows)):
            return FetchedFiles()
        if not await self.router.is_known_sender(said):
            return FetchedFiles()
        return await self.attachments.fetch(rows)

    async def _store_reply(
        self, row: InboxRow, rows: Sequence[InboxRow], reply: Reply, *, error: str = ""
    ) -> None:
        """Store the reply and finish the rows in one transaction. Shell commands get no card."""
        card = None
        if reply.card is not None and not is_quiet(row.incoming):
            card = await self.courier.prepare(reply.card)
        key = reply.key or f"reply:{row.id}"
        async with self.db.write() as tx:
            # The owner of a card with its own key may have updated it already, so a reply only
            # creates it.
            introduces = bool(reply.key) and not reply.in_place
            if introduces and await self.courier.exists(tx, key):
                card = None
            if card is not None:
                await self.courier.post(
                    tx,
                    row.chat_id,
                    card,
                    key=key,
                    urgency=reply.urgency,
                    reply_to=_reply_to(row),
                )
            ids, now = [each.id for each in rows], self.clock.now()
            if error:
                await self.inbox.mark_failed(tx, ids, error=error, now=now)
            else:
                await self.inbox.mark_handled(tx, ids, now=now)
        if card is not None:
            self.courier.wake()

    async def _give_up(self, row: InboxRow, rows: Sequence[InboxRow], attempts: int) -> Reply:
        """Skip the rows and send an apology."""
        log.error("Inbox %s is given up after %s attempts", row.id, attempts)
        words = await self.load_words(row)
        text = words("mail.apology", n=attempts, number=row.id)
        sorry = Card(tone=CardTone.BAD, blocks=(TextBlock(text),))
        reply = Reply(card=sorry, toast=words("mail.failed"), good=False)
        error = f"failed {attempts} times"
        await self._retry_while_store_fails(
            lambda: self._store_reply(row, rows, reply, error=error)
        )
        return reply

    async def _notify_missing_files(self, row: InboxRow, missing: Sequence[MissingFile]) -> None:
        words = await self.load_words(row)
        lines = [
            words(
                "mail.file_too_large" if each.too_large else "mail.file_not_fetched",
                name=each.name or words("mail.attachment"),
            )
            for each in missing
        ]
        await self.notify(row, "\n\n".join(lines), key=f"files:{row.id}")

    @asynccontextmanager
    async def _typing_indicator(self, row: InboxRow) -> AsyncIterator[None]:
        """Show a typing indicator if handling takes noticeable time."""
        if not isinstance(row.incoming, IncomingMessage) or row.incoming.quiet:
            yield
            return
        task = asyncio.create_task(
            self._show_typing(_chat_for_typing(row)), name=f"typing {row.id}"
        )
        try:
            yield
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Exception):
                log.debug("The typing indicator could not be shown", exc_info=ended)

    async def _show_typing(self, chat: Chat) -> None:
        await self.clock.sleep(_TYPING_DELAY)
        while True:
            await self.outbox_sender.show_typing(chat)
            await self.clock.sleep(_TYPING_INTERVAL)

    async def _retry_while_store_fails(self, work: Callable[[], Awaitable[_T]]) -> _T:
        delays = chain(_STORE_RETRY_DELAYS, repeat(_STORE_RETRY_DELAYS[-1]))
        return await retry_until_stored(work, self.clock.sleep, "a message", delays)


def _has_attachments(row: InboxRow) -> bool:
    return isinstance(row.incoming, IncomingMessage) and bool(row.incoming.attachments)


def _message_text(row: InboxRow) -> str:
    return row.incoming.text.strip() if isinstance(row.incoming, IncomingMessage) else ""


def _reply_to(row: InboxRow) -> str:
    said = row.incoming
    if isinstance(said, IncomingMessage) and said.place.kind is ChatKind.GROUP:
        return said.message_id
    return ""


def _chat_for_typing(row: InboxRow) -> Chat:
    """A partial chat, as the indicator needs no read that the reply would cancel."""
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
