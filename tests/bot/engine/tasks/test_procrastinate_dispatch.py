"""Tasks that start by tickets of Procrastinate, as its worker hears of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.tasks import procrastinate_dispatch
from tests import engine_harness
from tests.contracts.dispatcher_lives import NamedStepsBackend, add_task, wait_until_done
from tests.engine_harness import run_engine


async def test_the_next_task_of_a_project_starts_when_it_is_free_and_not_at_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_harness, "USES_POSTGRESQL", True)
    monkeypatch.setenv("SHIFTBOSS_TEST_DISPATCHER", "procrastinate")
    # Nobody looks at the tickets without being told.
    monkeypatch.setattr(procrastinate_dispatch, "_POLL_SECONDS", 1e6)
    backend = NamedStepsBackend()
    project = str(tmp_path / "project")
    async with run_engine(tmp_path, backend, slots=2) as world:
        tasks = [await add_task(world, name, project_dir=project) for name in "abc"]
        await wait_until_done(world, *tasks)
    assert backend.started_steps == ["a 1", "a 2", "b 1", "b 2", "c 1", "c 2"]
