"""Settings on their page and by the API: what is shown, what can be changed, and what cannot."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.config.settings import Settings, load_settings
from bot.setup.settings_editor import GROUPS
from bot.setup.settings_reload import change_lines
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.usage import BudgetScope
from tests.bot.dashboard.test_api import HOSTILE, check_problem
from tests.bot.dashboard.world import TOKEN, DashboardWorld, dashboard_world

API = "/api/v1/settings"
PAGE = "/dashboard/settings"
SECRET = "sk-ant-a-secret-that-nobody-may-see"
BOMB = "{a: &a [x, x], b: &b [*a, *a], c: &c [*b, *b], spans_days: *c}"


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DashboardWorld]:
    """Its settings are those of its files and environment, as those of a real program."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(tmp_path)
    fixed = {"SHIFTBOSS_HOME": str(home), "SHIFTBOSS_WEB_PORT": "0", "SHIFTBOSS_WEB_TOKEN": TOKEN}
    for name, value in {**fixed, "SHIFTBOSS_PATIENCE_HOURS": "9"}.items():
        monkeypatch.setenv(name, value)
    (home / ".env").write_text(f"# mine\nSHIFTBOSS_SLOTS=4\nANTHROPIC_API_KEY={SECRET}\n")
    (home / "shiftboss.yaml").write_text("quiet_hours: 22:00-07:00\nqueue: wait\n")
    read = load_settings()
    named = {str(about.alias): getattr(read, name) for name, about in Settings.model_fields.items()}
    async with dashboard_world(home, **named) as world:
        yield world


async def settings_of(api: httpx.AsyncClient) -> tuple[str, dict[str, Any]]:
    answer = (await api.get(API)).json()
    assert answer["faults"] == []
    return answer["revision"], {each["name"]: each for each in answer["settings"]}


async def patch(api: httpx.AsyncClient, seen: str = "", **changes: str) -> httpx.Response:
    return await api.patch(API, json={"changes": changes, "seen": seen})


def env_file(world: DashboardWorld) -> Path:
    return world.core.settings.home / ".env"


def test_every_setting_is_in_one_group_and_has_a_text_in_each_language() -> None:
    listed = [field for fields in GROUPS.values() for field in fields]

    assert sorted(listed) == sorted(Settings.model_fields)
    for language in Language:
        words = catalog_for(language)
        assert all(words(f"dashboard.settings.text.{field}") for field in listed)
        assert all(words(f"dashboard.settings.group_{group}") for group in GROUPS)


async def test_each_setting_says_where_it_comes_from_and_how_it_is_changed(
    world: DashboardWorld,
) -> None:
    answer = await world.program().get(API)
    _, listed = await settings_of(world.program())

    def facts(name: str) -> tuple[Any, ...]:
        found = listed[name]
        return found["value"], found["source"], found["change"], Path(found["file"]).name

    assert facts("SHIFTBOSS_SLOTS") == ("4", "env_file", "here", ".env")
    assert facts("SHIFTBOSS_QUIET_HOURS") == ("22:00-07:00", "yaml", "here", "shiftboss.yaml")
    assert facts("SHIFTBOSS_QUEUE") == ("wait", "yaml", "restart", "shiftboss.yaml")
    assert facts("SHIFTBOSS_PATIENCE_HOURS") == ("9", "environment", "environment", "")
    assert facts("SHIFTBOSS_CAP_DAY") == ("25 USD", "default", "here", "")
    assert facts("SHIFTBOSS_WEB_HOST") == ("127.0.0.1", "default", "file", "")
    assert facts("ANTHROPIC_API_KEY") == ("", "env_file", "setup", ".env")
    assert listed["ANTHROPIC_API_KEY"]["is_set"]
    assert not listed["OPENAI_API_KEY"]["is_set"]
    assert listed["SHIFTBOSS_LOG_LEVEL"]["options"] == ["DEBUG", "INFO", "WARNING", "ERROR"]
    pages = [await page(world, group) for group in GROUPS]
    assert all(each not in text for text in (answer.text, *pages) for each in (SECRET, TOKEN))


async def page(world: DashboardWorld, group: str) -> str:
    shown = await (await world.browser("olga")).get(PAGE, params={"group": group})
    assert shown.status_code == 200
    return shown.text


