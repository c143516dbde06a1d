"""Notes are taken by a model API, are counted, and leave no transcript."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bot.engine.agent.remembering.silent import SilentDesk
from bot.engine.llm.base import BackendDenied, Caps, Mode, Purpose, RunRequest, RunResult
from bot.engine.memory.writing.drawing.extraction import Extraction
from bot.engine.memory.writing.drawing.silent import Wish
from storage import schema
from storage.records.status import ModelChoice
from storage.usage import Span, UsageRepo
from tests.engine_world import BOSS, CHAT, START, FakeBackend, answered, engine


@dataclass
class Notetaker(FakeBackend):
    value: Extraction = field(default_factory=Extraction)

    async def settle(self, request: RunRequest) -> RunResult:
        return answered(self.value)


def wish(prompt: str = "{}") -> Wish:
    return Wish(
        key="memory:1",
        system="notes",
        prompt=prompt,
        form=Extraction,
        person=BOSS.id,
        chat=CHAT.id,
    )


def default() -> ModelChoice:
    return ModelChoice(backend="", model="")


async def test_a_note_is_paid_for_under_its_own_purpose_and_kept_nowhere(tmp_path: Path) -> None:
    backend = Notetaker()
    async with engine(tmp_path, backend, running=False) as world:
        desk = SilentDesk(world.desk, default)
        assert await desk.ready()
        told = await desk.ask(wish())
        async with world.db.write() as tx:
            await told.book(tx)

        assert told.value == Extraction()
        [asked] = backend.asked
        assert (asked.purpose, asked.mode, asked.tools) == (Purpose.MEMORY, Mode.REVIEW, ())
        assert (await UsageRepo(world.db).sum(Span(since=START))).calls == 1
        async with world.db.read() as view:
            assert await view.scalar(select(schema.usage.c.purpose)) == "memory"
            assert await view.scalar(select(func.count()).select_from(schema.messages)) == 0


async def test_every_note_is_taken_without_knowing_the_one_before(tmp_path: Path) -> None:
    backend = Notetaker()
    async with engine(tmp_path, backend, running=False) as world:
        desk = SilentDesk(world.desk, default)
        for _ in range(2):
            told = await desk.ask(wish())
            async with world.db.write() as tx:
                await told.book(tx)

        assert [len(request.history) for request in backend.asked] == [0, 0]


@pytest.mark.parametrize("backend", [Notetaker(name="offline"), Notetaker(caps=Caps(tools=False))])
async def test_neither_rules_nor_coding_clis_take_notes(tmp_path: Path, backend: Notetaker) -> None:
    async with engine(tmp_path, backend, running=False) as world:
        desk = SilentDesk(world.desk, default)

        assert not await desk.ready()
        with pytest.raises(BackendDenied):
            await desk.ask(wish())
        assert backend.asked == []
