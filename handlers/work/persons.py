"""How commands name who does the work."""

from __future__ import annotations

from cards import formats
from handlers.errors import UserError
from handlers.request import Request
from storage.records.personas import DEFAULT, Portrait, Roster

_AUTO = {"auto", "自动", "default", "默认"}
_NAME = 40


def is_auto(word: str) -> bool:
    return word.strip().casefold() in _AUTO


def found_persona(roster: Roster, wanted: str) -> Portrait:
    found = roster.find(wanted)
    if found is None:
        names = " · ".join(f"`{each.name}`" for each in roster.personas)
        raise UserError("unknown_persona", name=formats.line(wanted, _NAME), names=names)
    return found


async def chosen_for_task(request: Request, wanted: str) -> str:
    """The name of who does a new task: the one asked for, else the chat's; empty for neither."""
    if not wanted:
        return request.chat.settings.persona
    if is_auto(wanted):
        return DEFAULT
    return found_persona(await request.services.personas.roster(), wanted).name
