"""Earlier conversations, as workers look back into them and new ones begin with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.account import Account
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.workbench import Job
from bot.engine.dispatch.rights import Rights
from bot.engine.llm.base import Tool
from bot.engine.memory.archive.carrying import Carrying
from bot.engine.memory.archive.compactor import Growth
from bot.engine.memory.archive.finding.sorting import Order
from bot.engine.memory.archive.looking import SPOKEN, Looking
from bot.engine.memory.archive.tools import Ears, history_tools
from bot.engine.memory.archive.words import Reading
from handlers.services.histories import PastLine, PastLines
from storage.agents.helpers import HelperRepo
from storage.memory.archive.debts import DebtRepo
from storage.memory.archive.hearing import Hearing
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.memory.archive import Line, Speaker
from storage.records.people import Chat, ChatId, ChatKind, Person, PersonId
from storage.records.tasks import TaskId
from storage.work.tasks import Sight

_CHAT, _TASK, _HELPER = "chat:", "task:", "helper:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    settings: Settings
    store: Store
    looking: Looking
    carrying: Carrying
    growth: Growth

    def tools(self, job: Job, _persona: Persona) -> Sequence[Tool]:
        async def hear() -> Hearing:
            return await self.hearing(job.account)

        return history_tools(Ears(looking=self.looking, hear=hear, zone=self.settings.zone))

    async def carried(self, job: Job, _persona: Persona) -> str:
        """See `workbench.Briefing`."""
        if job.depth:
            return ""  # a helper's task is told in whole, and its session is the only one
        return await self.carrying.lines(job.session.id, work=not job.is_talk)

    async def hearing(self, account: Account) -> Hearing:
        """A task's worker hears what all may hear who see the task."""
        if account.task is not None:
            task = await self.store.work.tasks.get(account.task)
            sight = await Rights(self.store.people.chat).sight_of(task)
            return Hearing(chat=sight.chat, person=sight.person, sight=sight)
        return await self.heard_by(account.person, account.chat)

    async def task_of_helper(self, helper_id: str) -> TaskId | None:
        return (await HelperRepo(self.store.db).get(helper_id)).task_id

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
        carrying=Carrying(said, summaries, reading, settings.zone),
        growth=Growth(),
    )


class HistoryService:
    """Satisfies `handlers.services.histories.Histories`. What is shown passes `mask`."""

    def __init__(self, past: Past, now: Callable[[], datetime], mask: Callable[[str], str]) -> None:
        self._past = past
        self._now = now
        self._mask = mask

    async def search(
        self, person: Person, chat: Chat, words: Sequence[str], limit: int
    ) -> PastLines:
        hearing = await self._past.heard_by(person.id, chat.id)
        looking = self._past.looking
        watch = looking.watch()
        # Somebody who looks for words means one certain thing, not the last time it was touched
        # upon; of two that fit alike the newer one.
        order = Order.HYBRID if words else Order.RECENCY
        found = await looking.words(hearing, words, limit, roles=SPOKEN, order=order, watch=watch)
        if not found:
            found = await looking.near(hearing, words, limit, roles=SPOKEN, watch=watch)
        lines = [
            await self._line(each.line, each.snippet, chat.id, near=each.near)
            for each in found
            if each.line is not None
        ]
        return PastLines(lines=lines, cut=watch.cut)

    async def last(self, person: Person, chat: Chat, limit: int) -> Sequence[PastLine]:
        return (await self.search(person, chat, (), limit)).lines

    async def compact(self, chat: ChatId) -> bool:
        store = self._past.store
        async with store.db.write() as tx:
            session = await store.sessions.open(f"{_CHAT}{chat}", tx=tx)
            if session is not None:
                debts = DebtRepo(store.db)
                await debts.owe(tx, session.id, now=self._now(), forced=True)
        self._past.growth.bell.set()
        return session is not None

    async def _line(self, line: Line, text: str, chat: ChatId, *, near: bool) -> PastLine:
        return PastLine(
            at=line.at,
            # What a task's worker or a helper was asked, the program has put together.
            by_bot=line.role is Speaker.ASSISTANT or not line.key.startswith(_CHAT),
            text=self._mask(text),
            ref=f"{line.session_id}#{line.message}",
            task=await self._task(line.key),
            near=near,
            elsewhere=line.key != f"{_CHAT}{chat}",
        )

    async def _task(self, key: str) -> str:
        """Whose worker, or helper, it was said by; empty for talk."""
        if key.startswith(_HELPER):
            return await self._past.task_of_helper(key.removeprefix(_HELPER)) or ""
        found = key.removeprefix(_TASK) if key.startswith(_TASK) else ""
        return found.partition(":")[0].partition("/")[0]
