"""The processor time and the bytes of each page of the dashboard."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from playwright.async_api import Page
from sqlalchemy import insert

from benchmarks.figures import Figure, LeftOut, Measurement, Scale, at_most
from bot.dashboard.app import PAGES
from storage import schema
from storage.records.tasks import EventKind, NewTask, TaskId, TaskPriority, TaskStatus
from storage.tasks import new_task_row
from tests.bot.dashboard.world import DashboardWorld, dashboard_world
from tests.browser import CHROMIUM, open_browser

_TASKS = 10_000
_EVENTS_EACH = 10
_CALLS_EACH = 2
_TIMES = 7
_VISITS = 5
_DAYS = 80
_TIME_BAR = at_most(300)
_BYTES_BAR = at_most(30)
_MORE_PATHS = ("/dashboard/tasks?view=board", "/dashboard/tasks?show=all&text=chairs")
_COSTS = "/dashboard/costs?period=all"
_FIRST_PAINT = """() => new Promise(resolve => {
    new PerformanceObserver(list => list.getEntriesByName('first-contentful-paint')
        .forEach(paint => resolve(paint.startTime))).observe({type: 'paint', buffered: true})
})"""
_STATUSES = (
    *(TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.BLOCKED, TaskStatus.FAILED),
    *[TaskStatus.COMPLETED] * 16,
)


async def measure(scale: Scale) -> list[Measurement]:
    """Every page of the dashboard for an owner, with 10,000 tasks, 100,000 events and 20,000 model
    calls of 80 days in the store. The time is that of the processor for the whole request in this
    process (access control, queries with their threads, template, HTTP), without pictures, styles
    and scripts, which the browser keeps; the median of seven requests after a first one. The bytes
    are those of the HTML, uncompressed. *First paint* is what Chromium reports (Paint Timing, first
    contentful paint) of the same pages over loopback, in a window of 1280 x 800 px, from the click
    to the first text on the screen: wall time, with the browser on the same processor; the median
    of five visits after a first one."""
    tasks, times = scale.pick((_TASKS, _TIMES), (30, 2))
    with tempfile.TemporaryDirectory() as folder:
        async with dashboard_world(Path(folder)) as world:
            await _fill(world, tasks)
            browser = await world.browser("olga")
            in_menu = [page.path for page in PAGES if page.in_menu]
            figures: list[Measurement] = []
            paths = (*in_menu, *_MORE_PATHS, _COSTS, "/dashboard/tasks/t0")
            for path in paths:
                await browser.get(path)
                took: list[float] = []
                size = 0
                for _ in range(times):
                    begun = time.process_time()
                    page = await browser.get(path)
                    took.append(1000 * (time.process_time() - begun))
                    page.raise_for_status()
                    size = len(page.content)
                figures += [
                    Figure(path, median(took), "ms", _TIME_BAR),
                    Figure(f"{path}, HTML", size / 1000, "kB", _BYTES_BAR),
                ]
            painted = scale.pick(paths, paths[:1])
            return [*figures, *await _measure_paints(world, painted, scale.pick(_VISITS, 1))]


async def _measure_paints(
    world: DashboardWorld, paths: Sequence[str], visits: int
) -> Sequence[Measurement]:
    if CHROMIUM is None:
        return [LeftOut("first paint", "there is no Chromium on this machine")]
    serving = asyncio.create_task(world.web.run())
    figures: list[Measurement] = []
    try:
        async with open_browser() as browser:
            page = await browser.new_page(viewport={"width": 1280, "height": 800})
            await page.goto(world.web.login_url)
            for path in paths:
                took = [await _paint(page, world.url + path) for _ in range(visits + 1)]
                name = f"{path}, first paint"
                figures.append(Figure(name, median(took[1:]), "ms", _TIME_BAR))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    return figures


async def _paint(page: Page, url: str) -> float:
    """Milliseconds from the begin of the navigation to the first text or picture."""
    await page.goto(url)
    return float(await page.evaluate(_FIRST_PAINT))


async def _fill(world: DashboardWorld, tasks: int) -> None:
    person = world.people["olga"]
    chat = await world.core.repositories.chats.get_private(person.id)
    base = world.core.clock.now() - timedelta(days=_DAYS)
    ids = [TaskId(f"t{n}") for n in range(tasks)]
    rows = []
    for n, task_id in enumerate(ids):
        new = NewTask(
            title=f"Task {n}: count the chairs in the hall and write them down",
            instruction="Count the chairs",
            priority=TaskPriority.NORMAL,
            chat_id=chat.id,
            created_by=person.id,
            source=f"filled:{n}",
        )
        created = base + timedelta(days=_DAYS) * n / tasks
        row = new_task_row(new, task_id, created)
        rows.append({**row, "status": _STATUSES[n % len(_STATUSES)]})
    calls = [row for n, each in enumerate(ids) for row in _calls(n, each, rows[n]["created_at"])]
    for row in calls:
        row |= {"person_id": person.id, "chat_id": chat.id}
    events = [
        {"task_id": each, "kind": EventKind.NOTE, "text": "A note about it", "at": base}
        for each in ids
        for _ in range(_EVENTS_EACH)
    ]
    async with world.core.repositories.db.write() as tx:
        await tx.execute(insert(schema.tasks), rows)
        await tx.execute(insert(schema.events), events)
        await tx.execute(insert(schema.usage), calls)


def _calls(number: int, task_id: TaskId, at: datetime) -> Iterator[dict[str, Any]]:
    for n in range(_CALLS_EACH):
        yield {
            "at": at + timedelta(minutes=n),
            "purpose": "step",
            "backend": "api",
            "model": f"model-{number % 5}",
            "task_id": task_id,
            "requests": 1,
            "input_tokens": 9_000,
            "output_tokens": 700,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "cost_micros": 1_000 * (number % 90),
        }
