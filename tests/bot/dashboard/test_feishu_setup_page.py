"""Connecting Feishu in the running program: by the page and by the API, against the emulated
platforms."""

from __future__ import annotations

import asyncio
import re
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from pathlib import Path

import httpx
import pytest

from bot.config.settings import load_with_env_file
from storage.records.people import Channel, PersonRole
from tests.bot.dashboard.world import DashboardWorld, dashboard_world
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut
from tests.emulators.feishu.registration import PATH
from tests.waiting import wait_until

PAGE = "/dashboard/setup/feishu"
API = "/api/v1/setup/feishu"
CONNECTED = "</code> is connected."


@pytest.fixture
async def feishu() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator("cli_new", "the-new-secret") as emulator:
        emulator.registration.interval = 0.02
        yield emulator


@pytest.fixture
async def lark(feishu: FeishuEmulator) -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator("cli_lark", "the-lark-secret", is_lark=True) as emulator:
        feishu.registration.share_codes_with(emulator.registration)
        yield emulator


@asynccontextmanager
async def opened(
    home: Path, feishu: FeishuEmulator, lark: FeishuEmulator, **settings: str
) -> AsyncIterator[DashboardWorld]:
    named = {"FEISHU_DOMAIN": feishu.domain, "LARK_DOMAIN": lark.domain, **settings}
    async with dashboard_world(home, **named) as world, AsyncExitStack() as stack:
        assert world.core.reloader.channels is not None
        # The web chat is served already.
        world.core.transports.pop(Channel.WEB)
        services = (world.core.outbox_sender, world.core.reloader.channels.supervisor)
        for each in services:
            await each.start(stack)
        running = [asyncio.create_task(each.run()) for each in services]
        try:
            yield world
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def world(
    tmp_path: Path, feishu: FeishuEmulator, lark: FeishuEmulator
) -> AsyncIterator[DashboardWorld]:
    async with opened(tmp_path, feishu, lark) as world:
        yield world


async def order(browser: httpx.AsyncClient, name: str, **fields: str) -> httpx.Response:
    return await browser.post(PAGE, data={"order": name, **fields})


async def look(browser: httpx.AsyncClient, **query: str) -> str:
    page = await browser.get(PAGE, params=query)
    assert page.status_code == 200
    return page.text


def code_url(page: str) -> str:
    return unescape(re.findall(r'href="(http[^"]+user_code=[^"]+)"', page)[0])


async def show_code(browser: httpx.AsyncClient) -> str:
    """The address in the code."""
    assert (await order(browser, "show_code")).status_code == 303
    page = await look(browser)
    assert 'class="qr"' in page
    return code_url(page)


async def wait_for_page(browser: httpx.AsyncClient, words: str) -> str:
    async def is_shown() -> bool:
        return words in unescape(await look(browser))

    await wait_until(is_shown)
    return unescape(await look(browser))


def read_env(world: DashboardWorld) -> str:
    path = world.core.settings.home / ".env"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


async def test_whoever_scans_the_code_has_an_app_connected_and_is_an_owner(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    browser, other = await world.browser(), await world.browser("olga")
    boss = feishu.user("Boss")

    url = await show_code(browser)
    seen = await look(browser) + await look(other)
    feishu.registration.scan(url, boss)
    done = await wait_for_page(browser, CONNECTED)

    home = world.core.settings.home
    stored = load_with_env_file(home, home / ".env")
    assert (stored.feishu_app_id, stored.owners) == ("cli_new", f"feishu:{boss.open_id}")
    assert stored.feishu_app_secret.get_secret_value() == "the-new-secret"
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    person = await world.core.repositories.people.find_by_account(Channel.FEISHU, boss.open_id)
    assert person is not None
    assert person.role is PersonRole.OWNER
    assert "is now an owner" in done
    device_code = feishu.registration.newest.device_code
    log = await world.core.services.feishu_setup.check()
    assert [each.is_done for each in log] == [True] * 6
    for text in (seen, done):
        assert device_code not in text
        assert "the-new-secret" not in text


async def test_a_code_is_seen_only_in_the_session_that_showed_it(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    mine, other, olga = await world.browser(), await world.browser(), await world.browser("olga")

    url = await show_code(mine)
    assert "user_code" in await look(mine), "a page that is loaded again shows it again"
    assert code_url(await look(mine)) == url
    for stranger in (other, olga):
        assert "user_code" not in await look(stranger)
        assert "shown in another session" in await look(stranger)
        await order(stranger, "cancel")
    assert code_url(await look(mine)) == url, "nobody else ends it by accident"
    replaced = await show_code(olga)

    assert replaced != url
    assert "user_code" not in await look(mine)
    assert len(feishu.registration.codes) == 2


async def test_a_tenant_of_lark_is_connected_at_lark(
    world: DashboardWorld, feishu: FeishuEmulator, lark: FeishuEmulator
) -> None:
    browser = await world.browser()

    feishu.registration.scan(await show_code(browser), lark.user("Boss"), on=lark)
    page = await wait_for_page(browser, CONNECTED)

    env = read_env(world)
    assert f"FEISHU_DOMAIN={lark.domain}" in env
    assert "FEISHU_APP_ID=cli_lark" in env
    assert "Lark (larksuite.com)" in page
    assert "the-lark-secret" not in page


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda fs: fs.registration.deny(fs.registration.newest), "was declined"),
        (lambda fs: fs.advance(3600), "has expired"),
        (lambda fs: fs.registration.codes.clear(), "doesn't accept this code"),
    ],
)
async def test_a_code_that_gave_no_app_says_why_and_makes_room_for_a_new_one(
    world: DashboardWorld, feishu: FeishuEmulator, plant: object, words: str
) -> None:
    browser = await world.browser()
    await show_code(browser)

    plant(feishu)  # type: ignore[operator]
    page = await wait_for_page(browser, words)

    assert "New code" in page
    assert "user_code" not in page
    assert read_env(world) == ""
    await show_code(browser)


