"""What a worker is told before its work: the Boss's files, the project's notes, and the project in
brief."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from bot.engine.agent.context.bootstrap import Told, bootstrap
from bot.engine.agent.context.notes import project_notes
from bot.engine.agent.context.project import mark_of, project_brief
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Job
from storage.records.context import ContextPart, PartState
from storage.records.people import Chat, ChatId, ChatKind, Person, PersonId, Role

_KEPT = 64
"""Projects, and sessions, whose brief is remembered."""

_K = TypeVar("_K")
_V = TypeVar("_V")

BRIEF = "project"
"""The name of the brief among a context's parts."""


class Context:
    """Satisfies `handlers.services.context.Contexts`; `boss`, `notes` and `brief` are briefings, in
    this order. What they say stays the same while the files do: it is cached by the models."""

    def __init__(
        self,
        home: Path,
        *,
        chat_of: Callable[[ChatId], Awaitable[Chat]],
        person_of: Callable[[PersonId], Awaitable[Person]],
    ) -> None:
        self._home = home
        self._chat_of = chat_of
        self._person_of = person_of
        self._briefs: OrderedDict[Path, tuple[tuple[int, int], str]] = OrderedDict()
        self._told: OrderedDict[str, str] = OrderedDict()

    async def boss(self, job: Job, _persona: Persona) -> str:
        private = await self._is_private(job.account.chat, job.account.person)
        told = await asyncio.to_thread(bootstrap, self._home, helper=job.depth > 0, private=private)
        return told.text

    async def notes(self, job: Job, _persona: Persona) -> str:
        folder = await self._folder(job)
        return "" if folder is None else (await self._notes(folder)).text

    async def brief(self, job: Job, _persona: Persona) -> str:
        """The same for as long as the session lasts: what a worker changes there it knows, and
        another word at the front would have the whole session read anew and paid again."""
        folder = None if job.depth else await self._folder(job)
        if folder is None:
            return ""
        told = self._told.get(job.session.id)
        if told is None:
            told = await asyncio.to_thread(self._brief, folder)
        _keep(self._told, job.session.id, told)
        return told

    async def parts(self, chat: Chat, person: Person) -> tuple[ContextPart, ...]:
        """What a worker of this person in this chat is told, and what not."""
        private = await self._is_private(chat.id, person.id)
        told = await asyncio.to_thread(bootstrap, self._home, helper=False, private=private)
        if not chat.settings.project:
            return told.parts
        folder = Path(chat.settings.project)
        notes = await self._notes(folder)
        size = len(await asyncio.to_thread(self._brief, folder))
        state = PartState.LOADED if size else PartState.MISSING
        brief = ContextPart(name=BRIEF, state=state, size=size, used=size)
        return (*told.parts, *notes.parts, brief)

    async def _notes(self, folder: Path) -> Told:
        return await asyncio.to_thread(project_notes, folder, fence=self._home)

    async def _folder(self, job: Job) -> Path | None:
        """Where a task works; a chat's project, if it has one."""
        if not job.is_talk:
            return job.workspace
        chat = await self._chat_of(job.account.chat) if job.account.chat else None
        return Path(chat.settings.project) if chat and chat.settings.project else None

    async def _is_private(self, chat_id: ChatId | None, person_id: PersonId | None) -> bool:
        """True where only an owner hears what is said: the memory is theirs."""
        if chat_id is None or person_id is None:
            return False
        person = await self._person_of(person_id)
        kind = (await self._chat_of(chat_id)).kind
        return kind is ChatKind.PRIVATE and person.role is Role.OWNER

    def _brief(self, folder: Path) -> str:
        mark = mark_of(folder)
        kept = self._briefs.get(folder)
        if kept is None or kept[0] != mark:
            kept = (mark, project_brief(folder))
        _keep(self._briefs, folder, kept)
        return kept[1]


def _keep(kept: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    """The latest of them only."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _KEPT:
        kept.popitem(last=False)
