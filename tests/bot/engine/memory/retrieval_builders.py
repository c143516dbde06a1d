"""A store with memories in it, and what finds and tells them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.memory_hooks import MemoryBriefing
from bot.engine.agent.worker_context import ContextBlock
from bot.engine.llm.backend import RunRequest, RunResult
from bot.engine.memory.access import MemoryReader
from bot.engine.memory.context_builder import MemoryContextBuilder
from bot.engine.memory.decay import UsageTracker
from bot.engine.memory.episodes import EpisodeFinder
from bot.engine.memory.retriever import MemoryRetriever, make_term_extractor
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec
from handlers.ports import ChatAnswer, ChatQuestion
from storage.ids import IdGenerator
from storage.memory.access_stats import MemoryUseRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    NewMemoryEntry,
)
from storage.records.people import Chat, ChatId, Language, Person
from storage.records.tasks import TaskId
from storage.search.inverted_index import InvertedIndex
from storage.sessions import SessionRepo
from tests.agent_builders import make_context_builder, make_conversation
from tests.engine_harness import (
    BOSS,
    CHAT,
    CHATS,
    GROUP,
    EngineHarness,
    FakeBackend,
    run_engine,
    run_result,
)
from tests.waiting import WAIT_SECONDS

MY_SCOPE = MemoryScope(MemoryScopeKind.PERSON, BOSS.id)
GROUP_SCOPE = MemoryScope(MemoryScopeKind.CHAT, GROUP.id)
PRIVATE_READER = MemoryReader(chat=CHAT, person=BOSS.id)
GROUP_READER = MemoryReader(chat=GROUP, person=BOSS.id)


class FixedAnswerBackend(FakeBackend):
    """Says what it is to say."""

    said = "As you wish."
    fails: Exception | None = None

    async def respond(self, request: RunRequest) -> RunResult:
        if self.fails is not None:
            raise self.fails
        return run_result(text=self.said)


@dataclass(frozen=True, kw_only=True)
class RetrievalSetup:
    world: EngineHarness
    entries: MemoryEntryRepo
    retriever: MemoryRetriever
    usage: UsageTracker
    context_builder: MemoryContextBuilder
    remembering: MemoryBriefing
    conversations: ConversationService
    backend: FixedAnswerBackend

    async def keep(
        self,
        text: str,
        *,
        kind: MemoryKind = MemoryKind.FACT,
        scope: MemoryScope = MY_SCOPE,
        **more: Any,
    ) -> MemoryEntry:
        """It is remembered from now on, as something that was said just now."""
        now = self.world.clock()
        new = NewMemoryEntry(kind=kind, scope=scope, text=text, **{"said_at": now, **more})
        async with self.world.db.write() as tx:
            made = await self.entries.add(tx, new, now=now)
        assert made is not None
        return made

    async def change(self, entry: MemoryEntry) -> MemoryEntry:
        async with self.world.db.write() as tx:
            return await self.entries.update(tx, entry, now=self.world.clock())

    async def reload(self, entry: MemoryEntry) -> MemoryEntry:
        return await self.entries.get(entry.id, None)

    async def ask(
        self, text: str, chat: Chat = CHAT, person: Person = BOSS, skill: str = ""
    ) -> ChatAnswer:
        question = ChatQuestion(
            person=person,
            chat=chat,
            text=text,
            skill=skill,
            language=Language.ENGLISH,
            source=f"inbox:{self.world.clock().timestamp()}",
        )
        return await self.conversations.answer(question, _ignore_text)

    @property
    def prompt(self) -> str:
        return self.backend.requests[-1].prompt

    @property
    def system(self) -> str:
        return self.backend.requests[-1].system


@asynccontextmanager
async def build_retrieval(
    home: Path,
    *,
    other_context: str = "",
    budget: int = 4000,
    retriever_type: Callable[..., MemoryRetriever] = MemoryRetriever,
    patience: float = WAIT_SECONDS,
    zone: tzinfo = UTC,
    **parts: Any,
) -> AsyncGenerator[RetrievalSetup, None]:
    """`parts` are those of its recall."""
    talker = FixedAnswerBackend()
    async with run_engine(home, talker, start_dispatcher=False) as world:
        index = InvertedIndex(world.db)
        entries = MemoryEntryRepo(world.db, IdGenerator(), index)
        found = retriever_type(
            entries=entries,
            index=index,
            extract_terms=make_term_extractor(UTC),
            now=world.clock,
            **parts,
        )
        uses = UsageTracker(
            db=world.db, entries=entries, repo=MemoryUseRepo(world.db), now=world.clock
        )
        injection = MemoryContextBuilder(
            entries=entries,
            retriever=found,
            list_injected=uses.list_injected,
            now=world.clock,
            budget=budget,
            zone=zone,
            episodes=EpisodeFinder(entries=entries, now=world.clock, zone=UTC),
        )
        remembering = MemoryBriefing(
            injection=injection,
            uses=uses,
            get_chat=_chat_of,
            get_project=_project_of,
            other_context=_fixed_briefing(other_context),
            timeout=patience,
        )
        world.gateway._reply_recorders = (remembering.record_usage,)
        yield RetrievalSetup(
            world=world,
            entries=entries,
            retriever=found,
            usage=uses,
            context_builder=injection,
            remembering=remembering,
            conversations=make_conversation(
                db=world.db,
                sessions=SessionRepo(world.db),
                gateway=world.gateway,
                data_dir=home,
                context_builder=make_context_builder(
                    system_blocks=(remembering.standing_block,),
                    prompt_blocks=(remembering.prompt_block,),
                ),
                now=world.clock,
                sleep=_no_sleep,
            ),
            backend=talker,
        )


async def _ignore_text(_text: str) -> None:
    """Nobody looks while it grows."""


async def _no_sleep(_seconds: float) -> None:
    """Nothing to wait for."""


async def _chat_of(chat: ChatId) -> Chat:
    return CHATS[chat]


async def _project_of(_task: TaskId) -> str:
    return "/projects/harbour"


def _fixed_briefing(text: str) -> ContextBlock:
    async def brief(_job: WorkerSpec, _persona: Persona) -> str:
        return text

    return brief
