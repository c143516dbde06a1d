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

from bot.engine.agent.context.history import History
from bot.engine.memory.archive.compactor import Compactor
from bot.engine.memory.archive.context import Archive
from bot.engine.memory.archive.limits import Limits
from bot.engine.memory.archive.passes import Tools
from bot.engine.memory.archive.words import Reading
from storage.db import Database
from storage.memory.archive.debts import DebtRepo
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.sessions import Session, SessionRepo
from tests.engine_world import Clock, make_store

KEY = "chat:c1"
_IDS = count(1)
SMALL = Limits(
    context=4_000,
    tail=8,
    chunk=800,
    least_chunk=100,
    leaf=120,
    least_leaf=24,
    condensed=120,
    least_condensed=40,
)


@dataclass
class FakeWriter:
    """Writes `text`, or what it says of the prompt; an exception is raised."""

    text: Callable[[str], str | Exception] = field(default=lambda _prompt: "It was said.")
    there: bool = True
    prompts: list[str] = field(default_factory=list)

    def can(self, _session: Session) -> bool:
        return self.there

    async def write(self, _session: Session, _system: str, prompt: str, _most: int) -> str:
        self.prompts.append(prompt)
        await asyncio.sleep(0)
        told = self.text(prompt)
        if isinstance(told, Exception):
            raise told
        return told


@dataclass
class World:
    db: Database
    clock: Clock
    sessions: SessionRepo
    said: ArchiveRepo
    summaries: SummaryRepo
    debts: DebtRepo
    reading: Reading
    writer: FakeWriter
    tools: Tools
    compactor: Compactor
    limits: Limits
    slept: list[float]
    windows: dict[str, int]
    """Of sessions: how much their models can take."""

    @property
    def history(self) -> History:
        return History(self.sessions, Archive(self.summaries), tokens=self.limits.context)

    async def session(self, key: str = KEY, backend: str = "fake", id: str = "") -> Session:
        async with self.db.write() as tx:
            return await self.sessions.begin(
                tx, id=id or key, key=key, backend=backend, model="fake-1", now=self.clock()
            )

    async def say(self, session: Session, rows: Sequence[Any], tokens: int = 0) -> None:
        async with self.db.write() as tx:
            await self.sessions.extend(tx, session.id, rows, tokens=tokens, now=self.clock())
        self.compactor.grown(session.id)

    async def again(self, session: Session) -> Session:
        found = await self.sessions.get(session.id)
        assert found is not None
        return found


@asynccontextmanager
async def world(
    home: Path, limits: Limits = SMALL, clock: Clock | None = None
) -> AsyncGenerator[World, None]:
    clock = clock or Clock()
    async with AsyncExitStack() as stack:
        db = await make_store(home / "shiftboss.db", stack)
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            clock.pass_by(seconds=seconds)
            await asyncio.sleep(0)

        windows: dict[str, int] = {}

        async def window(session: Session) -> int:
            return windows.get(session.id, 0)

        said, sessions = ArchiveRepo(db), SessionRepo(db)
        writer, reading = FakeWriter(), Reading(db, said)
        summaries, debts = SummaryRepo(db), DebtRepo(db)
        tools = Tools(
            db=db,
            sessions=sessions,
            said=said,
            summaries=summaries,
            debts=debts,
            reading=reading,
            writer=writer,
            keeps=lambda backend: backend != "cli",
            now=clock,
            new_id=lambda: f"sum_{next(_IDS)}",
            sleep=sleep,
            zone=ZoneInfo("UTC"),
            limits=limits,
            window=window,
        )
        yield World(
            db=db,
            clock=clock,
            sessions=sessions,
            said=said,
            summaries=summaries,
            debts=debts,
            reading=reading,
            writer=writer,
            tools=tools,
            compactor=Compactor(tools),
            limits=limits,
            slept=slept,
            windows=windows,
        )


def turn(n: int, size: int = 300) -> list[dict[str, Any]]:
    """A question and its answer, each about that many characters long."""
    return [asked(f"question {n} " + "q" * size), answered(f"answer {n} " + "a" * size)]


def asked(text: str) -> dict[str, Any]:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


def answered(text: str) -> dict[str, Any]:
    return {"kind": "response", "parts": [{"part_kind": "text", "content": text}]}
