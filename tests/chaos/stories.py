"""Stories of tasks, queues and decisions, and all stories there are."""

from __future__ import annotations

from tests.chaos.memory.stories import STORIES as OF_MEMORY
from tests.chaos.schedule_stories import STORIES as OF_SCHEDULES
from tests.chaos.story import CrashStory, ScriptedUser
from tests.chaos.workers.stories import STORIES as OF_WORKERS
from tests.chaos.workflow_stories import STORIES as OF_GRAPHS

NOTES = b"The queue was long. The queue was kind. Nobody in the queue was in a hurry at all."
_DONE = ("completed",)
# The first to be cut in on dies as it is asked to make room, the second as it goes on, the third
# is paused.
_CUTS = 3
_QUEUED = {f"{name}-{n}.txt": str(n) for name in ("slow", "now") for n in range(_CUTS)}


async def _two_tasks(boss: ScriptedUser) -> None:
    """A task with a file by command, another one by plain words and a press."""
    steps = 'write "one" to a.txt, then write "two" to b.txt, then summarise notes.txt'
    await boss.channel.send_message(f"/run {steps}", file=("notes.txt", NOTES))
    await boss.channel.send_message("Write a haiku about queues and save it to haiku.md")
    await boss.channel.press("Start")
    await boss.wait_for_row(
        "SELECT 1 WHERE (SELECT count(*) FROM tasks WHERE status='completed') = 2"
    )


async def _a_queue(boss: ScriptedUser) -> None:
    """One slot: urgent work cuts in again and again, what makes room for it is paused once, and
    what waits is paused, stopped, tried again and reordered."""
    for n in range(_CUTS):
        slow = await boss.start_task(f'-p normal wait 1 second, then write "{n}" to slow-{n}.txt')
        await boss.wait_for_status(slow, "running")
        urgent = await boss.start_task(f'-p urgent write "{n}" to now-{n}.txt')
        if n == _CUTS - 1:
            await boss.send_command(f"/pause {slow}")
            await boss.wait_for_status(slow, "paused", "completed")
            await boss.send_command(f"/resume {slow}")
        await boss.wait_for_status(urgent, "completed")
        await boss.wait_for_status(slow, "completed")
    first = await boss.start_task(
        'wait 2 seconds, then write "first" to first.txt', status="running"
    )
    later = await boss.start_task('write "later" to later.txt')
    for order in ("pause", "resume", "stop", "retry"):
        await boss.send_command(f"/{order} {later}")
    await boss.send_command(f"/priority {later} urgent")
    await boss.wait_for_status(first, "completed")
    await boss.wait_for_status(later, "completed")


async def _bad_ends(boss: ScriptedUser) -> None:
    """Tasks that are stopped and get stuck; each is tried again."""
    running = await boss.start_task("wait 30 seconds, then wait 31 seconds", status="running")
    await boss.send_command(f"/pause {running}")
    await boss.send_command(f"/resume {running}")
    await boss.send_command(f"/stop {running}")
    stuck = await boss.start_task("prove the Riemann hypothesis", status="blocked")
    await boss.send_command(f"/resume {stuck} by induction")
    await boss.wait_for_status(stuck, "blocked")
    await boss.send_command(f"/pause {stuck}")
    await boss.send_command(f"/stop {stuck}")
    again = await boss.start_task("prove the Goldbach conjecture", status="blocked")
    await boss.send_command(f"/stop {again}")


async def _no_model(boss: ScriptedUser) -> None:
    """Planning fails where no model can be reached, and is refused where there is no key."""
    failing = await boss.start_task("count the stars", status="failed")
    await boss.send_command(f"/retry {failing}")
    await boss.wait_for_status(failing, "failed")
    await boss.channel.send_message("/model claude")
    denied = await boss.start_task("count the sheep", status="blocked")
    await boss.send_command(f"/resume {denied}")
    await boss.wait_for_status(denied, "blocked")
    await boss.send_command(f"/stop {denied}")


async def _asks(boss: ScriptedUser) -> None:
    """Risky steps that are allowed, refused, taken back, put off, and decided by nobody."""
    allowed = await boss.start_task('write "yes" to deploy-yes.txt', status="waiting")
    await boss.channel.press("Approve", about="deploy-yes")
    await boss.wait_for_status(allowed, "completed")
    refused = await boss.start_task('write "no" to deploy-no.txt', status="waiting")
    await boss.channel.press("Reject", about="deploy-no")
    await boss.wait_for_status(refused, "blocked")
    await boss.send_command(f"/stop {refused}")
    taken_back = await boss.start_task('write "back" to deploy-back.txt', status="waiting")
    await boss.send_command(f"/stop {taken_back}")
    put_off = await boss.start_task('write "later" to deploy-later.txt', status="waiting")
    await boss.send_command(f"/pause {put_off}")
    await boss.send_command(f"/resume {put_off}")
    await boss.wait_for_status(put_off, "waiting")
    await boss.send_command("ok")
    await boss.wait_for_status(put_off, "completed")


