"""A disk that is full for a while: work waits, nothing paid for is lost, nothing is done twice."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.engine.dispatch import local
from bot.engine.workflow import runner
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.tasks import NodeStatus, TaskStatus
from tests.engine_world import BOSS, FakeBackend, engine


class FullDisk:
    """From the `first` write on, `times` writes fail as a full disk makes them fail: at the end."""

    def __init__(self, first: int, times: int) -> None:
        self.failing = range(first, first + times)
        self.writes = 0

    @property
    def met(self) -> bool:
        return self.writes >= self.failing.stop


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    disk = FullDisk(0, 0)
    real = Database.write

    @asynccontextmanager
    async def write(self: Database) -> AsyncGenerator[Transaction, None]:
        async with real(self) as transaction:
            yield transaction
            disk.writes += 1
            if disk.writes in disk.failing:
                raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(Database, "write", write)
    monkeypatch.setattr(local, "_STORE_REST", 0.0)
    monkeypatch.setattr(runner, "_STORE_REST", 0.0)
    return disk


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_whichever_write_fails_the_task_ends_well_and_every_step_is_paid_once(
    tmp_path: Path, trouble: FullDisk, nth: int, times: int
) -> None:
    async with engine(tmp_path) as world:
        task = await world.add()
        trouble.failing = range(trouble.writes + nth, trouble.writes + nth + times)
        view = await world.until(task)

        assert trouble.met or nth > 7, "the story must reach the trouble it is about"
        assert view.task.status is TaskStatus.COMPLETED
        assert world.backend.done == ["one", "two", "three"]
        assert len(world.backend.asked) == 4
        assert view.spent.calls == 4


@pytest.mark.parametrize("nth", range(1, 4))
async def test_a_task_that_breaks_off_on_a_full_disk_does_not_claim_to_run_for_ever(
    tmp_path: Path, trouble: FullDisk, nth: int
) -> None:
    backend = FakeBackend(on_step=lambda _title: ZeroDivisionError("a bug"))
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        await world.until(task, TaskStatus.RUNNING)
        trouble.failing = range(trouble.writes + nth, trouble.writes + nth + 4)
        view = await world.until(task)

        assert view.task.status is TaskStatus.FAILED
        assert "details under" in view.task.status_reason
        assert all(step.status is NodeStatus.PENDING for step in view.steps)


async def test_a_workspace_on_a_full_disk_is_told_in_words_and_can_be_tried_again(
    tmp_path: Path, trouble: FullDisk
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    backend = FakeBackend(on_step=lambda title: full if title == "two" else None)
    async with engine(tmp_path, backend) as world:
        task = await world.add()
        view = await world.until(task)
        assert view.task.status is TaskStatus.FAILED
        assert "No space left" in view.task.status_reason

        backend.on_step = lambda _title: None
        await world.foreman.retry(view.task, by=BOSS, source="again")
        view = await world.until(task, TaskStatus.COMPLETED)
        assert backend.done == ["one", "two", "two", "three"]


async def test_a_task_that_could_not_be_stored_is_not_half_there(
    tmp_path: Path, trouble: FullDisk
) -> None:
    async with engine(tmp_path) as world:
        trouble.failing = range(10**9)
        with pytest.raises(StoreUnavailable):
            await world.add(source="message 1")
        trouble.failing = range(0)
        task = await world.add(source="message 1")
        await world.until(task)

        assert await world.store.tasks.counts() == {TaskStatus.COMPLETED: 1}
        assert world.backend.done == ["one", "two", "three"]
