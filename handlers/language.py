"""Which language a person reads: what they chose, or what they write lets guess."""

from __future__ import annotations

import logging
import re

from cards.model import Buttons, Card
from handlers.ports import People
from storage.errors import StorageError
from storage.records.people import Chat, Language

log = logging.getLogger(__name__)

# Enough to tell; guessing must not cost more for a longer text.
_LOOKED_AT = 2000
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
_FEW_WORDS = 2
_COMMAND = re.compile(r"^\s*[/／]\S+")


def guessed(text: str) -> Language | None:
    """By script; None where the text does not tell, as with bare commands and ids."""
    looked_at = text[:_LOOKED_AT]
    if _HAN.search(looked_at):
        return Language.CHINESE
    words = _LATIN_WORD.findall(_COMMAND.sub("", looked_at))
    return Language.ENGLISH if len(words) >= _FEW_WORDS else None


def hinted(hint: str) -> Language | None:
    """What a platform says of its user's language: `zh-hans`, `en-GB`."""
    match hint.casefold().replace("_", "-").partition("-")[0]:
        case "zh":
            return Language.CHINESE
        case "en":
            return Language.ENGLISH
        case _:
            return None


async def read_in(people: People, chat: Chat) -> Language | None:
    """The language of whoever reads in that chat; None where nobody has shown it yet."""
    partner = await people.get(chat.person_id) if chat.person_id else None
    return (partner.language if partner else None) or chat.settings.language


class LanguageOfLetters:
    """The language of what a transport adds to a card by itself: `fixed` if given, else that of
    whoever reads in the chat, else the one the card is written in. It never raises."""

    def __init__(self, people: People, fixed: Language | None) -> None:
        self._people = people
        self._fixed = fixed

    async def __call__(self, chat: Chat, card: Card) -> Language:
        if self._fixed is not None:
            return self._fixed
        try:
            spoken = await read_in(self._people, chat)
        except StorageError as error:
            log.warning("Who reads in chat %s cannot be looked up: %s", chat.id, error)
            spoken = chat.settings.language
        return spoken or _written_in(card) or Language.ENGLISH


def _written_in(card: Card) -> Language | None:
    """By what is the program's own first: titles may hold somebody's words."""
    buttons = [each for block in card.blocks if isinstance(block, Buttons) for each in block.items]
    texts = (" ".join(each.label for each in buttons), card.title, card.fallback)
    return next((found for text in texts if (found := guessed(text))), None)