async def test_a_change_is_in_force_at_once_in_the_file_and_told(world: DashboardWorld) -> None:
    core, api = world.core, world.program("olga")
    seen, _ = await settings_of(api)

    changed = await patch(
        api,
        seen,
        SHIFTBOSS_SLOTS="7",
        SHIFTBOSS_CAP_DAY="3 USD, 2M tokens",
        SHIFTBOSS_RETENTION="{spans_days: 3}",
        SHIFTBOSS_MODEL_SMALL="openai:tiny",
        SHIFTBOSS_VISION_MODEL="openai:seer",
    )

    assert changed.status_code == 200, changed.text
    assert "SHIFTBOSS_SLOTS" in changed.json()["applied"]
    assert core.engine.dispatcher.slots == 7
    assert core.engine.rules.caps.by_scope[BudgetScope.DAY].tokens == 2_000_000
    assert core.autonomy.retention.keep.spans_days == 3
    assert core.engine.workers.live_models.get_small_model() == "openai:tiny"
    assert core.engine.workers.live_models.get_vision_model() == "openai:seer"
    assert env_file(world).read_text().startswith("# mine\nSHIFTBOSS_SLOTS=7\nANTHROPIC_API_KEY=")
    assert env_file(world).stat().st_mode & 0o777 == 0o600
    assert load_settings() == core.reloader.in_force, "the next start has the same"
    _, listed = await settings_of(api)
    assert listed["SHIFTBOSS_RETENTION"]["value"] == "{spans_days: 3.0}"
    assert not any(each["waits"] for each in listed.values())
    kept = await patch(api, SHIFTBOSS_RETENTION=listed["SHIFTBOSS_RETENTION"]["value"])
    assert kept.json()["applied"] == [], "a value is written as it can be read"
    back = await patch(api, SHIFTBOSS_SLOTS="", SHIFTBOSS_QUIET_HOURS="23:00-06:00")
    assert sorted(back.json()["applied"]) == ["SHIFTBOSS_QUIET_HOURS", "SHIFTBOSS_SLOTS"]
    assert core.engine.dispatcher.slots == 3, "back to the default"


async def test_what_waits_for_a_restart_is_stored_and_told_with_both_values(
    world: DashboardWorld,
) -> None:
    core, api, restarts = world.core, world.program("olga"), list[str]()
    core.reloader.restart = lambda: restarts.append("restart")
    seen, _ = await settings_of(api)
    browser = await world.browser("olga")
    form = {"seen": seen, "SHIFTBOSS_QUEUE": "cut", "was:SHIFTBOSS_QUEUE": "wait"}

    saved = await browser.post(f"{PAGE}?group=work", data=form)
    secret = await patch(api, BRAVE_API_KEY=SECRET)

    assert (saved.status_code, secret.json()["waiting"]) == (303, ["BRAVE_API_KEY"])
    assert core.reloader.in_force.queue == "wait"
    assert load_settings().queue == "cut"
    _, listed = await settings_of(api)
    queue, key = listed["SHIFTBOSS_QUEUE"], listed["BRAVE_API_KEY"]
    assert (queue["value"], queue["stored"], queue["waits"]) == ("wait", "cut", True)
    assert (key["value"], key["stored"], key["waits"]) == ("", "", True)
    shown = await page(world, "work")
    assert "SHIFTBOSS_QUEUE, BRAVE_API_KEY" in shown
    assert SECRET not in shown + await page(world, "tools")
    waiting = (await core.reloader.reload()).waiting
    assert sorted(waiting) == ["BRAVE_API_KEY", "SHIFTBOSS_QUEUE"]

    kept = {"BRAVE_API_KEY": "", "was:BRAVE_API_KEY": ""}
    await browser.post(f"{PAGE}?group=tools", data=kept)
    assert load_settings().brave_api_key.get_secret_value() == SECRET
    await browser.post(f"{PAGE}?group=tools", data={**kept, "remove:BRAVE_API_KEY": "on"})
    assert not load_settings().brave_api_key.get_secret_value()

    check_problem(await world.program("ann").post(f"{API}/restart"), 403)
    refused = await browser.post(PAGE, data={"order": "restart"}, headers={"origin": "http://x"})
    assert (refused.status_code, restarts) == (403, [])
    gone = await browser.post(PAGE, data={"order": "restart"})
    assert (gone.status_code, restarts) == (303, ["restart"])
    assert "data-poll" in (await browser.get(gone.headers["location"])).text
    assert "data-poll" not in (await browser.get(f"{PAGE}?restarting=another-start")).text
    with env_file(world).open("a") as file:
        file.write("SHIFTBOSS_WEB_PORT=1\n")
    assert (await api.post(f"{API}/restart")).status_code == 202, "the environment wins"


