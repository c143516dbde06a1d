"""The self-check on a real store, with checks that find what they are told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from bot.engine.autonomy.self_check import SelfCheckService
from storage.key_value import KeyValueStore
from storage.records.autonomy import HealthFinding
from storage.records.people import ChatId, Language
from storage.self_checks import SelfCheckRepo
from tests.bot.engine.schedule.schedule_world import StoredPoster
from tests.engine_harness import CHAT, START, EngineHarness, run_engine

LOW = HealthFinding(text="disk_low", points=15, facts={"free_bytes": 1}, asks_task=True)
STUCK = HealthFinding(text="queue_stands", points=20, facts={"n": 2}, repair="wake_tasks")


@dataclass
class ToldCheck:
    """Finds `findings`, or raises `error`. A repair removes those that name it, if it `helps`."""

    name: str = "disk"
    findings: list[HealthFinding] = field(default_factory=list)
    error: Exception | None = None
    helps: bool = True
    repairs: list[str] = field(default_factory=list)

    async def find(self) -> Sequence[HealthFinding]:
        if self.error is not None:
            raise self.error
        return [*self.findings]

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        self.repairs.append(repair)
        if self.helps:
            self.findings = [each for each in self.findings if each.repair != repair]
        return len(findings)


@dataclass
class SelfCheckWorld:
    engine: EngineHarness
    poster: StoredPoster
    check: ToldCheck
    time: datetime = START
    quiet: bool = False
    runs: int = 0

    @property
    def repo(self) -> SelfCheckRepo:
        return SelfCheckRepo(self.engine.db)

    def service(self, *others: ToldCheck) -> SelfCheckService:
        """As the program makes it at each start."""

        async def owner_chats() -> Sequence[tuple[ChatId, Language]]:
            return [(CHAT.id, Language.ENGLISH)]

        return SelfCheckService(
            checks=(self.check, *others),
            db=self.engine.db,
            repo=self.repo,
            poster=self.poster,
            owner_chats=owner_chats,
            create_task=self.engine.tasks.create_within,
            on_task=lambda: None,
            is_quiet=lambda: self.quiet,
            now=lambda: self.time,
        )

    async def run(self, *others: ToldCheck, **later: float) -> str:
        """Start the program anew, check once, and return the card that owners got; empty for
        none."""
        self.time += timedelta(**later)
        service = self.service(*others)
        async with AsyncExitStack() as stack:
            await service.start(stack)
            await service.check()
        self.runs += 1
        key = f"self-check:{self.runs}:{CHAT.id}"
        return await self.poster.text(key) if await self.poster.has(key) else ""


@asynccontextmanager
async def self_check_world(home: Path) -> AsyncGenerator[SelfCheckWorld, None]:
    async with run_engine(home, start_dispatcher=False) as engine:
        yield SelfCheckWorld(
            engine=engine, poster=StoredPoster(KeyValueStore(engine.db)), check=ToldCheck()
        )
