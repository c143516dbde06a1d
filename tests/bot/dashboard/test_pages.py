"""Every page, in both languages, as its readers get it."""

from __future__ import annotations

import pytest

from bot.dashboard.app import PAGES
from storage.records.tasks import NewTask, TaskPriority
from tests.bot.dashboard.world import DashboardWorld

HOSTILE = "<script>alert(1)</script> {{ 7 * 7 }} \u202e`x` [x](javascript:alert(1))"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("path", [page.path for page in PAGES if page.in_menu])
async def test_a_page_opens_in_both_languages_within_its_bytes(
    world: DashboardWorld, path: str, language: str
) -> None:
    page = await (await world.browser("olga")).get(path, params={"language": language})

    assert page.status_code == 200
    assert f'<html lang="{language}">' in page.text
    assert 'aria-current="page"' in page.text
    assert page.headers["cache-control"] == "no-store"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert " style=" not in page.text
    assert " onclick=" not in page.text
    assert len(page.content) < 30_000


async def test_an_unknown_page_says_where_to_go(world: DashboardWorld) -> None:
    page = await (await world.browser()).get("/dashboard/nope<b>")

    assert page.status_code == 404
    assert "<b>" not in page.text.partition("<main")[2].replace("<body", "")


async def test_hostile_names_are_only_text(world: DashboardWorld) -> None:
    local = await world.core.get_local_chat()
    await world.core.services.tasks.create(
        NewTask(
            title=HOSTILE,
            instruction=HOSTILE,
            chat_id=local.id,
            created_by=world.people["olga"].id,
            priority=TaskPriority.NORMAL,
            source="test:1",
        )
    )

    page = await (await world.browser("olga")).get("/dashboard")

    assert "<script>alert" not in page.text
    assert "49" not in page.text.partition("<main")[2]


async def test_styles_are_served_and_nothing_else(world: DashboardWorld) -> None:
    browser = await world.browser()

    assert (await browser.get("/dashboard/static/dashboard.css?v=1")).status_code == 200
    assert (await browser.get("/dashboard/static/..%2Fapp.py")).status_code == 404
    assert (await world.client().get("/dashboard/static/dashboard.css")).status_code == 401