async def test_a_restart_that_could_fail_is_left_to_a_shell(
    world: DashboardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = list[str]()
    world.core.reloader.restart = lambda: restarts.append("restart")
    for line in ("SHIFTBOSS_SLOTS=many\n", "DATABASE_URL=sqlite:////nowhere/x.db\n"):
        before = env_file(world).read_text()
        env_file(world).write_text(before + line)

        problem = check_problem(await world.program().post(f"{API}/restart"), 422)

        assert line.partition("=")[0] in problem["detail"]
        env_file(world).write_text(before)
    assert restarts == []


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("SHIFTBOSS_SLOTS", "many", 422),
        ("SHIFTBOSS_SLOTS", "1e99", 422),
        ("SHIFTBOSS_SLOTS", "5\nTELEGRAM_BOT_TOKEN=1:x", 422),
        ("SHIFTBOSS_CAP_DAY", "${HOME}", 422),
        ("SHIFTBOSS_CAP_DAY", HOSTILE, 422),
        ("SHIFTBOSS_TOOLS_ALLOW", "exec(", 422),
        ("SHIFTBOSS_LOG_LEVEL", "TRACE", 422),
        ("SHIFTBOSS_RETENTION", BOMB, 422),
        ("SHIFTBOSS_RETENTION", "{nope: 1}", 422),
        ("SHIFTBOSS_RISK_WORDS", "x" * 5_000, 422),
        ("SHIFTBOSS_PATIENCE_HOURS", "1", 422),
        ("SHIFTBOSS_WEB_HOST", "0.0.0.0", 422),
        ("SHIFTBOSS_WEB_TOKEN", "x", 422),
        ("ANTHROPIC_API_KEY", "sk-other", 422),
        ("SHIFTBOSS_HOME", "/tmp", 422),
        (HOSTILE[:60], "1", 422),
        ("slots", "1", 422),
    ],
)
async def test_what_cannot_be_used_changes_nothing(
    world: DashboardWorld, name: str, value: str, status: int
) -> None:
    before, in_force = env_file(world).read_text(), world.core.reloader.in_force

    problem = check_problem(
        await patch(world.program(), SHIFTBOSS_CAP_SELF="9 USD", **{name: value}), status
    )

    assert env_file(world).read_text() == before
    assert world.core.reloader.in_force == in_force
    assert SECRET not in problem["detail"]
    assert [each.name for each in env_file(world).parent.glob(".env*")] == [".env"]


async def test_the_second_of_two_tabs_is_told_and_changes_nothing(world: DashboardWorld) -> None:
    browser = await world.browser("olga")
    tab = (await browser.get(PAGE)).text
    seen = re.findall(r'name="seen" value="(\w+)"', tab)[0]
    form = {"seen": seen, "SHIFTBOSS_SLOTS": "5", "was:SHIFTBOSS_SLOTS": "4"}

    first = await browser.post(f"{PAGE}?group=work", data=form)
    second = await browser.post(f"{PAGE}?group=work", data={**form, "SHIFTBOSS_SLOTS": "6"})
    both = await asyncio.gather(*(patch(world.program(), seen, SHIFTBOSS_SLOTS="8") for _ in "ab"))

    assert first.status_code == 303
    assert "SHIFTBOSS_SLOTS" in (await browser.get(first.headers["location"])).text
    assert second.status_code == 422
    assert 'role="alert"' in second.text
    assert 'value="6"' in second.text, "what was typed is kept"
    assert [each.status_code for each in both] == [409, 409]
    assert world.core.engine.dispatcher.slots == 5


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("SHIFTBOSS_SLOTS", "many", "必须是整数"),
        ("SHIFTBOSS_SLOTS", "0", "不能小于 1"),
        ("SHIFTBOSS_CLI_HOURS", "0", "必须大于 0"),
        ("SHIFTBOSS_HELPERS", "99", "不能大于 32"),
        ("SHIFTBOSS_QUIET_HOURS", "night", "必须是时间段"),
        ("SHIFTBOSS_OWNERS", "me", "必须是 telegram:123"),
        ("SHIFTBOSS_TIMEZONE", "Mars/Base", "没有这个时区"),
        ("SHIFTBOSS_TOOLS_FOLDERS", "here", "必须是绝对路径"),
        ("SHIFTBOSS_SEARXNG_URL", "ftp://x", "必须以 http:// 或 https:// 开头"),
    ],
)
async def test_a_wrong_value_is_told_in_the_language_of_the_page(
    world: DashboardWorld, name: str, value: str, told: str
) -> None:
    browser = await world.browser("olga")

    page = await browser.post(f"{PAGE}?language=zh", data={name: value, f"was:{name}": ""})

    assert page.status_code == 422
    assert f"{name} in {env_file(world)}: {told}" in page.text


async def test_a_form_that_changes_nothing_writes_nothing(world: DashboardWorld) -> None:
    browser, before = await world.browser("olga"), env_file(world).stat()
    form = {"SHIFTBOSS_SLOTS": "4", "was:SHIFTBOSS_SLOTS": "4", "SHIFTBOSS_HOME": "/", "x": HOSTILE}

    saved = await browser.post(f"{PAGE}?group=work", data=form)

    assert saved.status_code == 303
    assert 'role="status"' in (await browser.get(saved.headers["location"])).text
    assert env_file(world).stat() == before


async def test_files_that_cannot_be_used_are_told_and_stop_changes(world: DashboardWorld) -> None:
    broken = change_lines(env_file(world).read_text(), {"SHIFTBOSS_SLOTS": "many"})
    env_file(world).write_text(broken)

    answer = (await world.program().get(API)).json()
    refused = await patch(world.program(), SHIFTBOSS_CAP_SELF="9 USD")

    assert any("SHIFTBOSS_SLOTS" in each for each in answer["faults"])
    assert "SHIFTBOSS_SLOTS" in await page(world, "work")
    check_problem(refused, 422)
    assert env_file(world).read_text() == broken


async def test_settings_are_for_owners(world: DashboardWorld) -> None:
    check_problem(await world.program("ann").get(API), 403)
    check_problem(await patch(world.program("ann"), SHIFTBOSS_SLOTS="1"), 403)
    assert world.core.engine.dispatcher.slots == 4
