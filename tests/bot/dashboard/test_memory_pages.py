"""The pages of memory: finding, adding, and changes that others have overtaken."""

from __future__ import annotations

import re

import httpx

from tests.bot.dashboard.test_task_pages import HOSTILE
from tests.bot.dashboard.world import DashboardWorld

PAGE = "/dashboard/memory"


async def add(browser: httpx.AsyncClient, text: str, source: str = "") -> str:
    added = await browser.post(PAGE, data={"text": text, "scope": "me", "source": source})
    assert added.status_code == 303, added.text
    return str(added.headers["location"])


def revision(page: httpx.Response) -> str:
    found = re.search(r'name="revision" value="(\d+)"', page.text)
    assert found is not None
    return found[1]


async def test_entries_are_added_once_found_pinned_and_forgotten(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    cat = await add(browser, "The cat is called Tilly", "s1")
    assert await add(browser, "The cat is called Tilly", "s1") == cat

    for query in ({}, {"text": "Tilly"}, {"kind": "longterm", "scope": "me"}):
        assert cat in (await browser.get(PAGE, params=query)).text
    assert cat not in (await browser.get(PAGE, params={"kind": "episodes"})).text
    shown = revision(await browser.get(cat))
    pin = {"order": "pin", "revision": shown}
    assert (await browser.post(cat, data=pin)).status_code == 303
    assert 'value="unpin"' in (await browser.get(cat)).text
    stale = await browser.post(cat, data={"order": "forget", "revision": shown})
    assert stale.status_code == 409
    assert f'href="{cat}"' in stale.text
    forget = {"order": "forget", "revision": revision(await browser.get(cat))}
    assert (await browser.post(cat, data=forget)).status_code == 303
    assert (await browser.get(cat)).status_code == 404


async def test_an_edit_that_was_overtaken_shows_both_texts(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    cat = await add(browser, "The cat is called Tilly")

    first = await browser.post(cat, data={"order": "edit", "text": "It is Milly", "revision": "1"})
    second = await browser.post(cat, data={"order": "edit", "text": "It is Lilly", "revision": "1"})

    assert (first.status_code, second.status_code) == (303, 409)
    assert "It is Milly" in second.text
    assert "It is Lilly" in second.text
    for rubbish in ("", "0", "x", "9" * 40):
        form = {"order": "edit", "text": "No", "revision": rubbish}
        assert (await browser.post(cat, data=form)).status_code == 409
    assert "It is Milly" in (await browser.get(cat)).text


async def test_nobody_reaches_what_is_not_theirs(world: DashboardWorld) -> None:
    olga, local = await world.browser("olga"), await world.browser()
    cat = await add(olga, "The cat is called Tilly")

    assert (await local.get(cat)).status_code == 404
    assert (await local.post(cat, data={"order": "forget", "revision": "1"})).status_code == 404
    assert (await world.program("ann").get(cat)).status_code == 403
    assert "Tilly" in (await olga.get(cat)).text


async def test_long_and_hostile_entries_stay_text_within_a_page(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    path = PAGE
    for number in range(25):
        path = await add(browser, f"{HOSTILE} {number} " + "长" * 900)

    for page in (await browser.get(PAGE), await browser.get(path)):
        assert page.status_code == 200
        assert len(page.content) < 30_000
        assert "<script>alert" not in page.text
        assert 'href="javascript' not in page.text
    for query in ({"kind": "x", "scope": "y", "page": "-1"}, {"page": "9" * 99}, {"text": '"*('}):
        assert (await browser.get(PAGE, params=query)).status_code == 200
    said = await browser.get(PAGE, params={"kind": "messages", "text": "cat"})
    assert said.status_code == 200
    assert (await browser.post(path, data={"order": "explode"})).status_code == 422
    assert (await browser.post(PAGE, data={"text": " "})).status_code == 422
