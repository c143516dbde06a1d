"""The synchronisation with the platform as it is: lag, conflicts, lost answers; and its calls."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from storage.records.bitable import TableRole, TaskField
from storage.records.tasks import TaskPriority
from tests.bot.sync.soak import Soak
from tests.bot.sync.strict import strict_world
from tests.bot.sync.world import MEMBER, OWNER
from tests.emulators.feishu.refusals import ConnectionCut, FeishuApiError
from tests.thoroughness import thorough_only

_EDITS = int(os.environ.get("SOAK_EDITS", "24"))
_CALLS_PER_100 = 12


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SHIFTBOSS_", "ANTHROPIC_", "OPENAI_", "TELEGRAM_", "FEISHU_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHIFTBOSS_OWNERS", f"feishu:{OWNER}")
    monkeypatch.setenv("SHIFTBOSS_LANGUAGE", "en")
    monkeypatch.chdir(tmp_path)


async def test_random_edits_and_deaths_end_equal_on_a_platform_that_lags_and_refuses(
    tmp_path: Path,
) -> None:
    chance = random.Random(int(os.environ.get("SOAK_SEED", "7")))
    async with strict_world(tmp_path / "home") as (world, strict):
        strict.fs.bitable.read_lag = 1.5
        strict.fs.bitable.text_numbers = True
        soak = Soak(world, chance)
        for _ in range(4):
            busy = FeishuApiError(1254291, "Write conflict", status=200)
            strict.fs.inject_fault("POST", "batch_", error=busy, times=2)
            await soak.run(_EDITS // 4)
            strict.fs.inject_fault("POST", "batch_create", cut=ConnectionCut.AFTER)
            await world.task("its answer is lost")
            await world.failing_cycle()
            strict.fs.api.faults.clear()

        await soak.rest()
        assert await soak.differences() == []
        assert soak.killed > 0


@pytest.mark.parametrize("code", [1254608, 1255006])
async def test_a_creation_that_may_not_be_repeated_is_looked_up(tmp_path: Path, code: int) -> None:
    async with strict_world(tmp_path / "home") as (world, strict):
        await world.settle()
        task = await world.task("its answer is lost")
        strict.fs.inject_fault("POST", "batch_create", cut=ConnectionCut.AFTER)
        await world.failing_cycle()
        refusal = FeishuApiError(code, "the token was used", status=403)
        strict.fs.inject_fault("POST", "batch_create", error=refusal, times=6)
        await world.failing_cycle()
        strict.fs.api.faults.clear()

        await world.settle()

        assert [row.id for row in strict.rows()] == [await world.record(task)]


@thorough_only
async def test_a_hundred_changes_take_at_most_a_dozen_calls(tmp_path: Path) -> None:
    async with strict_world(tmp_path / "home") as (world, strict):
        await world.settle()
        taken: dict[str, int] = {}

        async def count(what: str) -> None:
            before = strict.service.calls
            await world.settle()
            taken[what] = strict.service.calls - before

        tasks = [await world.task(f"task {number}") for number in range(100)]
        await count("100 new tasks")
        services = world.core.services
        for number, task in enumerate(tasks):
            await services.tasks.set_priority(
                await world.read(task), TaskPriority.URGENT, by=world.owner, source=f"s{number}"
            )
        await count("100 changed tasks")
        for task in tasks:
            record = await world.record(task)
            strict.edit(MEMBER, record, {TaskField.TITLE: f"theirs {task.id}"})
        await count("100 changes of people")

        titles = {row.cells[strict.field_id(TableRole.TASKS, "title")] for row in strict.rows()}
        assert titles == {f"theirs {task.id}" for task in tasks}
        assert {what: calls for what, calls in taken.items() if calls > _CALLS_PER_100} == {}
