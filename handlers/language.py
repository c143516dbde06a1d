"""Determines the language a person reads: their choice, or a guess from their messages."""

from __future__ import annotations

import logging
import re

from cards.model import ButtonsBlock, Card
from handlers.ports import PeoplePort
from storage.errors import StorageError
from storage.records.people import Chat, ChatId, Language, PersonId
from storage.records.tasks import Task

log = logging.getLogger(__name__)

# Enough to tell; longer texts must not cost more.
_MAX_GUESSED_CHARACTERS = 2000
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
_MIN_WORDS = 2
_COMMAND = re.compile(r"^\s*[/／]\S+")


def guess_language(text: str) -> Language | None:
    """Guess by script; None if the text does not tell, as with bare commands and ids."""
    looked_at = text[:_MAX_GUESSED_CHARACTERS]
    if _HAN.search(looked_at):
        return Language.CHINESE
    words = _LATIN_WORD.findall(_COMMAND.sub("", looked_at))
    return Language.ENGLISH if len(words) >= _MIN_WORDS else None


async def language_of_chat(people: PeoplePort, chat: Chat) -> Language | None:
    """The language of the chat's reader; None if not known yet."""
    partner = await people.get(chat.person_id) if chat.person_id else None
    own = partner.language if partner else None
    return own or chat.settings.language or chat.settings.client_language


class ChatLanguageResolver:
    """The language of what is sent to a chat unasked: `fixed` if given, else that of the chat's
    reader, else English."""

    def __init__(self, people: PeoplePort, fixed: Language | None) -> None:
        self._people = people
        self._fixed = fixed

    async def __call__(self, chat: Chat) -> Language:
        return self._fixed or await language_of_chat(self._people, chat) or Language.ENGLISH


class CardLanguageResolver:
    """The language of a transport's additions to a card: `fixed` if given, else that of the chat's
    reader, else that of the card. Never raises."""

    def __init__(self, people: PeoplePort, fixed: Language | None) -> None:
        self._people = people
        self._fixed = fixed

    async def __call__(self, chat: Chat, card: Card) -> Language:
        if self._fixed is not None:
            return self._fixed
        try:
            language = await language_of_chat(self._people, chat)
        except StorageError as error:
            log.warning("Cannot look up the readers of chat %s: %s", chat.id, error)
            language = chat.settings.language
        return language or _language_of_card(card) or Language.ENGLISH


class TaskLanguageResolver:
    """The language of a task's cards: `fixed` if given, otherwise the chat's, the creator's, that
    of the instruction, or of the creator's app."""

    def __init__(self, people: PeoplePort, fixed: Language | None) -> None:
        self._people = people
        self._fixed = fixed

    async def __call__(self, task: Task) -> Language:
        return await self.resolve(task.chat_id, task.created_by, task.instruction)

    async def resolve(self, chat_id: ChatId, person_id: PersonId, text: str) -> Language:
        """For anything that a person has asked for in a chat, with this text, if any."""
        if self._fixed is not None:
            return self._fixed
        chosen = (await self._people.get_chat(chat_id)).settings
        if chosen.language is not None:
            return chosen.language
        person = await self._people.get(person_id)
        told = person.language or guess_language(text)
        return told or chosen.client_language or Language.ENGLISH


def _language_of_card(card: Card) -> Language | None:
    """By Shiftboss's own texts first: titles may contain a person's words."""
    buttons = [
        each for block in card.blocks if isinstance(block, ButtonsBlock) for each in block.items
    ]
    texts = (" ".join(each.label for each in buttons), card.title, card.fallback)
    return next((language for text in texts if (language := guess_language(text))), None)
