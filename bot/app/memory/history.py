"""Earlier conversations, as workers look back into them and new ones begin with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.account import Account
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Job
from bot.engine.dispatch.rights import Rights
from bot.engine.llm.base import Tool
from bot.engine.memory.archive.carrying import Carrying
from bot.engine.memory.archive.looking import Looking
from bot.engine.memory.archive.reading import Reading
from bot.engine.memory.archive.tools import Ears, history_tools
from storage.memory.archive.hearing import Hearing
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.people import ChatId, ChatKind, PersonId
from storage.work.tasks import Sight


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    settings: Settings
    store: Store
    looking: Looking
    carrying: Carrying

    def tools(self, job: Job, _persona: Persona) -> Sequence[Tool]:
        async def hear() -> Hearing:
            return await self.hearing(job.account)

        return history_tools(Ears(looking=self.looking, hear=hear, zone=self.settings.zone))

    async def carried(self, job: Job, _persona: Persona) -> str:
        """See `workbench.Briefing`."""
        return await self.carrying.lines(job.session.id) if job.is_talk else ""

    async def hearing(self, account: Account) -> Hearing:
        """A task's worker hears what all may hear who see the task."""
        if account.task is not None:
            task = await self.store.work.tasks.get(account.task)
            sight = await Rights(self.store.people.chat).sight_of(task)
            return Hearing(chat=sight.chat, person=sight.person, sight=sight)
        return await self.heard_by(account.person, account.chat)

    async def heard_by(self, person: PersonId | None, chat_id: ChatId | None) -> Hearing:
        """What is heard in a chat; in a group nobody's own."""
        if chat_id is None:
            return Hearing(chat=None)
        chat = await self.store.people.chat(chat_id)
        own = person if chat.kind is ChatKind.PRIVATE else None
        sight = Sight(everything=False, person=own, chat=chat_id)
        return Hearing(chat=chat_id, person=own, sight=sight)


def build_past(settings: Settings, store: Store) -> Past:
    said, summaries = ArchiveRepo(store.db), SummaryRepo(store.db)
    reading = Reading(store.db, said)
    return Past(
        settings=settings,
        store=store,
        looking=Looking(said, summaries, reading),
        carrying=Carrying(said, reading, settings.zone),
    )
