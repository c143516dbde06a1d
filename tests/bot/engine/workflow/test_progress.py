"""What a running step does is shown as it is now, masked, and no longer than it runs."""

from __future__ import annotations

import asyncio

from bot.engine.dispatch.live import LiveCards
from bot.engine.llm.events import (
    Noted,
    PlanEntry,
    PlanShown,
    TextDelta,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from bot.engine.workflow.progress import Progress
from storage.records.live import LiveCall
from storage.records.tasks import TaskId

TASK = TaskId("k3m9qa")


def masked(text: str) -> str:
    return text.replace("hunter2", "***")


async def test_a_step_is_shown_as_it_is_now() -> None:
    progress = Progress(masked)
    heard = progress.watch(TASK, "1")

    await heard(PlanShown(entries=(PlanEntry(text="Old"),)))
    await heard(PlanShown(entries=(PlanEntry(text="New hunter2", status="in_progress"),)))
    await heard(ToolStarted(call_id="a", name="exec", title="curl -u hunter2"))
    await heard(ToolUpdated(call_id="a", output="hunter2"))
    await heard(ToolFinished(call_id="a", good=False, summary=""))
    await heard(Noted(key="backend.cli_queue", facts={}))

    live = progress.of(TASK, "1")
    assert live is not None
    assert live.plan == (("New ***", "in_progress"),)
    assert live.calls == (LiveCall(id="a", title="curl -u ***", good=False, output="***"),)
    assert live.notes == (("backend.cli_queue", {}),)


async def test_only_the_newest_calls_are_kept_and_all_are_counted() -> None:
    progress = Progress()
    heard = progress.watch(TASK, "1")

    for n in range(50):
        await heard(ToolStarted(call_id=str(n), name="exec", title=f"make {n}"))

    live = progress.of(TASK, "1")
    assert live is not None
    assert live.used == 50
    assert [call.id for call in live.calls][-1] == "49"
    assert len(live.calls) < 10


async def test_a_step_begins_with_nothing_and_what_has_ended_shows_nothing() -> None:
    progress = Progress()
    heard = progress.watch(TASK, "1")
    await heard(ToolStarted(call_id="a", name="exec", title="make"))

    progress.watch(TASK, "2")
    assert progress.of(TASK, "1") is not None
    progress.ended(TASK, "1")
    assert progress.of(TASK, "1") is None
    live = progress.of(TASK, "2")
    assert live is not None
    assert live.calls == ()
    progress.forget(TASK)
    assert progress.of(TASK, "2") is None


async def test_many_changes_are_one_card_and_words_are_none() -> None:
    progress = Progress()
    drawn: list[TaskId] = []
    rested = asyncio.Event()

    async def redraw(task: TaskId) -> None:
        drawn.append(task)

    async def sleep(_seconds: float) -> None:
        rested.set()
        await asyncio.Event().wait()

    heard = progress.watch(TASK, "1")
    for n in range(20):
        await heard(ToolStarted(call_id=str(n), name="exec", title=f"make {n}"))
    other = progress.watch(TaskId("other1"), "1")
    await other(TextDelta(text="words"))
    cards = asyncio.create_task(LiveCards(progress=progress, redraw=redraw, sleep=sleep).run())
    await rested.wait()
    cards.cancel()

    assert drawn == [TASK]
