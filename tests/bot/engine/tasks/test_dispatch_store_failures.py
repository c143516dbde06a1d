"""A disk that is full for a while: work waits, nothing paid for is lost, nothing is done twice."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.engine.tasks import dispatch
from storage import db
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.tasks import NodeStatus, TaskStatus
from tests.engine_harness import BOSS, FakeBackend, run_engine


class FullDiskFault:
    """From the `first` write on, `times` writes fail as a full disk makes them fail: at the end."""

    def __init__(self, first: int, times: int) -> None:
        self.failing = range(first, first + times)
        self.writes = 0

    @property
    def met(self) -> bool:
        return self.writes >= self.failing.stop


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> FullDiskFault:
    disk = FullDiskFault(0, 0)
    real = Database.write

    @asynccontextmanager
    async def write(self: Database) -> AsyncGenerator[Transaction, None]:
        async with real(self) as transaction:
            yield transaction
            disk.writes += 1
            if disk.writes in disk.failing:
                raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(Database, "write", write)
    monkeypatch.setattr(dispatch, "STORE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(db, "STORE_RETRY_SECONDS", 0.0)
    return disk


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_whichever_write_fails_the_task_ends_well_and_every_step_is_paid_once(
    tmp_path: Path, full_disk: FullDiskFault, nth: int, times: int
) -> None:
    async with run_engine(tmp_path) as world:
        task = await world.create_task()
        full_disk.failing = range(full_disk.writes + nth, full_disk.writes + nth + times)
        view = await world.until(task)

        assert full_disk.met or nth > 7, "the story must reach the trouble it is about"
        assert view.task.status is TaskStatus.COMPLETED
        assert world.backend.started_steps == ["one", "two", "three"]
        assert len(world.backend.requests) == 4
        assert view.spent.calls == 4


@pytest.mark.parametrize("nth", range(1, 4))
async def test_a_task_that_breaks_off_on_a_full_disk_does_not_claim_to_run_for_ever(
    tmp_path: Path, full_disk: FullDiskFault, nth: int
) -> None:
    backend = FakeBackend(on_step=lambda _title: ZeroDivisionError("a bug"))
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        await world.until(task, TaskStatus.RUNNING)
        full_disk.failing = range(full_disk.writes + nth, full_disk.writes + nth + 4)
        view = await world.until(task)

        assert view.task.status is TaskStatus.FAILED
        assert "Log reference" in view.task.status_reason
        assert all(step.status is NodeStatus.PENDING for step in view.steps)


async def test_a_workspace_on_a_full_disk_is_told_in_words_and_can_be_tried_again(
    tmp_path: Path, full_disk: FullDiskFault
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    backend = FakeBackend(on_step=lambda title: full if title == "two" else None)
    async with run_engine(tmp_path, backend) as world:
        task = await world.create_task()
        view = await world.until(task)
        assert view.task.status is TaskStatus.FAILED
        assert "No space left" in view.task.status_reason

        backend.on_step = lambda _title: None
        await world.tasks.retry(view.task, by=BOSS, source="again")
        view = await world.until(task, TaskStatus.COMPLETED)
        assert backend.started_steps == ["one", "two", "two", "three"]


async def test_a_task_that_could_not_be_stored_is_not_half_there(
    tmp_path: Path, full_disk: FullDiskFault
) -> None:
    async with run_engine(tmp_path) as world:
        full_disk.failing = range(10**9)
        with pytest.raises(StoreUnavailable):
            await world.create_task(source="message 1")
        full_disk.failing = range(0)
        task = await world.create_task(source="message 1")
        await world.until(task)

        assert await world.store.tasks.count_by_status() == {TaskStatus.COMPLETED: 1}
        assert world.backend.started_steps == ["one", "two", "three"]