async def _steered(boss: ScriptedUser) -> None:
    """A word to the worker, a step put in and another plan, each while a step is under way."""
    order = 'wait 1 second, then wait 2 seconds, then write "end" to end.txt'
    task = await boss.start_task(order, status="running")
    await boss.wait_for_row("SELECT 1 FROM node_runs WHERE status = 'running' AND path <> '@plan'")
    await boss.send_command(f"/msg {task} mind the queue")
    await boss.send_command(f'/inject {task} write "more" to more.txt')
    await boss.wait_for_row(
        "SELECT 1 FROM node_runs WHERE status = 'done'"
        " AND json_extract(output, '$.summary') LIKE '%more.txt%'"
    )
    await boss.send_command(f"/replan {task} it takes too long")
    await boss.wait_for_status(task, "completed")


STORIES = (
    CrashStory(
        name="two tasks",
        act=_two_tasks,
        final_statuses={"a.txt": _DONE, "haiku": _DONE},
        files={"a.txt": "one", "b.txt": "two", "notes.txt": "", "haiku.md": ""},
        transitions=(
            "inbox.>new",
            "inbox.new>handled",
            "outbox.>queued",
            "outbox.>shown",
            "outbox.queued>tried",
            "outbox.tried>shown",
            "outbox.shown>queued",
            "button.>open",
            "button.open>used",
        ),
    ),
    CrashStory(
        name="a queue",
        act=_a_queue,
        final_statuses=dict.fromkeys((*_QUEUED, "first.txt", "later.txt"), _DONE),
        files={**_QUEUED, "first.txt": "first", "later.txt": "later"},
        transitions=(
            "task.>pending",
            "task.pending>running",
            "task.pending>paused",
            "task.pending>cancelled",
            "task.running>pending",
            "task.running>paused",
            "task.running>completed",
            "task.paused>pending",
            "task.cancelled>pending",
            "control.>run",
            "control.run>yield",
            "control.yield>run",
            "control.yield>pause",
            "node.running>done",
            "outbox.tried>queued",
            "order.>pause",
            "order.>resume",
            "order.>stop",
            "order.>retry",
            "order.>priority",
        ),
        settings={"SHIFTBOSS_SLOTS": "1"},
    ),
    CrashStory(
        name="bad ends",
        act=_bad_ends,
        final_statuses={
            "30 seconds": ("cancelled",),
            "Riemann": ("cancelled",),
            "Goldbach": ("cancelled",),
        },
        files={},
        transitions=(
            "task.running>blocked",
            "task.running>cancelled",
            "task.paused>cancelled",
            "task.blocked>pending",
            "task.blocked>paused",
            "task.blocked>cancelled",
            "control.run>pause",
            "control.pause>run",
            "node.>running",
            "node.running>pending",
            "node.pending>running",
            "plan.>there",
            "event.>untold",
            "event.untold>told",
        ),
    ),
    CrashStory(
        name="no model",
        act=_no_model,
        final_statuses={"stars": ("failed",), "sheep": ("cancelled",)},
        files={},
        transitions=(
            "task.running>failed",
            "task.failed>pending",
            "node.running>failed",
            "node.failed>pending",
            "node.failed>running",
        ),
        settings={
            "SHIFTBOSS_MODEL": "openai:local-model",
            "OPENAI_API_KEY": "none",
            # Nobody listens there.
            "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        },
    ),
    CrashStory(
        name="asks",
        act=_asks,
        final_statuses={
            "deploy-yes.txt": _DONE,
            "deploy-no.txt": ("cancelled",),
            "deploy-back.txt": ("cancelled",),
            "deploy-later.txt": _DONE,
        },
        files={"deploy-yes.txt": "yes", "deploy-later.txt": "later"},
        transitions=(
            "task.running>waiting",
            "task.waiting>pending",
            "task.waiting>paused",
            "task.waiting>blocked",
            "task.waiting>cancelled",
            "approval.>waiting",
            "approval.waiting>approved",
            "approval.waiting>rejected",
            "approval.waiting>expired",
        ),
    ),
    CrashStory(
        name="steered",
        act=_steered,
        final_statuses={"end.txt": _DONE},
        files={"end.txt": "end", "more.txt": "more"},
        transitions=("order.>message", "order.>inject", "order.>replan"),
    ),
    *OF_GRAPHS,
    *OF_SCHEDULES,
    *OF_WORKERS,
    *OF_MEMORY,
)