async def test_a_cancelled_code_connects_nobody(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    browser = await world.browser()
    url = await show_code(browser)

    await order(browser, "cancel")
    feishu.registration.scan(url, feishu.user("Boss"))
    polls = len(feishu.registration.forms)
    page = await look(browser)

    assert "user_code" not in page
    assert "Show the code" in page
    assert len(feishu.registration.forms) == polls
    assert read_env(world) == ""


async def test_whoever_is_no_owner_any_more_connects_nothing(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    olga = await world.browser("olga")
    url = await show_code(olga)

    await world.core.repositories.people.demote(world.people["olga"].id)
    feishu.registration.scan(url, feishu.user("Mallory"))
    await wait_until(lambda: feishu.registration.newest.is_used)
    setup = world.core.feishu_setup
    await wait_until(lambda: setup._flow is not None and setup._flow.code.state == "withdrawn")

    assert read_env(world) == ""
    mallory = feishu.user("Mallory").open_id
    assert await world.core.repositories.people.find_by_account(Channel.FEISHU, mallory) is None


async def test_a_platform_that_is_away_is_told_at_once(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    browser = await world.browser()
    feishu.inject_fault("POST", PATH, cut=ConnectionCut.BEFORE)

    await order(browser, "show_code")

    assert "can't be reached" in unescape(await look(browser))
    await show_code(browser)


async def test_a_secret_that_cannot_be_saved_is_saved_again_on_demand(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    browser = await world.browser()
    blocked = world.core.settings.home / ".env"
    blocked.mkdir()

    feishu.registration.scan(await show_code(browser), feishu.user("Boss"))
    page = await wait_for_page(browser, "Save again")
    assert "cli_new" in page
    assert "cannot be written" in page
    blocked.rmdir()
    await order(browser, "save_again")
    page = await look(browser)

    assert CONNECTED in page
    assert "FEISHU_APP_SECRET=the-new-secret" in read_env(world)


async def test_an_app_whose_secret_was_never_saved_is_named_after_a_crash(
    tmp_path: Path, feishu: FeishuEmulator, lark: FeishuEmulator
) -> None:
    async with opened(tmp_path, feishu, lark) as first:
        browser = await first.browser()
        (tmp_path / ".env").mkdir()
        feishu.registration.scan(await show_code(browser), feishu.user("Boss"))
        await wait_for_page(browser, "Save again")
    (tmp_path / ".env").rmdir()
    async with opened(tmp_path, feishu, lark) as second:
        browser = await second.browser()
        told = unescape(await look(browser))
        boss = feishu.user("Boss").open_id
        people = second.core.repositories.people
        assert await people.find_by_account(Channel.FEISHU, boss) is None, "nothing was saved"
        by_hand = {"app_id": "cli_new", "app_secret": "the-new-secret", "site": "feishu"}
        done = await order(browser, "connect", **by_hand)
        page = await look(browser)

    assert "before it could save the secret of app" in told
    assert f"{feishu.domain}/app/cli_new/baseinfo" in told
    assert 'value="cli_new"' in told, "the form by hand is filled in"
    assert done.status_code == 303
    assert "before it could save" not in page


async def test_a_code_that_was_shown_at_a_crash_is_told_of(
    tmp_path: Path, feishu: FeishuEmulator, lark: FeishuEmulator
) -> None:
    async with opened(tmp_path, feishu, lark) as first:
        await show_code(await first.browser())
    async with opened(tmp_path, feishu, lark) as second:
        browser = await second.browser()
        told = await look(browser)
        await order(browser, "cancel")
        after = await look(browser)

    assert "ended while a code was shown" in told
    assert "ended while a code was shown" not in after


async def test_no_code_is_shown_whose_app_could_not_be_saved(
    world: DashboardWorld, feishu: FeishuEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEISHU_APP_ID", "cli_of_the_environment")

    told = await order(await world.browser(), "show_code")

    assert told.status_code == 422
    assert "FEISHU_APP_ID is set elsewhere" in told.text
    assert not feishu.requests


async def test_owners_that_the_environment_names_stay_as_they_are(
    world: DashboardWorld, feishu: FeishuEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_OWNERS", "telegram:1")
    browser = await world.browser()

    feishu.registration.scan(await show_code(browser), feishu.user("Boss"))
    page = await wait_for_page(browser, CONNECTED)

    assert "pairing code" in page
    assert "OWNERS" not in read_env(world)


async def test_an_app_by_hand_is_tried_first_and_then_what_it_lacks_is_listed(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    browser = await world.browser()
    by_hand = {"app_id": feishu.app_id, "site": "feishu"}
    feishu.app.scopes = {"im:message": 1}
    feishu.app.callbacks, feishu.app.version = [], ""

    wrong = await order(browser, "connect", **by_hand, app_secret="not-the-secret")
    assert wrong.status_code == 422
    assert "rejects the app ID or its secret" in wrong.text
    assert "not-the-secret" not in wrong.text
    assert 'value="cli_new"' in wrong.text
    assert read_env(world) == ""
    right = await order(browser, "connect", **by_hand, app_secret=feishu.app_secret)
    lacks = unescape(await look(browser, check="1"))
    feishu.app.scopes["cardkit:card:write"] = 1
    feishu.app.callbacks, feishu.app.version = ["card.action.trigger"], "oav_2"
    fine = await look(browser, check="1")

    assert right.headers["location"] == f"{PAGE}?check=1"
    assert "FEISHU_APP_SECRET=emulated" not in lacks
    assert lacks.count("❌") == 3
    assert f'href="{feishu.domain}/app/cli_new/auth"' in lacks
    assert '"im:resource"' in lacks, "the permissions are there to be pasted"
    assert fine.count("✅") == 6
    assert "Everything is set" in fine
    assert feishu.app_secret not in lacks + fine

    await wait_until(lambda: bool(feishu.long.connections))
    setup = (await browser.get("/dashboard/setup")).text
    pattern = r'name="seen" value="(\w+)"><button name="disconnect" value="feishu"'
    leave = {"disconnect": "feishu", "seen": re.findall(pattern, setup)[0]}
    stale = await browser.post("/dashboard/setup", data={**leave, "seen": "0" * 16})
    assert stale.status_code == 422
    assert Channel.FEISHU in world.core.transports
    assert (await browser.post("/dashboard/setup", data=leave)).status_code == 303
    await wait_until(lambda: not feishu.long.connections)
    assert Channel.FEISHU not in world.core.transports
    assert "FEISHU_APP" not in read_env(world)
    assert "disconnect" not in (await browser.get("/dashboard/setup")).text


async def test_what_feishu_does_not_tell_is_not_called_done(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    browser = await world.browser()
    feishu.app.may_read = False
    secret = {"app_id": feishu.app_id, "app_secret": feishu.app_secret, "site": "feishu"}

    await order(browser, "connect", **secret)
    page = await look(browser, check="1")

    assert (page.count("✅"), page.count("❔"), page.count("❌")) == (3, 3, 0)


@pytest.mark.parametrize(
    "typed",
    [
        {"app_id": "cli_x\nSHIFTBOSS_OWNERS=telegram:666"},
        {"app_id": "<script>alert(1)</script>"},
        {"app_id": ""},
        {"app_secret": "two words"},
        {"app_secret": "line\nSHIFTBOSS_OWNERS=telegram:666"},
        {"app_secret": "s" * 501},
        {"app_secret": ""},
        {"order": "format"},
    ],
)
async def test_hostile_input_changes_nothing_and_calls_nobody(
    world: DashboardWorld, feishu: FeishuEmulator, typed: dict[str, str]
) -> None:
    browser = await world.browser()
    form = {"order": "connect", "app_id": feishu.app_id, "app_secret": feishu.app_secret}

    told = await browser.post(PAGE, data={**form, **typed})

    assert told.status_code == 422
    assert "<script>alert" not in told.text
    assert not feishu.requests
    assert read_env(world) == ""


async def test_members_neither_see_nor_change_it(
    world: DashboardWorld, feishu: FeishuEmulator
) -> None:
    ann = world.program("ann")
    new = {"app_id": feishu.app_id, "app_secret": feishu.app_secret}

    assert (await ann.get(PAGE)).status_code == 403
    assert (await ann.post(PAGE, data={"order": "show_code"})).status_code == 403
    assert (await ann.get(API)).status_code == 403
    assert (await ann.post(API, json=new)).status_code == 403
    assert (await ann.post(f"{API}/code", json={"order": "show"})).status_code == 403
    assert (await ann.post(f"{API}/check")).status_code == 403
    assert not feishu.requests


async def test_the_api_does_the_same(world: DashboardWorld, feishu: FeishuEmulator) -> None:
    owner = world.program()
    shown = (await owner.post(f"{API}/code", json={"order": "show"})).json()
    feishu.registration.scan(shown["code"]["url"], feishu.user("Boss"))

    async def is_over() -> bool:
        return bool((await owner.get(API)).json()["code"]["state"] != "waiting")

    await wait_until(is_over)
    told = await owner.get(API)
    checked = await owner.post(f"{API}/check")

    assert told.json()["code"]["state"] == "connected"
    assert told.json()["app_id"] == "cli_new"
    assert [each["state"] for each in checked.json()["steps"]] == ["done"] * 6
    assert feishu.app_secret not in told.text + checked.text
