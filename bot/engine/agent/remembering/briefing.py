"""What a worker is told of what is remembered, and what of it the answer has used."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from bot.engine.agent.desk import Reply
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Briefing, Job
from bot.engine.llm.answers import StepAnswer
from bot.engine.memory.scopes import Reader
from bot.engine.memory.telling.inject import Injection, Sitting, Told
from bot.engine.memory.uses import Answered, Uses
from storage.db import Transaction
from storage.errors import StorageError
from storage.records.people import Chat, ChatId
from storage.records.tasks import TaskId

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds; a chat is answered without its memories rather than late."""

_KEPT = 256

ChatOf: TypeAlias = Callable[[ChatId], Awaitable[Chat]]
ProjectOf: TypeAlias = Callable[[TaskId], Awaitable[str]]
"""The project that a task works for; empty for none."""


class Remembering:
    """`standing` and `aside` are briefings: the one at the front, the other beside what is asked.
    `book` is what the desk calls with each answer that it keeps."""

    def __init__(
        self,
        *,
        injection: Injection,
        uses: Uses,
        chat_of: ChatOf,
        project_of: ProjectOf,
        told_anyway: Briefing,
        patience: float = PATIENCE,
    ) -> None:
        self._injection = injection
        self._uses = uses
        self._chat_of = chat_of
        self._project_of = project_of
        self._told_anyway = told_anyway
        self._patience = patience
        self._stands: OrderedDict[str, Told] = OrderedDict()

    async def standing(self, job: Job, persona: Persona) -> str:
        """Helpers are told what they need by who sends them."""
        if job.depth:
            return ""

        async def look() -> Told:
            told = await self._told_anyway(job, persona)
            return await self._injection.standing(await self.reader(job, persona), told)

        told = await self._in_time(look)
        self._stands[job.session.id] = told
        while len(self._stands) > _KEPT:
            self._stands.popitem(last=False)
        self._uses.stand(job.session.id, job.text, told.shown)
        return told.text

    async def aside(self, job: Job, persona: Persona) -> str:
        if job.depth:
            return ""
        stands = self._stands.pop(job.session.id, Told())

        async def look() -> Told:
            told = await self._told_anyway(job, persona)
            reader = await self.reader(job, persona)
            return await self._injection.aside(reader, job.text, _sitting(job), stands, told)

        told = await self._in_time(look)
        self._uses.stand(job.session.id, job.text, (*stands.shown, *told.shown))
        return told.text

    async def book(self, tx: Transaction, reply: Reply) -> None:
        """Note with the answer what stood before it."""
        value = reply.result.value
        said = value.summary if isinstance(value, StepAnswer) else ""
        await self._uses.book(
            tx,
            Answered(
                session=reply.session.id,
                turn=reply.session.turns + 1,
                chat=reply.bill.chat_id,
                task=reply.bill.task_id,
                text=f"{reply.result.text}\n{said}",
                at=reply.bill.at,
                goes_on=reply.answered,
            ),
        )

    async def reader(self, job: Job, persona: Persona) -> Reader:
        """Who hears what this worker says."""
        who = job.account
        chat = await self._chat_of(who.chat) if who.chat else None
        if who.task is not None:
            project = await self._project_of(who.task)
        else:
            project = "" if chat is None else chat.settings.project
        return Reader(
            chat=chat,
            person=who.person,
            project=project,
            skill=job.skill,
            agent=persona.name,
        )

    async def _in_time(self, look: Callable[[], Awaitable[Told]]) -> Told:
        try:
            async with asyncio.timeout(self._patience):
                return await look()
        except (TimeoutError, StorageError) as error:
            log.warning("nothing is remembered this time: %r", error)
            return Told()


def _sitting(job: Job) -> Sitting:
    return Sitting(
        id=job.session.id,
        turns=job.session.turns,
        started_at=job.session.started_at,
        chat=job.account.chat if job.is_talk else None,
    )
