"""Notes are taken by a model API, are counted, and leave no transcript."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bot.engine.agent.background_calls import BackgroundModelCalls
from bot.engine.llm.backend import BackendDenied, RunPurpose, RunRequest, RunResult, WorkerMode
from bot.engine.memory.extraction import FactExtraction
from bot.engine.memory.ports import BackgroundQuery
from storage import schema
from storage.records.system import ModelChoice
from storage.usage import UsageFilter, UsageRepo
from tests.engine_harness import BOSS, CHAT, START, FakeBackend, run_engine, run_result


@dataclass
class Notetaker(FakeBackend):
    value: FactExtraction = field(default_factory=FactExtraction)

    async def respond(self, request: RunRequest) -> RunResult:
        return run_result(self.value)


def wish(prompt: str = "{}") -> BackgroundQuery:
    return BackgroundQuery(
        key="memory:1",
        system="notes",
        prompt=prompt,
        answer_type=FactExtraction,
        person=BOSS.id,
        chat=CHAT.id,
    )


def default() -> ModelChoice:
    return ModelChoice(backend="", model="")


async def test_a_note_is_paid_for_under_its_own_purpose_and_kept_nowhere(tmp_path: Path) -> None:
    backend = Notetaker()
    async with run_engine(tmp_path, backend, start_dispatcher=False) as world:
        desk = BackgroundModelCalls(world.gateway, default)
        assert await desk.ready()
        told = await desk.ask(wish())
        async with world.db.write() as tx:
            await told.record_usage(tx)

        assert told.value == FactExtraction()
        [asked] = backend.requests
        assert (asked.purpose, asked.mode, asked.tools) == (
            RunPurpose.MEMORY,
            WorkerMode.REVIEW,
            (),
        )
        assert (await UsageRepo(world.db).sum(UsageFilter(since=START))).calls == 1
        async with world.db.read() as view:
            assert await view.scalar(select(schema.usage.c.purpose)) == "memory"
            assert await view.scalar(select(func.count()).select_from(schema.messages)) == 0


async def test_every_note_is_taken_without_knowing_the_one_before(tmp_path: Path) -> None:
    backend = Notetaker()
    async with run_engine(tmp_path, backend, start_dispatcher=False) as world:
        desk = BackgroundModelCalls(world.gateway, default)
        for _ in range(2):
            told = await desk.ask(wish())
            async with world.db.write() as tx:
                await told.record_usage(tx)

        assert [len(request.history) for request in backend.requests] == [0, 0]


@pytest.mark.parametrize(
    "backend",
    [Notetaker(name="offline"), Notetaker(accepts_tools=False)],
)
async def test_neither_rules_nor_coding_clis_take_notes(tmp_path: Path, backend: Notetaker) -> None:
    async with run_engine(tmp_path, backend, start_dispatcher=False) as world:
        desk = BackgroundModelCalls(world.gateway, default)

        assert not await desk.ready()
        with pytest.raises(BackendDenied):
            await desk.ask(wish())
        assert backend.requests == []
