"""How commands name a task and what goes with it."""

from __future__ import annotations

import re

from cards import formats
from handlers.errors import Usage, UserError
from handlers.request import Request
from storage.records.tasks import Task

_BETWEEN = re.compile(r"→|->|\n")
_MOST_STEPS = 10
_TITLE = 200


def id_and_rest(request: Request, command: str) -> tuple[str, str]:
    """The first word and what follows it; Usage where there is nothing."""
    first, *rest = request.args.split(maxsplit=1) or [""]
    if not first:
        raise Usage(command)
    return first, "".join(rest).strip()


async def found_task(request: Request, prefix: str) -> Task:
    return await request.services.tasks.find(prefix, by=request.person, chat=request.chat.id)


def number_of(word: str) -> int:
    """A whole number as people write it, with or without marks between thousands."""
    plain = word.replace(",", "").replace("_", "")
    if not (plain.isascii() and plain.isdigit()):
        raise UserError("bad_number", word=formats.line(word, 40) or "–")
    return min(int(plain[:18]), 10**15)


def steps_in(text: str, most: int = _MOST_STEPS) -> tuple[str, ...]:
    """Titles as people write them: one a line, or with arrows between."""
    titles = (part.strip()[:_TITLE] for part in _BETWEEN.split(text))
    return tuple(title for title in titles if title)[:most]
