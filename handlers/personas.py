"""Handles the personas of chats and tasks."""

from __future__ import annotations

from typing import Any

from cards import formats
from cards.model import Card
from cards.views.personas import persona_card, personas_card
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request, check_may_choose
from storage.records.people import ChatSettings
from storage.records.workers import DEFAULT_PERSONA, PersonaInfo, PersonaList

_AUTO_WORDS = {"auto", "自动", "default", "默认"}
_MAX_NAME = 40


def is_auto_word(word: str) -> bool:
    return word.strip().casefold() in _AUTO_WORDS


def find_persona(roster: PersonaList, name: str) -> PersonaInfo:
    persona = roster.find(name)
    if persona is None:
        names = " · ".join(f"`{each.name}`" for each in roster.personas)
        raise UserError("unknown_persona", name=formats.single_line(name, _MAX_NAME), names=names)
    return persona


async def persona_for_task(request: Request, name: str) -> str:
    """The persona of a new task: the one requested, else the chat's, else empty."""
    if not name:
        return request.chat.settings.persona
    if is_auto_word(name):
        return DEFAULT_PERSONA
    return find_persona(await request.services.personas.roster(), name).name


commands = CommandRegistry("talk")

_SHOW_WORDS = {"show", "查看"}


@commands("persona", aliases=("角色", "人设"), immediate=True, verbatim=True)
async def manage_persona(request: Request) -> Reply:
    word, _, rest = request.args.strip().partition(" ")
    roster = await request.services.personas.roster()
    if word.casefold() in _SHOW_WORDS:
        if not rest.strip():
            raise UsageError("persona")
        persona = find_persona(roster, rest)
        return Reply(card=persona_card(persona, request.words), data=_persona_data(persona))
    if not word:
        return _personas_reply(request, roster, request.chat.settings)
    return _personas_reply(
        request, roster, await _save_persona(request, roster, request.args), changed=True
    )


async def choose_persona(request: Request, name: str) -> Card:
    """Choose a persona by the card."""
    roster = await request.services.personas.roster()
    settings = await _save_persona(request, roster, name)
    return personas_card(roster, _current_persona(roster, settings), request.words, changed=True)


def _personas_reply(
    request: Request, roster: PersonaList, settings: ChatSettings, *, changed: bool = False
) -> Reply:
    current = _current_persona(roster, settings)
    data = {
        "persona": current.name,
        "personas": [_persona_data(each) for each in roster.personas],
        "faults": [
            {"file": each.file, "why": each.reason_key, "detail": each.detail}
            for each in roster.errors
        ],
    }
    return Reply(card=personas_card(roster, current, request.words, changed=changed), data=data)


async def _save_persona(request: Request, roster: PersonaList, word: str) -> ChatSettings:
    await check_may_choose(request)
    auto = is_auto_word(word)
    name = "" if auto else find_persona(roster, word).name
    return (await request.services.people.update_chat_settings(request.chat, persona=name)).settings


def _current_persona(roster: PersonaList, settings: ChatSettings) -> PersonaInfo:
    """The chat's persona, or the default if its file is gone."""
    return roster.find(settings.persona or DEFAULT_PERSONA) or roster.personas[0]


def _persona_data(each: PersonaInfo) -> dict[str, Any]:
    return {
        "name": each.name,
        "title": dict(each.titles),
        "about": dict(each.descriptions),
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
