"""A task that is made with its plan: nobody plans it, and it is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.base import Purpose
from bot.engine.workflow.graph import BadGraph, Edge, Node, Workflow, linear
from storage.records.tasks import EventKind, TaskStatus
from tests.engine_world import BOSS, CHAT, FakeBackend, engine

TWO = linear("As written.", [Node(id="a", title="read"), Node(id="b", title="write")])


async def test_a_task_with_a_plan_is_done_without_planning(tmp_path: Path) -> None:
    backend = FakeBackend()
    async with engine(tmp_path, backend) as world:
        task = await world.run_workflow(TWO)
        view = await world.until(task)
        graph = await world.store.graphs.latest(task.id)

    assert view.task.status is TaskStatus.COMPLETED
    assert backend.done == ["read", "write"]
    assert all(request.purpose is Purpose.STEP for request in backend.asked)
    assert graph is not None
    assert (graph.version, graph.reason, graph.author) == (1, "workflow", BOSS.id)


async def test_the_same_source_makes_the_same_task_with_the_same_plan(tmp_path: Path) -> None:
    async with engine(tmp_path, running=False) as world:
        first = await world.run_workflow(TWO, source="m:1")
        other = linear("Other.", [Node(id="x", title="other")])
        again = await world.run_workflow(other, source="m:1")
        view = await world.views.view(first.id)
        kinds = [event.kind for event in await world.foreman.events(first.id, 9)]

    assert again == first
    assert [step.title for step in view.steps] == ["read", "write"]
    assert kinds == [EventKind.CREATED, EventKind.PLANNED]


async def test_a_broken_plan_makes_no_task(tmp_path: Path) -> None:
    broken = Workflow(plan="", nodes=TWO.nodes, edges=(Edge(source="a", target="nowhere"),))
    async with engine(tmp_path, running=False) as world:
        with pytest.raises(BadGraph):
            await world.run_workflow(broken)
        page = await world.foreman.page(by=BOSS, chat=CHAT.id, status=None, page=1, size=5)

    assert page.total == 0
