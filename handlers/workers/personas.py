"""Who does the work of a chat, or of one task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cards.model import Card
from cards.views.workers.personas import persona_card, personas_card
from handlers.access.choosing import check_choice
from handlers.errors import Usage
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.persons import found_persona, is_auto
from storage.records.people import ChatSettings
from storage.records.personas import DEFAULT, Portrait, Roster

commands = Commands("talk")

_SHOW = {"show", "查看"}


@commands(
    "persona",
    usage="[name|show name|auto]",
    aliases=("角色", "人设"),
    immediate=True,
    verbatim=True,
)
async def persona(request: Request) -> Reply:
    """Show or choose who does the work in this chat."""
    word, _, rest = request.args.strip().partition(" ")
    roster = await request.services.personas.roster()
    if word.casefold() in _SHOW:
        if not rest.strip():
            raise Usage("persona")
        shown = found_persona(roster, rest)
        return Reply(card=persona_card(shown, request.words), data=_data(shown))
    if not word:
        return _listed(request, roster, request.chat.settings)
    return _listed(request, roster, await _adjusted(request, roster, request.args), changed=True)


async def pick_persona(request: Request, name: str) -> Card:
    """Somebody was picked on a card."""
    roster = await request.services.personas.roster()
    settings = await _adjusted(request, roster, name)
    return personas_card(roster, _current(roster, settings), request.words, changed=True)


def _listed(
    request: Request, roster: Roster, settings: ChatSettings, *, changed: bool = False
) -> Reply:
    current = _current(roster, settings)
    data = {
        "persona": current.name,
        "personas": [_data(each) for each in roster.personas],
        "faults": [
            {"file": each.file, "why": each.why, "detail": each.detail} for each in roster.faults
        ],
    }
    return Reply(card=personas_card(roster, current, request.words, changed=changed), data=data)


async def _adjusted(request: Request, roster: Roster, wanted: str) -> ChatSettings:
    await check_choice(request)
    auto = is_auto(wanted)
    name = "" if auto else found_persona(roster, wanted).name
    settings = replace(request.chat.settings, persona=name)
    return (await request.services.people.adjust(request.chat, settings)).settings


def _current(roster: Roster, settings: ChatSettings) -> Portrait:
    """Who works here: also where the file of the one chosen has gone."""
    return roster.find(settings.persona or DEFAULT) or roster.personas[0]


def _data(each: Portrait) -> dict[str, Any]:
    return {
        "name": each.name,
        "title": dict(each.title),
        "about": dict(each.about),
        "mode": each.mode,
        "tools": list(each.tools),
        "denied": list(each.denied),
        "skills": list(each.skills),
        "servers": list(each.servers),
        "backend": each.backend,
        "model": each.model,
        "traits": dict(each.traits),
        "source": each.source,
    }
