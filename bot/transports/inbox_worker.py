"""Handles one incoming message: counts the attempt, downloads files, routes it, and stores the
reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TypeVar

from bot.transports.chat_queue import MessageRows, is_joined, is_quiet, merge_rows
from bot.transports.files import AttachmentFetcher, FetchedFiles, MissingFile
from bot.transports.outbox import OutboxCourier
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import Clock, IncomingRouter
from bot.transports.reply_relay import dump_reply
from bot.transports.sanitize import detect_language
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.model import Card, CardTone, TextBlock
from handlers.request import Reply, Silence
from storage.db import Database, Transaction, retry_until_stored
from storage.errors import StoreUnavailable
from storage.messages.chats import ChatRepo
from storage.messages.inbox import InboxRepo
from storage.records.messages import (
    WAITS_OUTCOME,
    DeliveryUrgency,
    InboxId,
    InboxRow,
    IncomingMessage,
    IncomingPress,
)
from storage.records.people import Chat, ChatKind, ChatSettings, Language

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Failures before a message is skipped."""

MAX_ATTEMPTS = 6
"""Attempts before a message is skipped, including those ended by a crash or restart. Higher than
`MAX_FAILURES`, since few crashes are caused by a message."""

_RETRY_DELAYS = (1.0, 5.0)
_STORE_RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)
_MAX_QUOTE = 120
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
    on_reply: Callable[[InboxRow, Reply], None] = lambda _row, _reply: None
    _relayed: set[InboxId] = field(default_factory=set, init=False)
    _first_attempts: set[InboxId] = field(default_factory=set, init=False)
    _shown_waiting: set[InboxId] = field(default_factory=set, init=False)

    async def handle(
        self,
        rows: MessageRows,
        interrupted: Sequence[MessageRows] = (),
        *,
        shows_toast: bool = False,
    ) -> Reply:
        """Handle rows as one message, together with those that it interrupted. After `MAX_FAILURES`
        or `MAX_ATTEMPTS` they are skipped with an apology. `shows_toast`: a person waits for the
        reply's toast. Never raises."""
        row, failures = merge_rows(rows), 0
        while failures < MAX_FAILURES + len(_RETRY_DELAYS):
            attempt = await self.retry_while_store_fails(lambda: self._start_attempt(row))
            if not attempt:
                break
            try:
                if failures >= MAX_FAILURES or attempt > MAX_ATTEMPTS:
                    return await self._give_up(row, rows, attempt - 1)
                return await self._attempt(row, rows, interrupted, shows_toast=shows_toast)
            # Error boundary: one message must not stop the next ones.
            except Exception:
                failures += 1
                log.exception("Handling inbox %s failed, attempt %s", row.id, attempt)
                if failures < MAX_FAILURES:
                    await self.clock.sleep(_RETRY_DELAYS[failures - 1])
        return Reply()

    def note_first_attempt(self, row: InboxRow) -> None:
        """Record that the first attempt was counted when the row was stored."""
        self._first_attempts.add(row.id)

    def note_relayed(self, row: InboxRow) -> None:
        """Record that another process has stored the row and may wait for its reply."""
        self._relayed.add(row.id)

    async def load_words(self, row: InboxRow) -> TextCatalog:
        """The texts for replies to this message, in its language."""
        chat = await self.chats.get(row.chat_id)
        language = chat.settings.language or detect_language(row.incoming)
        return catalog_for(language or Language.ENGLISH)

    async def notify(self, row: InboxRow, text: str, *, key: str) -> None:
        """Send a note in addition to the reply."""
        card = Card(blocks=(TextBlock(text),))
        reply_to = _reply_to(row)
        await self.retry_while_store_fails(
            lambda: self.courier.send(
                row.chat_id, card, key=key, urgency=DeliveryUrgency.ANSWER, reply_to=reply_to
            )
        )

    async def show_waiting(self, row: InboxRow) -> None:
        """Show in the place of the answer that the message waits, unless its turn is over."""
        text = await self.router.waiting_notice(row)
        if not text:
            return
        try:
            async with self.db.write() as tx:
                if await self.inbox.mark_waiting(tx, row.id):
                    self._shown_waiting.add(row.id)
                    await self._post_notice(tx, row, text)
        except StoreUnavailable as error:
            # The message waits nevertheless.
            log.warning("The waiting status of a message cannot be shown: %s", error)
        self.courier.wake()

    async def end_waiting(self, tx: Transaction, row: InboxRow, text: str) -> None:
        """Replace the notice that the message waits, if there is one, before it is settled. The
        caller wakes the courier after the commit."""
        if await self.inbox.find_waiting(tx, [row.id]):
            await self._post_notice(tx, row, text)

    async def _post_notice(self, tx: Transaction, row: InboxRow, text: str) -> None:
        await self.courier.post(
            tx,
            row.chat_id,
            await self.courier.prepare(Card(blocks=(TextBlock(text),))),
            key=f"reply:{row.id}",
            urgency=DeliveryUrgency.ANSWER,
            reply_to=_reply_to(row),
        )

    async def _start_attempt(self, row: InboxRow) -> int:
        if row.id in self._first_attempts:
            self._first_attempts.discard(row.id)
            return row.attempts
        return await self.inbox.count_attempt(row.id)

    async def _attempt(
        self,
        row: InboxRow,
        rows: MessageRows,
        interrupted: Sequence[MessageRows],
        *,
        shows_toast: bool,
    ) -> Reply:
        key = f"reply:{row.id}"
        if not is_quiet(row.incoming):
            self.courier.expect_answer(key, row.chat_id, reply_to=_reply_to(row))
        try:
            async with self._typing_indicator(row):
                fetched = await self._fetch_attachments(row, rows)
                if fetched.missing:
                    await self._notify_missing_files(row, fetched.missing)
                if fetched.files or not fetched.missing or _message_text(row):
                    # Those with files are answered by themselves.
                    earlier = tuple(
                        merge_rows(each)
                        for each in interrupted
                        if not any(map(_has_attachments, each))
                    )
                    missing = [each.name for each in fetched.missing]
                    reply = await self.router.handle(row, fetched.files, earlier, missing)
                    self.on_reply(row, reply)
                else:
                    reply = Reply(key=_files_key(row))
            if reply.silence is Silence.INTERRUPTED:
                await self.retry_while_store_fails(lambda: self.inbox.forget_attempt(row.id))
            else:
                if not (shows_toast and reply.toast):
                    reply = await self._with_card(row, reply)
                answered = [rows, *(each for each in interrupted if is_joined(each, reply))]
                await self.retry_while_store_fails(lambda: self._store_reply(row, answered, reply))
        finally:
            self.courier.cancel_expected(key)
        return reply

    async def _with_card(self, row: InboxRow, reply: Reply) -> Reply:
        """The reply with a card: every message is answered where people see it, and so is a press
        whose toast can no longer be shown.
        """
        silent = reply.silence is not None or is_quiet(row.incoming)
        if reply.card is not None or reply.key or silent:
            return reply
        text = reply.toast
        if not text and not isinstance(row.incoming, IncomingMessage):
            return reply
        if not text:
            log.error("Inbox %s was handled without a reply", row.id)
            text = (await self.load_words(row))("mail.no_reply", text=_quote(row))
        return replace(reply, card=Card(blocks=(TextBlock(text),)))

    async def _fetch_attachments(self, row: InboxRow, rows: MessageRows) -> FetchedFiles:
        said = row.incoming
        # Without files the sender need not be looked up here: the router does it anyway.
        if not isinstance(said, IncomingMessage) or not any(map(_has_attachments, rows)):
            return FetchedFiles()
        if not await self.router.is_known_sender(said):
            return FetchedFiles()
        return await self.attachments.fetch(rows)

    async def _store_reply(
        self, row: InboxRow, answered: Sequence[MessageRows], reply: Reply, *, error: str = ""
    ) -> None:
        """Store the reply and finish the rows in one transaction. Shell commands get no card."""
        card = None
        if reply.card is not None and not is_quiet(row.incoming):
            card = await self.courier.prepare(reply.card)
        key = reply.key or f"reply:{row.id}"
        outcomes = {each.id: f"joined {row.id}" for rows in answered for each in rows}
        outcomes[row.id] = _outcome(row, reply, key)
        ended = await self._ended_notices(row, answered, reply)
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
            for each, text in ended:
                await self.end_waiting(tx, each, text)
            if row.id in self._relayed:
                await self.inbox.put_reply(tx, row.id, dump_reply(reply))
            await self.inbox.settle(tx, outcomes, now=self.clock.now(), error=error)
        self._shown_waiting.difference_update(outcomes)
        self._relayed.difference_update(outcomes)
        if card is not None or ended:
            self.courier.wake()

    async def _ended_notices(
        self, row: InboxRow, answered: Sequence[MessageRows], reply: Reply
    ) -> Sequence[tuple[InboxRow, str]]:
        """The “waiting” messages that may be shown but get no answer in their place, each with its
        replacement. Most messages are known to have none, which spares the store.
        """
        waiting = [
            each
            for rows in answered
            for each in rows
            if each.id in self._shown_waiting or each.outcome == WAITS_OUTCOME
        ]
        if not waiting:
            return ()
        words = await self.load_words(row)
        is_elsewhere = reply.card is None or bool(reply.key)
        return [
            (each, words("queue.taken" if each.id == row.id else "queue.joined"))
            for each in waiting
            if each.id != row.id or is_elsewhere
        ]

    async def _give_up(self, row: InboxRow, rows: MessageRows, attempts: int) -> Reply:
        """Skip the rows and send an apology."""
        log.error("Inbox %s is given up after %s attempts", row.id, attempts)
        words = await self.load_words(row)
        text = words("mail.apology", n=attempts, number=row.id, text=_quote(row))
        sorry = Card(tone=CardTone.BAD, blocks=(TextBlock(text),))
        reply = Reply(card=sorry, toast=words("mail.failed"), good=False)
        error = f"failed {attempts} times"
        await self.retry_while_store_fails(
            lambda: self._store_reply(row, [rows], reply, error=error)
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
        await self.notify(row, "\n\n".join(lines), key=_files_key(row))

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

    async def retry_while_store_fails(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat the work until the store takes it."""
        delays = chain(_STORE_RETRY_DELAYS, repeat(_STORE_RETRY_DELAYS[-1]))
        return await retry_until_stored(work, self.clock.sleep, "a message", delays)


def _has_attachments(row: InboxRow) -> bool:
    return isinstance(row.incoming, IncomingMessage) and bool(row.incoming.attachments)


def _message_text(row: InboxRow) -> str:
    return row.incoming.text.strip() if isinstance(row.incoming, IncomingMessage) else ""


def _files_key(row: InboxRow) -> str:
    """The key of the note about files that could not be downloaded."""
    return f"files:{row.id}"


def _quote(row: InboxRow) -> str:
    said = row.incoming
    if not isinstance(said, IncomingMessage):
        return "…"
    text = " ".join((said.text, *(each.name for each in said.attachments)))
    return formats.escape_markdown(text, _MAX_QUOTE) or "…"


def _outcome(row: InboxRow, reply: Reply, key: str) -> str:
    """The outcome of the event, see `InboxRow.outcome`."""
    if reply.silence is not None:
        return f"silent {reply.silence}"
    if is_quiet(row.incoming):
        return "shell"
    if isinstance(row.incoming, IncomingPress) and reply.card is None:
        return "toast"
    return f"card {key}"


def _reply_to(row: InboxRow) -> str:
    said = row.incoming
    if isinstance(said, IncomingMessage) and said.place.kind is ChatKind.GROUP:
        return said.message_id
    return ""


def _chat_for_typing(row: InboxRow) -> Chat:
    """A partial chat: the typing indicator must not need a read that the reply would cancel."""
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
