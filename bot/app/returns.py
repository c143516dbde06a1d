"""What became of a task reaches an owner where the chat that asked cannot be written to."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from cards.card_json import BadCard, load_card
from cards.courier import Courier
from cards.model import Card, Note
from cards.words import Words, words_for
from storage.mail.chats import Chats
from storage.mail.outbox import Try
from storage.people import People
from storage.records.messages import Urgency
from storage.records.people import Chat, Language, Role

log = logging.getLogger(__name__)

_ENDING = re.compile(r"task:[^:]+:end:")


class Returns:
    """Told of each letter whose chat is closed to us, before that letter is given up."""

    def __init__(self, *, chats: Chats, people: People, courier: Courier) -> None:
        self._chats = chats
        self._people = people
        self._courier = courier

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
        partner = await self._people.get(chat.person_id) if chat.person_id else None
        spoken = partner.language if partner else None
        return words_for(spoken or chat.settings.language or Language.ENGLISH)


def _returned(card: Card, asked: Chat, words: Words) -> Card:
    note = words("mail.returned", chat=asked.title or asked.external_id)
    return replace(card, blocks=(*card.blocks, Note(markdown=note)), fallback="")
