"""A session in a real store, and a writer of summaries that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.agent.session_history import SessionHistory
from bot.engine.memory.conversation_archive.compaction import (
    ArchiveCompactor,
    CompactionDeps,
    SessionGrowth,
)
from bot.engine.memory.conversation_archive.compaction_plan import CompactionLimits
from bot.engine.memory.conversation_archive.search_text import ArchiveIndexer
from storage.db import Database
from storage.memory.cells import CompactionJobRepo
from storage.memory.conversation_archive import ArchiveRepo, SummaryRepo
from storage.records.workers import ModelSession
from storage.sessions import SessionRepo
from tests.agent_builders import make_history
from tests.engine_harness import ManualClock, open_seeded_database

KEY = "chat:c1"
_IDS = count(1)
SMALL = CompactionLimits(
    context_tokens=4_000,
    tail_messages=8,
    chunk_tokens=800,
    min_chunk_tokens=100,
    leaf_tokens=120,
    min_leaf_tokens=24,
    condensed_tokens=120,
    min_condensed_tokens=40,
)


@dataclass
class FakeSummaryModel:
    """Writes `text`, or what it says of the prompt; an exception is raised."""

    text: Callable[[str], str | Exception] = field(default=lambda _prompt: "It was said.")
    is_available: bool = True
    prompts: list[str] = field(default_factory=list)
    windows: dict[str, int] = field(default_factory=dict)

    async def context_window(self, session: ModelSession) -> int:
        return self.windows.get(session.id, 0)

    def can_summarize(self, _session: ModelSession) -> bool:
        return self.is_available

    async def write(self, _session: ModelSession, _system: str, prompt: str, _most: int) -> str:
        self.prompts.append(prompt)
        await asyncio.sleep(0)
        told = self.text(prompt)
        if isinstance(told, Exception):
            raise told
        return told


@dataclass
class ArchiveSetup:
    db: Database
    clock: ManualClock
    sessions: SessionRepo
    archive: ArchiveRepo
    summaries: SummaryRepo
    debts: CompactionJobRepo
    indexer: ArchiveIndexer
    model: FakeSummaryModel
    deps: CompactionDeps
    growth: SessionGrowth
    compactor: ArchiveCompactor
    limits: CompactionLimits
    slept: list[float]

    @property
    def windows(self) -> dict[str, int]:
        """Of sessions: how much their models can take."""
        return self.model.windows

    @property
    def history(self) -> SessionHistory:
        return make_history(self.db, max_tokens=self.limits.context_tokens)

    async def session(self, key: str = KEY, backend: str = "fake", id: str = "") -> ModelSession:
        async with self.db.write() as tx:
            return await self.sessions.start(
                tx, id=id or key, key=key, backend=backend, model="fake-1", now=self.clock()
            )

    async def say(self, session: ModelSession, rows: Sequence[Any], tokens: int = 0) -> None:
        async with self.db.write() as tx:
            await self.sessions.append_messages(
                tx, session.id, rows, tokens=tokens, now=self.clock()
            )
        self.growth.notify(session.id)

    async def request_compaction(self, session: ModelSession) -> None:
        async with self.db.write() as tx:
            await self.debts.enqueue(tx, session.id, now=self.clock(), forced=True)
        self.growth.wake_event.set()

    async def reload(self, session: ModelSession) -> ModelSession:
        found = await self.sessions.get(session.id)
        assert found is not None
        return found


@asynccontextmanager
async def build_archive(
    home: Path, limits: CompactionLimits = SMALL, clock: ManualClock | None = None
) -> AsyncGenerator[ArchiveSetup, None]:
    clock = clock or ManualClock()
    async with AsyncExitStack() as stack:
        db = await open_seeded_database(home / "shiftboss.db", stack)
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            clock.advance(seconds=seconds)
            await asyncio.sleep(0)

        said, sessions = ArchiveRepo(db), SessionRepo(db)
        writer, reading = FakeSummaryModel(), ArchiveIndexer(db, said)
        summaries, debts, growth = SummaryRepo(db), CompactionJobRepo(db), SessionGrowth()
        tools = CompactionDeps(
            db=db,
            sessions=sessions,
            archive=said,
            summaries=summaries,
            debts=debts,
            indexer=reading,
            model=writer,
            keeps_history=lambda backend: backend != "cli",
            now=clock,
            new_id=lambda: f"sum_{next(_IDS)}",
            sleep=sleep,
            zone=ZoneInfo("UTC"),
            limits=limits,
        )
        yield ArchiveSetup(
            db=db,
            clock=clock,
            sessions=sessions,
            archive=said,
            summaries=summaries,
            debts=debts,
            indexer=reading,
            model=writer,
            deps=tools,
            growth=growth,
            compactor=ArchiveCompactor(tools, growth),
            limits=limits,
            slept=slept,
        )


def build_turn(n: int, size: int = 300) -> list[dict[str, Any]]:
    """A question and its answer, each about that many characters long."""
    return [
        user_message(f"question {n} " + "q" * size),
        assistant_message(f"answer {n} " + "a" * size),
    ]


def user_message(text: str) -> dict[str, Any]:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


def assistant_message(text: str) -> dict[str, Any]:
    return {"kind": "response", "parts": [{"part_kind": "text", "content": text}]}
