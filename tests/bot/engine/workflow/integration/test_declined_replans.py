"""A new plan that could not be made, while a checkpoint is being stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.engine.workflow.checkpoint import TaskCheckpoint
from storage.records.tasks import TaskStatus
from tests.engine_harness import run_engine


async def test_a_replan_declined_during_a_commit_stays_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints: set[TaskCheckpoint] = set()
    apply: Any = TaskCheckpoint._apply

    async def decline_then_apply(self: TaskCheckpoint, *args: object) -> None:
        if self not in checkpoints:
            checkpoints.add(self)
            self.decline_replan(7)
        await apply(self, *args)

    monkeypatch.setattr(TaskCheckpoint, "_apply", decline_then_apply)
    async with run_engine(tmp_path) as world:
        task = await world.create_task()
        view = await world.until(task)

    assert view.task.status is TaskStatus.COMPLETED
    assert [each._memory.declined_order for each in checkpoints] == [7]
