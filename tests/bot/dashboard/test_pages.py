"""Every page, in both languages, as its readers get it."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from urllib.parse import urlsplit

from bot.dashboard.app import PAGES
from storage.records.tasks import NewTask, TaskPriority
from tests.bot.dashboard.accessibility import find_faults
from tests.bot.dashboard.test_cost_page import spend
from tests.bot.dashboard.test_people_page import knock
from tests.bot.dashboard.test_task_pages import HOSTILE, create
from tests.bot.dashboard.world import DashboardWorld


async def furnish(world: DashboardWorld) -> str:
    """Something for every page to show; returns the path of a task's page."""
    now = world.core.clock.now()
    task = await create(world, HOSTILE, files=("files/inbox/1/plan.txt",))
    for days in range(3):
        await spend(world, "olga", now - timedelta(days=days), 1_000_000, task=task.id)
    await knock(world, HOSTILE)
    folder = world.core.settings.home / "workflows"
    folder.mkdir()
    (folder / "note.yaml").write_text(f"name: {HOSTILE!r}\nnodes: [{{id: a, name: {HOSTILE!r}}}]")
    (folder / "bad.yaml").write_text(f"name: {HOSTILE!r}\nnodes: [{{id: a, type: {HOSTILE!r}}}]")
    return f"/dashboard/tasks/{task.id}"


async def test_every_page_opens_in_both_languages_within_its_bytes_and_for_everybody(
    world: DashboardWorld,
) -> None:
    browser = await world.browser("olga")
    names = (
        "note",
        "note/versions",
        "bad",
        "bad/edit",
        "-/edit",
        "-/import",
        "-/gallery",
        "-/triggers",
    )
    paths = [f"/dashboard/workflows/{each}" for each in (*names, "-/gallery?show=release")]
    paths += [
        "/dashboard/tasks?view=board",
        "/dashboard/costs?period=quarter",
        await furnish(world),
    ]
    in_menu = [page.path for page in PAGES if page.in_menu]
    for path, language in product((*in_menu, *paths), ("en", "zh")):
        page = await browser.get(path, params=f"{urlsplit(path).query}&language={language}")

        assert page.status_code == 200, path
        assert f'<html lang="{language}">' in page.text
        assert 'aria-current="page"' in page.text
        assert page.headers["cache-control"] == "no-store"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert " style=" not in page.text
        assert " onclick=" not in page.text
        assert "<script>alert" not in page.text
        assert 'href="javascript' not in page.text
        assert len(page.content) < 30_000
        assert (path, find_faults(page.text)) == (path, [])


async def test_an_unknown_page_says_where_to_go(world: DashboardWorld) -> None:
    page = await (await world.browser()).get("/dashboard/nope<b>")

    assert page.status_code == 404
    assert find_faults(page.text) == []
    assert "<b>" not in page.text.partition("<main")[2].replace("<body", "")


async def test_the_web_chat_is_offered_to_whom_it_belongs(world: DashboardWorld) -> None:
    for name, links in (("", 1), ("olga", 0)):
        page = await (await world.browser(name)).get("/dashboard")

        assert page.text.count('<a href="/">') == links


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
