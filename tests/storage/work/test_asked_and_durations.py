"""Who is asked about which step, and how long steps took: bounded reads for a card."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bot.engine.workflow.model.nodes import Human, NodeType
from storage.records.tasks import TaskStatus
from storage.work.asked import asked_at
from storage.work.durations import DurationRepo
from tests.bot.engine.workflow.flows.world import flows, graph, node, task


async def test_every_open_question_stands_at_its_step_with_the_names(tmp_path: Path) -> None:
    two = graph(
        node("fork", NodeType.PARALLEL),
        node("sign", NodeType.HUMAN, Human()),
        node("choose", NodeType.HUMAN, Human()),
        "fork>sign",
        "fork>choose",
        parallel=2,
    )
    async with flows(tmp_path) as here:
        made = await here.world.run_workflow(two)
        await here.open_requests(made, 2)
        async with here.world.db.read() as view:
            before = await asked_at(view, made.id)
        await here.decide(await here.asked(made, "sign"))
        async with here.world.db.read() as view:
            after = await asked_at(view, made.id)

    assert {path: names[0] for path, names in before.items()} == {"sign": "Boss", "choose": "Boss"}
    assert set(after) == {"choose"}


async def test_only_what_was_completed_tells_how_long_steps_take(tmp_path: Path) -> None:
    async with flows(tmp_path) as here:
        nothing = await DurationRepo(here.world.db).recent()
        good = await here.world.run_workflow(graph(task("a"), task("b"), "a>b"))
        await here.world.until(good)
        waits = graph(task("c"), node("sign", NodeType.HUMAN, Human()), "c>sign")
        await here.world.until(await here.world.run_workflow(waits), TaskStatus.WAITING)
        (found,) = await DurationRepo(here.world.db).recent()

    assert nothing == ()
    assert sorted(name for name, _ in found.took) == ["a", "b"]
    assert all(0 <= seconds < timedelta(minutes=1).total_seconds() for _, seconds in found.took)
    assert found.body["nodes"]
