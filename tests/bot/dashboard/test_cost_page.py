"""The page of costs: figures by day, model, task and person, as bars and as tables."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from storage.records.tasks import TaskId
from storage.records.usage import UsageRecord
from tests.bot.dashboard.test_task_pages import create
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/costs"


async def spend(
    world: DashboardWorld,
    who: str,
    at: datetime,
    micros: int | None,
    *,
    model: str = "large",
    task: TaskId | None = None,
) -> None:
    store = world.core.repositories
    chat = await store.chats.get_private(world.people[who].id)
    record = UsageRecord(
        at=at,
        purpose="step",
        backend="api",
        model=model,
        person_id=world.people[who].id,
        chat_id=chat.id,
        task_id=task,
        requests=1,
        input_tokens=900,
        output_tokens=100,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cost_micros=micros,
    )
    async with store.db.write() as tx:
        await store.usage.add(tx, record)


def heights(page: str) -> list[int]:
    chart = page.partition('class="chart"')[2].partition("</svg>")[0]
    return [int(each) for each in re.findall(r'height="(\d+)"', chart)]


async def test_costs_are_shown_by_time_model_task_and_person(world: DashboardWorld) -> None:
    now = world.core.clock.now()
    task = await create(world, "<b>Report</b>")
    await spend(world, "olga", now, 3_000_000, task=task.id)
    await spend(world, "ann", now - timedelta(days=2), 1_000_000, model="small<i>")

    browser = await world.browser("olga")
    page = (await browser.get(PAGE, params={"period": "quarter"})).text

    assert heights(page) == [33, 0, 100]
    assert f'href="/dashboard/tasks/{task.id}"' in page
    assert "&lt;b&gt;Report" in page
    assert "small&lt;i&gt;" in page
    assert "<td>75%</td>" in page
    assert ">Ann<svg" in page
    assert len(heights((await browser.get(PAGE, params={"period": "all"})).text)) == 3
    assert (
        "Ann"
        not in (await browser.get(PAGE, params={"period": "today"})).text.partition("<main")[2]
    )
    assert (await browser.get(PAGE, params={"period": "'; drop"})).status_code == 200


async def test_years_are_summed_by_month_and_tokens_stand_for_unknown_costs(
    world: DashboardWorld,
) -> None:
    now = world.core.clock.now()
    for days, times in ((0, 1), (400, 2)):
        for n in range(times):
            await spend(world, "olga", now - timedelta(days=days, seconds=n), None)

    page = (await (await world.browser("olga")).get(PAGE, params={"period": "all"})).text

    assert heights(page) == [100, 50]
    assert f"{now - timedelta(days=400):%Y-%m}" in page
    assert "unknown price" in page
