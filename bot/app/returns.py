"""What became of a task reaches an owner where the chat that asked cannot be written to."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from cards.card_json import BadCard, load_card
from cards.courier import Courier
from cards.model import Card, Note
from cards.words import Words, words_for
from handlers.language import read_in
from storage.mail.chats import Chats
from storage.mail.outbox import Try
from storage.people import People
from storage.records.messages import Urgency
from storage.records.people import Chat, Language, Role

log = logging.getLogger(__name__)

_ENDING = re.compile(r"task:[^:]+:end:")


class Returns:
    """Told of each letter whose chat is closed to us, before that letter is given up. `language`
    is the one all cards are written in, None for each reader's own."""

    def __init__(
        self, *, chats: Chats, people: People, courier: Courier, language: Language | None
    ) -> None:
        self._chats = chats
        self._people = people
        self._courier = courier
        self._language = language

    async def __call__(self, tried: Try) -> None:
        """Show it to every owner in private. Doing so again changes nothing."""
        if not _ENDING.match(tried.row.key):
            return
        try:
            card = load_card(tried.row.card)
        except BadCard:
            log.warning("Outbox %s cannot be handed on: another version wrote it", tried.row.id)
            return
        for chat in await self._chats.private(Role.OWNER):
            if chat.external_id != tried.chat.external_id or chat.channel != tried.chat.channel:
                await self._courier.send(
                    chat.id,
                    _returned(card, tried.chat, await self._words(chat)),
                    key=f"returned:{tried.row.id}:{chat.id}",
                    urgency=Urgency.ANSWER,
                )

    async def _words(self, chat: Chat) -> Words:
        spoken = self._language or await read_in(self._people, chat)
        return words_for(spoken or Language.ENGLISH)


def _returned(card: Card, asked: Chat, words: Words) -> Card:
    note = words("mail.returned", chat=asked.title or asked.external_id)
    return replace(card, blocks=(*card.blocks, Note(markdown=note)), fallback="")
