"""Every page passes axe-core, the checker that most tools for accessibility are built on."""

from __future__ import annotations

import asyncio
from importlib.resources import files

from playwright.async_api import Page

from bot.dashboard.app import PAGES
from bot.dashboard.pages.settings import PATH as SETTINGS
from tests.bot.dashboard.test_pages import furnish
from tests.bot.dashboard.world import TOKEN, DashboardWorld
from tests.browser import needs_chromium, open_browser, open_visitor
from tests.thoroughness import THOROUGH

WINDOWS = (
    ("en", "light", {"width": 1280, "height": 900}),
    ("zh", "dark", {"width": 390, "height": 844}),
    ("zh", "light", {"width": 1280, "height": 900}),
    ("en", "dark", {"width": 390, "height": 844}),
)
MORE = (
    "/",
    "/dashboard/tasks?view=board",
    "/dashboard/costs?period=quarter",
    "/dashboard/workflows/note",
    "/dashboard/workflows/bad",
    "/dashboard/workflows/-/edit",
    "/dashboard/setup/telegram",
    "/dashboard/setup/feishu",
    "/dashboard/setup?kind=local",
    f"{SETTINGS}?group=tools",
    "/dashboard/nothing",
)
RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => `${each.id}: ${each.nodes.slice(0, 3).map(node => node.html).join(" | ")}`)"""


@needs_chromium
async def test_no_page_has_a_serious_fault(world: DashboardWorld) -> None:
    """Each page in one of two windows; in all four with SHIFTBOSS_THOROUGH."""
    paths = [*(page.path for page in PAGES if page.in_menu), *MORE, await furnish(world)]
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    serving = asyncio.create_task(world.web.run())
    faults: dict[tuple[str, ...], list[str]] = {}
    async with open_browser() as browser:
        for number, (language, scheme, size) in enumerate(WINDOWS if THOROUGH else WINDOWS[:2]):
            visitor = await open_visitor(browser, color_scheme=scheme, viewport=size)
            await visitor.page.goto(f"{world.url}/?token={TOKEN}&language={language}")
            for path in paths if THOROUGH else paths[number::2]:
                found = await check(visitor.page, f"{world.url}{path}", axe)
                if found:
                    faults[path, language, scheme] = found
            await visitor.context.close()
    serving.cancel()
    await asyncio.wait([serving])
    assert faults == {}


async def check(page: Page, url: str, axe: str) -> list[str]:
    """Faults in words; and what does not fit into the window."""
    await page.goto(url)
    await page.evaluate(axe)
    wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*await page.evaluate(RUN), *(["wider than the window"] if wide else [])]
