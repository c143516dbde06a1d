"""The pictures of a task are shown once to each session, restarts included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bot.engine.agent.desk import Ask
from bot.engine.llm.base import Chosen, Picture, Purpose
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.test_on_the_way import Held
from tests.engine_world import BOSS, FakeBackend, engine


async def show(ask: Ask, _chosen: Chosen, names: Sequence[str]) -> Ask:
    pictures = tuple(Picture(path=Path(name), mime="image/png") for name in names)
    return replace(ask, pictures=pictures)


async def test_a_restart_does_not_show_a_tasks_pictures_again(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"a cat")
    first = Held(steps=("one", "two"))
    async with engine(tmp_path, first, show_pictures=show) as world:
        task = await world.add("Draw a dog like this cat", files=("cat.png",))
        await first.begun("one")
        await world.foreman.pause(task, by=BOSS, source="m1")
        first.gate.set()
        task = (await world.until(task, TaskStatus.PAUSED)).task
    second = FakeBackend(steps=("one", "two"))
    async with engine(tmp_path, second, show_pictures=show) as world:
        await world.foreman.resume(task, by=BOSS, source="m2")
        await world.until(task, TaskStatus.COMPLETED)

    shown = [(each.purpose, len(each.pictures)) for each in (*first.asked, *second.asked)]
    assert shown == [(Purpose.PLAN, 1), (Purpose.STEP, 0), (Purpose.STEP, 0)]
