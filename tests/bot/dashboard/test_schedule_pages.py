"""The pages of schedules: adding by words, the calendar, and every order."""

from __future__ import annotations

import re

import pytest

from storage.records.schedules import ScheduleState
from tests.bot.dashboard.test_task_pages import HOSTILE
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/schedule"


async def add(world: DashboardWorld, text: str, source: str = "") -> str:
    """The path of the proposal's page."""
    browser = await world.browser("olga")
    added = await browser.post(PAGE, data={"text": text, "source": source})
    assert added.status_code == 303, added.text
    return str(added.headers["location"])


async def state(world: DashboardWorld, path: str) -> ScheduleState:
    chat = await world.core.repositories.chats.get_private(world.people["olga"].id)
    services = world.core.services
    view = await services.schedules.find(
        path.rpartition("/")[2], by=world.people["olga"], chat=chat.id
    )
    return view.schedule.state


async def test_what_was_understood_is_shown_before_it_counts(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    path = await add(world, "every day at 8:30 send me the news", "s1")
    assert await add(world, "every day at 8:30 send me the news", "s1") == path

    echo = await browser.get(path)
    assert len(re.findall(r"\b08:30", echo.text)) >= 3
    assert 'value="confirm"' in echo.text
    assert path not in (await browser.get(PAGE)).text
    await browser.post(path, data={"order": "confirm"})

    page = await browser.get(PAGE)
    days = set(re.findall(r'<time datetime="(\d{4}-\d\d-\d\d)">', page.text))
    assert len(days) == 28
    assert page.text.count(f'href="{path}"') >= 28
    assert len(page.content) < 30_000


async def test_every_order_is_carried_out_once(world: DashboardWorld) -> None:
    path = await add(world, "every day at 8:30 send me the news")
    browser = await world.browser("olga")

    async def order(name: str, **more: str) -> int:
        return (await browser.post(path, data={"order": name, **more})).status_code

    assert await order("pause") == 409
    assert await order("confirm") == 303
    assert await order("pause") == 303
    assert await state(world, path) is ScheduleState.PAUSED
    assert await order("resume") == 303
    shown = re.search(r'name="due_at" value="([^"]+)"', (await browser.get(path)).text)
    assert shown is not None
    assert [await order("skip", due_at=shown[1]) for _ in range(2)] == [303, 303]
    assert (await browser.get(path)).text.count("skipped by you") == 1
    assert await order("skip", due_at="rubbish") == 303
    asked = re.search(r'name="asked_at" value="([^"]+)"', (await browser.get(path)).text)
    assert asked is not None
    assert [await order("run", asked_at=asked[1]) for _ in range(2)] == [303, 303]
    assert (await browser.get(path)).text.count('href="/dashboard/tasks/') == 1
    for rubbish in ("", "explode", "confirm "):
        assert await order(rubbish) in {303, 422}
    assert await order("delete") == 303
    assert path not in (await browser.get(PAGE)).text
    assert await order("run") == 409


async def test_frequent_ones_do_not_fill_the_calendar(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    for number in range(25):
        path = await add(world, f"every 10 minutes look at {HOSTILE} {number}")
        await browser.post(path, data={"order": "confirm"})

    page = await browser.get(PAGE)
    second = await browser.get(PAGE, params={"page": "1"})

    assert "Too frequent for the calendar" in page.text
    assert len(page.content) < 30_000
    assert "<script>alert" not in page.text
    assert page.text != second.text
    for rubbish in ("x", "-1", "9" * 400, "²"):
        assert (await browser.get(PAGE, params={"page": rubbish})).status_code == 200


@pytest.mark.parametrize("text", ["", "hello there", "every day at 8:30", "x" * 5_000])
async def test_words_without_a_time_or_a_subject_are_refused(
    world: DashboardWorld, text: str
) -> None:
    refused = await (await world.browser("olga")).post(PAGE, data={"text": text})

    assert refused.status_code == 422


async def test_others_have_no_part_in_it(world: DashboardWorld) -> None:
    path = await add(world, "every day at 8:30 send me the news")

    assert (await world.program("ann").get(PAGE)).status_code == 403
    assert (await world.program("ann").get(path)).status_code == 403
    assert (await (await world.browser("olga")).get(f"{PAGE}/zzzzzz")).status_code == 404
