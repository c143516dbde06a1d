"""What became of an order about memories, as an answer to whoever gave it."""

from __future__ import annotations

from collections.abc import Awaitable

from cards import formats
from cards.model import Tone
from cards.views.errors import notice_card
from cards.views.memory.data import entry_data
from cards.views.memory.lines import entry_words
from handlers.errors import UserError
from handlers.request import Reply, Request
from handlers.services.memory import MemoryRefused
from storage.records.memory.entries import Entry

_LINE = 200


async def answered(answer: Awaitable[Reply]) -> Reply:
    """The answer, or what to do so that there is one."""
    try:
        return await answer
    except MemoryRefused as error:
        detail = formats.line(error.detail, _LINE)
        raise UserError(f"memory_{error.reason}", detail=detail) from error


def said(request: Request, key: str, entry: Entry, **facts: object) -> Reply:
    """One line about an entry."""
    text = request.words(
        key, **{"id": entry.id, "text": entry_words(entry, request.words, _LINE), **facts}
    )
    return Reply(card=notice_card("", text, tone=Tone.GOOD), data=entry_data(entry))
