"""Answers in the making, on their way to the screen: newest text only, never stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from bot.transports.base import DeliveryError, LanguageOf, Letter, Transport
from cards.card_json import BadCard, load_card
from cards.model import Card
from storage.mail.outbox import Outbox
from storage.records.messages import OutboxId, OutboxRow, Urgency
from storage.records.people import Channel, Chat, ChatKind, Language

log = logging.getLogger(__name__)


def drafts(chat: Chat) -> bool:
    """True where the platform shows an answer in the making before there is a message."""
    return chat.channel is Channel.TELEGRAM and chat.kind is ChatKind.PRIVATE


class Streams:
    """`rests` says where nothing that is only for the eye may go now."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        transports: Mapping[Channel, Transport],
        rests: Callable[[Chat], bool],
        language_of: LanguageOf,
    ) -> None:
        self._outbox = outbox
        self._transports = transports
        self._rests = rests
        self._language_of = language_of
        self._newest: dict[OutboxId, str] = {}
        self._tasks: dict[OutboxId, asyncio.Task[None]] = {}
        self._poked: set[OutboxId] = set()

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close)

    def show(self, outbox_id: OutboxId, markdown: str) -> None:
        """Take the newest text; it goes out as soon as the one before is out."""
        self._newest[outbox_id] = markdown
        self.resume(outbox_id)

    def resume(self, outbox_id: OutboxId) -> None:
        """What waited for its message to be placed may go on."""
        if outbox_id in self._tasks:
            self._poked.add(outbox_id)
        elif outbox_id in self._newest:
            task = asyncio.create_task(self._run(outbox_id), name=f"stream {outbox_id}")
            self._tasks[outbox_id] = task

    def end(self, outbox_id: OutboxId) -> None:
        """The answer is there: what was in the making is of no interest any more."""
        self._newest.pop(outbox_id, None)

    async def _run(self, outbox_id: OutboxId) -> None:
        try:
            while outbox_id in self._newest and await self._push(outbox_id):
                self._poked.discard(outbox_id)
        except DeliveryError as error:
            log.debug("A stream ends early (outbox %s): %s", outbox_id, error)
            self._newest.pop(outbox_id, None)
        # The boundary of answers in the making: they are for the eye, and must fail nobody.
        except Exception:
            log.exception("An answer in the making could not be shown (outbox %s)", outbox_id)
            self._newest.pop(outbox_id, None)
        finally:
            del self._tasks[outbox_id]
            if outbox_id in self._poked:
                self._poked.discard(outbox_id)
                self.resume(outbox_id)

    async def _push(self, outbox_id: OutboxId) -> bool:
        """Show the newest text; False if it has to wait for its message to be placed."""
        found = await self._outbox.get(outbox_id)
        if found is None:
            self._newest.pop(outbox_id, None)
            return False
        row, chat = found
        if row.placed is None and not drafts(chat):
            return False
        markdown = self._newest.pop(outbox_id, None)
        if markdown is None or self._rests(chat):
            return True
        # The answer's own words tell the language where nothing is there to tell it yet.
        shown = Card(fallback=markdown)
        letter = _letter(row, chat, await self._language_of(chat, shown))
        await self._transports[chat.channel].stream(letter, markdown)
        return True

    async def _close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _letter(row: OutboxRow, chat: Chat, language: Language) -> Letter:
    return Letter(
        outbox_id=row.id,
        chat=chat,
        card=_card(row),
        revision=row.revision,
        urgency=Urgency.PROGRESS,
        uuid="",
        reply_to=row.reply_to,
        placed=row.placed,
        language=language,
    )


def _card(row: OutboxRow) -> Card:
    try:
        return load_card(row.card) if row.revision else Card()
    except BadCard:
        return Card()
