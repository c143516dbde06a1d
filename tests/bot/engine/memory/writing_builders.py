"""Memory that is written, on a real store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bot.engine.agent.memory_hooks import RecordedConversation
from bot.engine.llm.backend import BackendError
from bot.engine.memory.access import MemoryEditor, MemoryReader
from bot.engine.memory.admission import AdmissionAuditor, AdmissionPreset
from bot.engine.memory.candidate_review import CandidateReview
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.consolidation import EXTRACTED_KINDS, MemoryConsolidator
from bot.engine.memory.extraction import ConversationRegister, ExtractedFact, FactExtraction
from bot.engine.memory.extraction_worker import ExtractionWorker
from bot.engine.memory.fact_matching import FactEmbedder, SemanticMatcher
from bot.engine.memory.ingestion import ConversationTurn, MemoryRecorder
from bot.engine.memory.noted_facts import NotedFacts, NoticeMode
from bot.engine.memory.ports import BackgroundAnswer, BackgroundQuery
from bot.engine.memory.promotion import FactPromoter, QualityMetrics
from bot.engine.memory.writer import MemoryWriter
from handlers.ports import ChatQuestion
from storage import schema
from storage.db import Transaction
from storage.dialect import insert_or_ignore
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.memory.cells import CellRepo, ExtractionJobRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
)
from storage.records.people import Chat, ChatId, Language, Person
from storage.search.inverted_index import InvertedIndex
from storage.search.terms import tokenize
from storage.search.vectors import VectorRepo, VectorSamples
from storage.sessions import SessionRepo
from tests.agent_builders import make_context_builder, make_conversation
from tests.engine_harness import (
    BOSS,
    CHAT,
    GROUP,
    MATE,
    START,
    EngineHarness,
    FakeBackend,
    no_sleep,
    run_engine,
)

MATE_CHAT = replace(CHAT, id=ChatId("c2"), external_id="mate", person_id=MATE.id)
MY_SCOPE = MemoryScope(MemoryScopeKind.PERSON, BOSS.id)
MATE_SCOPE = MemoryScope(MemoryScopeKind.PERSON, MATE.id)
TEAM_SCOPE = MemoryScope(MemoryScopeKind.CHAT, GROUP.id)
ALL_KINDS = tuple(MemoryKind)

BY_BOSS = MemoryEditor(person=BOSS, reader=MemoryReader(chat=CHAT, person=BOSS.id))
BY_MATE = MemoryEditor(person=MATE, reader=MemoryReader(chat=MATE_CHAT, person=MATE.id))
BOSS_IN_TEAM = MemoryEditor(person=BOSS, reader=MemoryReader(chat=GROUP, person=BOSS.id))
MATE_IN_TEAM = MemoryEditor(person=MATE, reader=MemoryReader(chat=GROUP, person=MATE.id))


def redact(text: str) -> str:
    return text.replace("hunter2", "••••")


Answer = BaseModel | BackendError | None


@dataclass
class ScriptedExtractor:
    """A model that takes notes: it gives its `answers` in their order, then nothing worth
    keeping. `asked` is what it was told."""

    answers: list[Answer | Callable[[BackgroundQuery], Answer]] = field(default_factory=list)
    queries: list[BackgroundQuery] = field(default_factory=list)
    recorded: int = 0
    is_available: bool = True

    async def ready(self) -> bool:
        return self.is_available

    async def ask(self, query: BackgroundQuery) -> BackgroundAnswer:
        self.queries.append(query)
        answer = self.answers.pop(0) if self.answers else query.answer_type()
        if callable(answer) and not isinstance(answer, BaseModel):
            answer = answer(query)
        if isinstance(answer, BackendError):
            raise answer

        async def book(_tx: Transaction) -> None:
            self.recorded += 1

        return BackgroundAnswer(value=answer, record_usage=book)


def extracted_fact(text: str, **changes: Any) -> ExtractedFact:
    facts = {"category": "preferences", "confidence": 0.9, "turns": [1], **changes}
    return ExtractedFact.model_validate({"text": text, **facts})


def extraction_of(*facts: ExtractedFact, register: str = "real") -> FactExtraction:
    return FactExtraction(
        conversation_register=ConversationRegister(register), memories=list(facts)
    )


@dataclass
class WritingSetup:
    """`world` is the engine below it."""

    world: EngineHarness
    feed: MemoryChangeFeed
    index: InvertedIndex
    entries: MemoryEntryRepo
    cells: CellRepo
    writer: MemoryWriter
    candidate_review: CandidateReview
    recorder: MemoryRecorder
    jobs: ExtractionJobRepo
    quality: QualityMetrics
    consolidator: MemoryConsolidator
    model: ScriptedExtractor
    extraction_worker: ExtractionWorker
    vectors: VectorRepo

    async def run_jobs(self) -> float:
        """Do all that is due; seconds until there may be more."""
        while (rest := await self.extraction_worker.run_next_job()) == 0:
            pass
        return rest

    async def list_entries(
        self, *kinds: MemoryKind, states: tuple[MemoryState, ...] = (MemoryState.ACTIVE,)
    ) -> list[MemoryEntry]:
        """Of everybody, the oldest first."""
        found = await self.entries.list(None, kinds=kinds or ALL_KINDS, states=states)
        return sorted(found, key=lambda each: each.number)

    async def texts(self, *kinds: MemoryKind) -> list[str]:
        return [each.text for each in await self.list_entries(*kinds)]

    async def search(self, query: str, *scopes: MemoryScope) -> list[str]:
        words = dict.fromkeys(tokenize(query), 1.0)
        hits = await self.index.search(scopes or (MY_SCOPE,), words, 10)
        found = await self.entries.list_by_numbers([hit.number for hit in hits], None)
        return [each.text for each in found]

    async def record_turn(
        self,
        said: str,
        answer: str = "",
        *,
        source: str = "",
        person: Person = BOSS,
        chat: Chat = CHAT,
    ) -> MemoryEntry | None:
        turn = ConversationTurn(
            person=person,
            chat=chat,
            user_text=said,
            assistant_text=answer,
            source=source or f"inbox:{said}",
            at=self.world.clock(),
        )
        async with self.world.db.write() as tx:
            return await self.recorder.record_turn(tx, turn, [])

    def build_conversations(self, home: Path) -> RecordedConversation:
        world = self.world
        talk = make_conversation(
            db=world.db,
            sessions=SessionRepo(world.db),
            gateway=world.gateway,
            data_dir=home,
            context_builder=make_context_builder(),
            now=world.clock,
            sleep=no_sleep,
        )
        return RecordedConversation(talk, db=world.db, recorder=self.recorder, now=world.clock)


@asynccontextmanager
async def build_writing(
    home: Path,
    backend: FakeBackend | None = None,
    model: ScriptedExtractor | None = None,
    *,
    admission: AdmissionPreset = AdmissionPreset.OFF,
    embedder: FactEmbedder | None = None,
    zone: tzinfo = UTC,
) -> AsyncGenerator[WritingSetup, None]:
    """`embeds` tells what texts mean; in `zone` days begin and end."""
    async with run_engine(home, backend, start_dispatcher=False) as world:
        await _add_mate_chat(world)
        index, changed = InvertedIndex(world.db), MemoryChangeFeed()
        entries = MemoryEntryRepo(world.db, IdGenerator(), index)
        cells, jobs = CellRepo(world.db, entries), ExtractionJobRepo(world.db)
        quality, model = QualityMetrics(KeyValueStore(world.db)), model or ScriptedExtractor()
        deciding = CandidateReview(
            entries=entries, cells=cells, quality=quality, feed=changed, now=world.clock
        )
        promoter = FactPromoter(entries=entries, cells=cells, quality=quality)
        keeper = MemoryConsolidator(entries=entries, cells=cells, index=index, promoter=promoter)
        vectors = VectorRepo(world.db)
        sense = None
        if embedder is not None:
            sense = SemanticMatcher(
                embedder=embedder,
                vectors=vectors,
                sampler=VectorSamples(world.db),
                kinds=EXTRACTED_KINDS,
                now=world.clock,
            )
        noted = NotedFacts(
            key_values=KeyValueStore(world.db), entries=entries, mode=NoticeMode.LINE
        )
        yield WritingSetup(
            world=world,
            feed=changed,
            index=index,
            entries=entries,
            cells=cells,
            writer=MemoryWriter(
                db=world.db,
                entries=entries,
                cells=cells,
                consolidator=keeper,
                candidate_review=deciding,
                feed=changed,
                redact=redact,
                now=world.clock,
            ),
            candidate_review=deciding,
            recorder=MemoryRecorder(
                cells=cells,
                consolidator=keeper,
                zone=zone,
                jobs=jobs,
                feed=changed,
                redact=redact,
                noted=noted,
            ),
            jobs=jobs,
            quality=quality,
            consolidator=keeper,
            model=model,
            extraction_worker=ExtractionWorker(
                db=world.db,
                jobs=jobs,
                cells=cells,
                consolidator=keeper,
                auditor=AdmissionAuditor(entries, cells),
                model=model,
                feed=changed,
                redact=redact,
                now=world.clock,
                max_calls_per_hour=30,
                admission=admission,
                matcher=sense,
                noted=noted,
                zone=zone,
            ),
            vectors=vectors,
        )


async def _add_mate_chat(world: EngineHarness) -> None:
    """The mate has a chat of their own as well."""
    chat = {
        "id": MATE_CHAT.id,
        "channel": MATE_CHAT.channel,
        "external_id": MATE_CHAT.external_id,
        "thread": "",
        "kind": MATE_CHAT.kind,
        "title": "",
        "settings": {},
        "person_id": MATE.id,
        "created_at": START,
    }
    async with world.db.write() as tx:
        await tx.execute(insert_or_ignore(world.db.dialect, schema.chats).values(chat))


def question(text: str, source: str = "inbox:1", **changes: Any) -> ChatQuestion:
    facts: dict[str, Any] = {"person": BOSS, "chat": CHAT, **changes}
    return ChatQuestion(text=text, language=Language.ENGLISH, source=source, **facts)


async def ignore_text(_text: str) -> None:
    """Nobody looks while it is written."""
