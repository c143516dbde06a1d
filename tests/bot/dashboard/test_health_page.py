"""The page of health, with the log, and the live first page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.config.logs import read_newest_lines
from storage.records.tasks import TaskStatus
from tests.bot.dashboard.test_task_pages import create
from tests.bot.dashboard.world import DashboardWorld
from tests.fakes.self_check import FakeDoctor, FakeSelfCheck

PAGE = "/dashboard/health"


@pytest.fixture
def ill(world: DashboardWorld) -> tuple[FakeSelfCheck, FakeDoctor]:
    """The disk of this world is low."""
    self_check, doctor = FakeSelfCheck(), FakeDoctor()
    services = replace(world.core.services, self_check=self_check, doctor=doctor)
    object.__setattr__(world.core, "services", services)
    return self_check, doctor


async def test_health_shows_findings_and_acts_on_them(
    world: DashboardWorld, ill: tuple[FakeSelfCheck, FakeDoctor]
) -> None:
    self_check, doctor = ill
    browser = await world.browser("olga")

    page = (await browser.get(PAGE)).text
    checked = await browser.post(PAGE, data={"order": "check"})
    examined = await browser.post(PAGE, data={"order": "doctor"})
    await browser.post(PAGE, data={"order": "doctor_fix"})
    repaired = await browser.post(PAGE, data={"order": "repair", "which": "1"})

    assert page.count("of disk space left") == 2  # of the check, and as a problem that lasts
    assert "costs a little" in page
    assert (checked.status_code, self_check.checks) == (303, 1)
    assert "The doctor&#39;s report" in examined.text
    assert doctor.fixed == [False, True]
    assert repaired.headers["location"] == f"/dashboard/tasks/{self_check.tasks[0]}"
    for wrong in ({}, {"order": "repair", "which": "²"}, {"order": "repair", "which": "99"}):
        assert (await browser.post(PAGE, data=wrong)).status_code in {404, 422}
    for order in ("check", "doctor"):
        refused = await world.program("ann").post(PAGE, data={"order": order})
        assert refused.status_code == 403
    assert (self_check.checks, len(doctor.fixed)) == (1, 2)


async def test_the_newest_log_lines_are_text(world: DashboardWorld) -> None:
    home = world.core.settings.home
    browser = await world.browser("olga")
    assert "Nothing has been logged" in (await browser.get(PAGE)).text
    (home / "logs").mkdir(exist_ok=True)
    lines = [f"line {n} <script>" for n in range(9000)]
    (home / "logs/shiftboss.log").write_text("\n".join(lines), encoding="utf-8")

    page = (await browser.get(PAGE)).text

    assert page.index("line 8999 &lt;script&gt;") < page.index("line 8998 ")
    assert "line 8900 " not in page
    assert len(page) < 30_000
    # Only whole lines of the part that was read.
    assert all(each.startswith("line ") for each in read_newest_lines(home, 9000))


async def test_the_first_page_keeps_up_and_leads_on(world: DashboardWorld) -> None:
    task = await create(world, "Water the plants")
    store = world.core.repositories
    async with store.db.write() as tx:
        locked = await store.work.tasks.lock(tx, task.id)
        await store.work.tasks.update(tx, locked, status=TaskStatus.RUNNING)
    page = (await (await world.browser("olga")).get("/dashboard")).text

    assert "data-live" in page
    assert page.count("data-part") == 4
    assert f'href="/dashboard/tasks/{task.id}"' in page
