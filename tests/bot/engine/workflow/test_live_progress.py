"""Live progress shows a running step's current action, masked, until it ends."""

from __future__ import annotations

import asyncio

from bot.engine.llm.backend import (
    PlanEntry,
    PlanUpdated,
    RunNotice,
    TextDelta,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from bot.engine.tasks.notifier import LiveCardUpdater
from bot.engine.workflow.live_progress import LiveProgress
from storage.records.tasks import LiveToolCall, TaskId

TASK = TaskId("k3m9qa")


def redacted(text: str) -> str:
    return text.replace("hunter2", "***")


async def test_a_step_is_shown_as_it_is_now() -> None:
    progress = LiveProgress(redacted)
    heard = progress.watch(TASK, "1")

    await heard(PlanUpdated(entries=(PlanEntry(text="Old"),)))
    await heard(PlanUpdated(entries=(PlanEntry(text="New hunter2", status="in_progress"),)))
    await heard(ToolStarted(call_id="a", name="exec", title="curl -u hunter2"))
    await heard(ToolUpdated(call_id="a", output="hunter2"))
    await heard(ToolFinished(call_id="a", succeeded=False, summary=""))
    await heard(RunNotice(key="backend.cli_queue", facts={}))

    live = progress.live_step(TASK, "1")
    assert live is not None
    assert live.plan == (("New ***", "in_progress"),)
    assert live.calls == (LiveToolCall(id="a", title="curl -u ***", succeeded=False, output="***"),)
    assert live.notes == (("backend.cli_queue", {}),)


async def test_a_passing_note_is_gone_with_the_next_event() -> None:
    progress = LiveProgress()
    heard = progress.watch(TASK, "1")
    starting = RunNotice(key="mcp.starting", facts={"server": "tiny"}, passing=True)

    await heard(starting)
    shown = progress.live_step(TASK, "1")
    await heard(ToolStarted(call_id="a", name="exec", title="make"))
    later = progress.live_step(TASK, "1")

    assert shown is not None
    assert later is not None
    assert shown.passing_note == ("mcp.starting", {"server": "tiny"})
    assert later.passing_note is None
    assert later.notes == ()


async def test_only_the_newest_calls_are_kept_and_all_are_counted() -> None:
    progress = LiveProgress()
    heard = progress.watch(TASK, "1")

    for n in range(50):
        await heard(ToolStarted(call_id=str(n), name="exec", title=f"make {n}"))

    live = progress.live_step(TASK, "1")
    assert live is not None
    assert live.call_count == 50
    assert [call.id for call in live.calls][-1] == "49"
    assert len(live.calls) < 10


async def test_a_step_begins_with_nothing_and_what_has_ended_shows_nothing() -> None:
    progress = LiveProgress()
    heard = progress.watch(TASK, "1")
    await heard(ToolStarted(call_id="a", name="exec", title="make"))

    progress.watch(TASK, "2")
    assert progress.live_step(TASK, "1") is not None
    progress.step_ended(TASK, "1")
    assert progress.live_step(TASK, "1") is None
    live = progress.live_step(TASK, "2")
    assert live is not None
    assert live.calls == ()
    progress.forget_task(TASK)
    assert progress.live_step(TASK, "2") is None


async def test_many_changes_are_one_card_and_words_are_none() -> None:
    progress = LiveProgress()
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
    cards = asyncio.create_task(
        LiveCardUpdater(progress=progress, refresh_card=redraw, sleep=sleep).run()
    )
    await rested.wait()
    cards.cancel()
    await asyncio.gather(cards, return_exceptions=True)

    assert drawn == [TASK]


async def test_a_card_is_drawn_again_each_15_seconds_while_something_runs_and_only_then() -> None:
    progress = LiveProgress()
    drawn: asyncio.Queue[TaskId] = asyncio.Queue()
    ticks: asyncio.Queue[None] = asyncio.Queue()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        if seconds > 1:
            waits.append(seconds)
            await ticks.get()
            ticks.task_done()

    progress.watch(TASK, "1")
    updater = LiveCardUpdater(progress=progress, refresh_card=drawn.put, sleep=sleep)
    cards = asyncio.create_task(updater.run())
    for _ in range(2):
        ticks.put_nowait(None)
        assert await drawn.get() == TASK
    progress.step_ended(TASK, "1")
    progress.watch(TaskId("other1"), "1")
    ticks.put_nowait(None)
    assert await drawn.get() == TaskId("other1")
    cards.cancel()
    await asyncio.gather(cards, return_exceptions=True)

    assert set(waits) == {15.0}
    assert drawn.empty()


async def test_a_call_that_is_named_later_keeps_its_output() -> None:
    progress = LiveProgress(redacted)
    heard = progress.watch(TASK, "1")

    await heard(ToolStarted(call_id="a", name="exec", title="Terminal"))
    await heard(ToolUpdated(call_id="a", output="so far"))
    await heard(ToolStarted(call_id="a", name="exec", title="make hunter2"))

    live = progress.live_step(TASK, "1")
    assert live is not None
    assert live.calls == (LiveToolCall(id="a", title="make ***", output="so far"),)
    assert live.call_count == 1
