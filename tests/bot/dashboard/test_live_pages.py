"""Pages keep up by themselves, in a real browser, and leave alone what somebody uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, Request, Route, expect

from storage.records.people import Channel, PersonRole
from tests.bot.dashboard.test_api import create
from tests.bot.dashboard.test_metrics import use
from tests.bot.dashboard.world import DashboardWorld
from tests.browser import needs_chromium, open_browser
from tests.waiting import WAIT_SECONDS

pytestmark = needs_chromium


@pytest.fixture
async def page(world: DashboardWorld) -> AsyncIterator[Page]:
    """Signed in, with timers that run when a test says so."""
    serving = asyncio.create_task(world.web.run())
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.clock.install()
        await page.goto(world.web.login_url)
        yield page
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def open_live(page: Page, world: DashboardWorld, path: str) -> None:
    async with page.expect_response(lambda answer: "/api/v1/events" in answer.url):
        await page.goto(f"{world.url}/dashboard/{path}")


async def test_a_page_is_made_once_unless_something_happens_before_its_stream(
    world: DashboardWorld, page: Page
) -> None:
    made: list[str] = []

    def count(asked: Request) -> None:
        if asked.url.endswith("/dashboard/tasks"):
            made.append(asked.url)

    page.on("request", count)
    await open_live(page, world, "tasks")
    await page.clock.run_for(1_000)
    at_rest = len(made)

    async def meanwhile(route: Route) -> None:
        await create(world.program(), "in between")
        await route.continue_()

    await page.route("**/api/v1/events*", meanwhile)
    await open_live(page, world, "tasks")
    async with asyncio.timeout(WAIT_SECONDS):
        while not await page.locator("#found", has_text="in between").count():
            await page.clock.run_for(500)

    assert at_rest == 1
    assert len(made) == 3


async def test_costs_follow_events_and_people_and_health_look_again(
    world: DashboardWorld, page: Page
) -> None:
    await open_live(page, world, "costs")
    await page.clock.run_for(1_000)
    await use(world, "gpt-5.2", cost_micros=3_210_000)
    await create(world.program(), "an event")
    model = page.locator("#breakdowns", has_text="gpt-5.2")
    async with asyncio.timeout(WAIT_SECONDS):
        while not await model.count():
            await page.clock.run_for(500)
    await expect(page.locator("#sums")).to_contain_text("3.21")

    await open_live(page, world, "people")
    await page.clock.run_for(1_000)
    unfolded = page.locator("#members details").first
    await unfolded.locator("summary").click()
    await page.locator("h1").click()
    name = page.locator("input[name=name]")
    await name.fill("half a na")
    await world.add_person("zoe", PersonRole.MEMBER)
    await world.core.web_sessions.create_token(world.people["bob"].id, "another")
    await page.locator("h1").click()
    await page.clock.run_for(31_000)
    await expect(page.locator("#members")).to_contain_text("Zoe")
    await expect(unfolded).to_have_attribute("open", "")
    await expect(name).to_have_value("half a na")

    await open_live(page, world, "health")
    await page.clock.run_for(1_000)
    world.core.alerts.report(Channel.WEB, "mail", {"count": 1})
    await page.clock.run_for(31_000)
    await expect(page.locator("#status")).to_contain_text("Web chat: mail")
