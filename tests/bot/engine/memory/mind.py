"""A store with memories in it, and what finds and tells them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.remembering.briefing import Remembering
from bot.engine.agent.talk import Conversations
from bot.engine.agent.workbench import Briefing, Job, Workbench
from bot.engine.llm.base import RunRequest, RunResult
from bot.engine.memory.episodes.finding import EpisodeFinder
from bot.engine.memory.recall import Recall, dated_words
from bot.engine.memory.scopes import Reader
from bot.engine.memory.telling.inject import Injection
from bot.engine.memory.uses import Uses
from handlers.ports import Answered, Question
from storage.ids import Ids
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.living.uses import UseRepo
from storage.records.memory.entries import Entry, MemoryKind, NewEntry, Scope, ScopeKind
from storage.records.people import Chat, ChatId, Language, Person
from storage.records.tasks import TaskId
from storage.sessions import SessionRepo
from tests.engine_world import BOSS, CHAT, CHATS, GROUP, Engine, FakeBackend, answered, engine

MINE = Scope(ScopeKind.PERSON, BOSS.id)
OURS = Scope(ScopeKind.CHAT, GROUP.id)
ALONE = Reader(chat=CHAT, person=BOSS.id)
TOGETHER = Reader(chat=GROUP, person=BOSS.id)


class Talker(FakeBackend):
    """Says what it is to say."""

    said = "As you wish."
    fails: Exception | None = None

    async def settle(self, request: RunRequest) -> RunResult:
        if self.fails is not None:
            raise self.fails
        return answered(text=self.said)


@dataclass(frozen=True, kw_only=True)
class Mind:
    world: Engine
    entries: EntryRepo
    recall: Recall
    uses: Uses
    injection: Injection
    remembering: Remembering
    talk: Conversations
    talker: Talker

    async def keep(
        self, text: str, *, kind: MemoryKind = MemoryKind.FACT, scope: Scope = MINE, **more: Any
    ) -> Entry:
        """It is remembered from now on, as something that was said just now."""
        now = self.world.clock()
        new = NewEntry(kind=kind, scope=scope, text=text, **{"said_at": now, **more})
        async with self.world.db.write() as tx:
            made = await self.entries.add(tx, new, now=now)
        assert made is not None
        return made

    async def change(self, entry: Entry) -> Entry:
        async with self.world.db.write() as tx:
            return await self.entries.change(tx, entry, now=self.world.clock())

    async def now(self, entry: Entry) -> Entry:
        return await self.entries.get(entry.id, None)

    async def ask(
        self, text: str, chat: Chat = CHAT, person: Person = BOSS, skill: str = ""
    ) -> Answered:
        question = Question(
            person=person,
            chat=chat,
            text=text,
            skill=skill,
            language=Language.ENGLISH,
            source=f"inbox:{self.world.clock().timestamp()}",
        )
        return await self.talk.answer(question, _unseen)

    @property
    def prompt(self) -> str:
        return self.talker.asked[-1].prompt

    @property
    def system(self) -> str:
        return self.talker.asked[-1].system


@asynccontextmanager
async def mind(
    home: Path,
    *,
    told_anyway: str = "",
    budget: int = 4000,
    recall: Callable[..., Recall] = Recall,
    patience: float = 5.0,
    zone: tzinfo = UTC,
    **parts: Any,
) -> AsyncGenerator[Mind, None]:
    """`parts` are those of its recall."""
    talker = Talker()
    async with engine(home, talker, running=False) as world:
        index = Index(world.db)
        entries = EntryRepo(world.db, Ids(), index)
        found = recall(
            entries=entries, index=index, words=dated_words(UTC), now=world.clock, **parts
        )
        uses = Uses(db=world.db, entries=entries, repo=UseRepo(world.db), now=world.clock)
        injection = Injection(
            entries=entries,
            recall=found,
            heard=uses.heard,
            now=world.clock,
            budget=budget,
            zone=zone,
            episodes=EpisodeFinder(entries=entries, now=world.clock, zone=UTC),
        )
        remembering = Remembering(
            injection=injection,
            uses=uses,
            chat_of=_chat_of,
            project_of=_project_of,
            told_anyway=_saying(told_anyway),
            patience=patience,
        )
        world.desk._keepers = (remembering.book,)
        yield Mind(
            world=world,
            entries=entries,
            recall=found,
            uses=uses,
            injection=injection,
            remembering=remembering,
            talk=Conversations(
                db=world.db,
                sessions=SessionRepo(world.db),
                desk=world.desk,
                home=home,
                bench=Workbench(briefings=(remembering.standing,), asides=(remembering.aside,)),
                now=world.clock,
                sleep=_at_once,
            ),
            talker=talker,
        )


async def _unseen(_text: str) -> None:
    """Nobody looks while it grows."""


async def _at_once(_seconds: float) -> None:
    """Nothing to wait for."""


async def _chat_of(chat: ChatId) -> Chat:
    return CHATS[chat]


async def _project_of(_task: TaskId) -> str:
    return "/projects/harbour"


def _saying(text: str) -> Briefing:
    async def brief(_job: Job, _persona: Persona) -> str:
        return text

    return brief
