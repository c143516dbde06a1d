"""Stories of tasks, queues and decisions, and all stories there are."""

from __future__ import annotations

from tests.chaos.boss import Boss, Story
from tests.chaos.graphs import STORIES as OF_GRAPHS
from tests.chaos.memory.stories import STORIES as OF_MEMORY
from tests.chaos.workers.stories import STORIES as OF_WORKERS

NOTES = b"The queue was long. The queue was kind. Nobody in the queue was in a hurry at all."
_DONE = ("completed",)
# The first to be cut in on dies as it is asked to make room, the second as it goes on, the third
# is paused.
_CUTS = 3
_QUEUED = {f"{name}-{n}.txt": str(n) for name in ("slow", "now") for n in range(_CUTS)}


async def _two_tasks(boss: Boss) -> None:
    """A task with a file by command, another one by plain words and a press."""
    steps = 'write "one" to a.txt, then write "two" to b.txt, then summarise notes.txt'
    await boss.front.says(f"/run {steps}", file=("notes.txt", NOTES))
    await boss.front.says("Write a haiku about queues and save it to haiku.md")
    await boss.front.presses("Start")
    await boss.until("SELECT 1 WHERE (SELECT count(*) FROM tasks WHERE status='completed') = 2")


async def _a_queue(boss: Boss) -> None:
    """One slot: urgent work cuts in again and again, what makes room for it is paused once, and
    what waits is paused, stopped, tried again and reordered."""
    for n in range(_CUTS):
        slow = await boss.runs(f'-p normal wait 1 second, then write "{n}" to slow-{n}.txt')
        await boss.is_now(slow, "running")
        urgent = await boss.runs(f'-p urgent write "{n}" to now-{n}.txt')
        if n == _CUTS - 1:
            await boss.orders(f"/pause {slow}")
            await boss.is_now(slow, "paused", "completed")
            await boss.orders(f"/resume {slow}")
        await boss.is_now(urgent, "completed")
        await boss.is_now(slow, "completed")
    first = await boss.runs('wait 2 seconds, then write "first" to first.txt', status="running")
    later = await boss.runs('write "later" to later.txt')
    for order in ("pause", "resume", "stop", "retry"):
        await boss.orders(f"/{order} {later}")
    await boss.orders(f"/priority {later} urgent")
    await boss.is_now(first, "completed")
    await boss.is_now(later, "completed")


async def _bad_ends(boss: Boss) -> None:
    """Tasks that are stopped and get stuck; each is tried again."""
    running = await boss.runs("wait 30 seconds, then wait 31 seconds", status="running")
    await boss.orders(f"/pause {running}")
    await boss.orders(f"/resume {running}")
    await boss.orders(f"/stop {running}")
    stuck = await boss.runs("prove the Riemann hypothesis", status="blocked")
    await boss.orders(f"/resume {stuck} by induction")
    await boss.is_now(stuck, "blocked")
    await boss.orders(f"/pause {stuck}")
    await boss.orders(f"/stop {stuck}")
    again = await boss.runs("prove the Goldbach conjecture", status="blocked")
    await boss.orders(f"/stop {again}")


async def _no_model(boss: Boss) -> None:
    """Planning fails where no model can be reached, and is refused where there is no key."""
    failing = await boss.runs("count the stars", status="failed")
    await boss.orders(f"/retry {failing}")
    await boss.is_now(failing, "failed")
    await boss.front.says("/model claude")
    denied = await boss.runs("count the sheep", status="blocked")
    await boss.orders(f"/resume {denied}")
    await boss.is_now(denied, "blocked")
    await boss.orders(f"/stop {denied}")


async def _asks(boss: Boss) -> None:
    """Risky steps that are allowed, refused, taken back, put off, and decided by nobody."""
    allowed = await boss.runs('write "yes" to deploy-yes.txt', status="waiting")
    await boss.front.presses("Approve", about="deploy-yes")
    await boss.is_now(allowed, "completed")
    refused = await boss.runs('write "no" to deploy-no.txt', status="waiting")
    await boss.front.presses("Reject", about="deploy-no")
    await boss.is_now(refused, "blocked")
    await boss.orders(f"/stop {refused}")
    taken_back = await boss.runs('write "back" to deploy-back.txt', status="waiting")
    await boss.orders(f"/stop {taken_back}")
    put_off = await boss.runs('write "later" to deploy-later.txt', status="waiting")
    await boss.orders(f"/pause {put_off}")
    await boss.orders(f"/resume {put_off}")
    await boss.is_now(put_off, "waiting")
    await boss.orders("ok")
    await boss.is_now(put_off, "completed")


async def _steered(boss: Boss) -> None:
    """A word to the worker, a step put in and another plan, each while a step is under way."""
    order = 'wait 1 second, then wait 2 seconds, then write "end" to end.txt'
    task = await boss.runs(order, status="running")
    await boss.until("SELECT 1 FROM node_runs WHERE status = 'running' AND path <> '@plan'")
    await boss.orders(f"/msg {task} mind the queue")
    await boss.orders(f'/inject {task} write "more" to more.txt')
    await boss.until(
        "SELECT 1 FROM node_runs WHERE status = 'done'"
        " AND json_extract(output, '$.summary') LIKE '%more.txt%'"
    )
    await boss.orders(f"/replan {task} it takes too long")
    await boss.is_now(task, "completed")


STORIES = (
    Story(
        name="two tasks",
        live=_two_tasks,
        ends={"a.txt": _DONE, "haiku": _DONE},
        files={"a.txt": "one", "b.txt": "two", "notes.txt": "", "haiku.md": ""},
        moves=(
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
    Story(
        name="a queue",
        live=_a_queue,
        ends=dict.fromkeys((*_QUEUED, "first.txt", "later.txt"), _DONE),
        files={**_QUEUED, "first.txt": "first", "later.txt": "later"},
        moves=(
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
    Story(
        name="bad ends",
        live=_bad_ends,
        ends={
            "30 seconds": ("cancelled",),
            "Riemann": ("cancelled",),
            "Goldbach": ("cancelled",),
        },
        files={},
        moves=(
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
    Story(
        name="no model",
        live=_no_model,
        ends={"stars": ("failed",), "sheep": ("cancelled",)},
        files={},
        moves=(
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
    Story(
        name="asks",
        live=_asks,
        ends={
            "deploy-yes.txt": _DONE,
            "deploy-no.txt": ("cancelled",),
            "deploy-back.txt": ("cancelled",),
            "deploy-later.txt": _DONE,
        },
        files={"deploy-yes.txt": "yes", "deploy-later.txt": "later"},
        moves=(
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
    Story(
        name="steered",
        live=_steered,
        ends={"end.txt": _DONE},
        files={"end.txt": "end", "more.txt": "more"},
        moves=("order.>message", "order.>inject", "order.>replan"),
    ),
    *OF_GRAPHS,
    *OF_WORKERS,
    *OF_MEMORY,
)
