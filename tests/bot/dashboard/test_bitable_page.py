"""The page on which owners set up the Bitable."""

from __future__ import annotations

import pytest

from storage.records.bitable import BitableGap, BitableGapKind, TableRole
from tests.bot.dashboard.accessibility import find_faults
from tests.bot.dashboard.world import DashboardWorld
from tests.fakes.bitable import BASE, FakeBitable

PATH = "/dashboard/setup/bitable"


@pytest.fixture
def bitable(world: DashboardWorld) -> FakeBitable:
    """In place of the real one."""
    fake = FakeBitable()
    object.__setattr__(world.core.services, "bitable", fake)
    return fake


async def test_a_base_is_made_checked_and_left(world: DashboardWorld, bitable: FakeBitable) -> None:
    browser = await world.browser("olga")
    assert PATH in (await browser.get("/dashboard/setup")).text
    first = await browser.get(PATH)
    assert find_faults(first.text) == []

    made = await browser.post(PATH, data={"order": "setup", "token": ""})
    bitable.gaps = (BitableGap(kind=BitableGapKind.OPTION, table=TableRole.TASKS, name="<b>x"),)
    checked = await browser.post(PATH, data={"order": "check"})

    for page in (made, checked):
        assert page.status_code == 200
        assert find_faults(page.text) == []
        assert BASE.url in page.text
    assert "&lt;b&gt;x" in checked.text
    left = await browser.post(PATH, data={"order": "off"})
    assert (left.status_code, left.headers["location"]) == (303, f"{PATH}?note=off")
    assert bitable.base is None


async def test_a_refusal_is_explained(world: DashboardWorld, bitable: FakeBitable) -> None:
    browser = await world.browser("olga")

    refused = await browser.post(PATH, data={"order": "check"})
    bitable.has_feishu = False
    page = await browser.get(PATH)

    assert refused.status_code == 422
    assert "No Bitable is set up" in refused.text
    assert "/dashboard/setup/feishu" in page.text


async def test_members_do_not_see_it(world: DashboardWorld, bitable: FakeBitable) -> None:
    browser = world.program("ann", origin=world.url)

    assert (await browser.get(PATH)).status_code == 403
    assert (await browser.post(PATH, data={"order": "setup"})).status_code == 403
    assert bitable.tokens == []
