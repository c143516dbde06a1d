"""A request that waits beside running steps is announced once under each lease, whatever fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from storage.approvals import awaited_approval_ids
from storage.errors import StoreUnavailable
from storage.records.tasks import EventKind
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    make_graph,
    task_node,
    workflow_world,
)
from tests.waiting import WAIT_SECONDS


async def test_an_older_request_is_announced_though_its_first_announcement_was_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the second lease `s` is reached only when `b` ends, and that commit fails once."""
    backend = PacedBackend()
    backend.hold("a", "b", "c")
    workflow = make_graph(
        *map(task_node, ("a", "b", "c", "d")), task_node("s", "deploy it"), "a>b", "a>c", parallel=2
    )
    async with workflow_world(tmp_path, backend) as world:
        task = await world.engine.run_workflow(workflow)
        asked = await world.wait_for_request(task, "deploy it")
        backend.release("a")
        await backend.wait_until_started("b", "c")
    async with workflow_world(tmp_path, backend, clock=world.engine.clock) as world:
        events, failures = world.engine.store.events, [StoreUnavailable("the disk is full")]
        append = events.append_event

        async def append_event(tx: Any, task_id: Any, kind: EventKind, **told: Any) -> None:
            if kind is EventKind.WAITING and failures:
                raise failures.pop()
            await append(tx, task_id, kind, **told)

        monkeypatch.setattr(events, "append_event", append_event)
        async with asyncio.timeout(WAIT_SECONDS):
            while backend.started_steps.count("c") < 2:
                await asyncio.sleep(0.005)
        backend.release("b")
        await world.wait_for_run(task, "b", "done")

        async with world.engine.db.read() as view:
            awaited = await awaited_approval_ids(view, task.id)

    assert failures == []
    assert awaited == {asked.id}
