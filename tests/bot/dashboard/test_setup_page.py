"""Connecting a model in the running program: by the page and by the API, against the emulated
services."""

from __future__ import annotations

import re
import stat
from collections.abc import AsyncIterator
from html import unescape

import httpx
import pytest

from bot.config.settings import load_with_env_file
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.dashboard.test_api import check_problem
from tests.bot.dashboard.world import DashboardWorld
from tests.emulators.models.emulator import ModelEmulator

PAGE = "/dashboard/setup"
API = "/api/v1/setup"


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


def default_model(world: DashboardWorld) -> str:
    return world.core.engine.workers.models.default.name


def written(world: DashboardWorld) -> str:
    path = world.core.settings.home / ".env"
    return path.read_text(encoding="utf-8") if path.exists() else ""


async def open_form(browser: httpx.AsyncClient, kind: str) -> dict[str, str]:
    page = await browser.get(PAGE, params={"kind": kind})
    assert page.status_code == 200
    hidden = re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', page.text)
    assert {name for name, _ in hidden} == {"kind", "seen"}
    return dict(hidden)


async def test_a_model_that_answers_is_used_at_once_and_stored_privately(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    browser = await world.browser()
    path = world.core.settings.home / ".env"
    path.write_text("# mine\nSHIFTBOSS_SLOTS=2\n", encoding="utf-8")
    form = await open_form(browser, "local")

    done = await browser.post(
        PAGE, data={**form, "base_url": f"{models.openai_url}/", "key": models.key}
    )
    page = await browser.get(str(done.headers["location"]))

    assert done.status_code == 303
    assert len(models.requests) == 1
    assert default_model(world) == "openai"
    assert f"✅ {models.openai_url.split('/')[2]} " in page.text, "named by where it runs"
    assert models.key not in page.text
    assert written(world).startswith("# mine\nSHIFTBOSS_SLOTS=2\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    stored = load_with_env_file(world.core.settings.home, path)
    assert stored.model == "openai:auto"
    assert stored.openai_api_key.get_secret_value() == models.key
    workers = world.core.engine.workers
    assert models.key not in workers.redactor.mask(f"the key is {models.key}")
    assert workers.models.base_urls["openai"] == models.openai_url


async def test_a_refused_key_changes_nothing_and_says_what_to_do(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    browser = await world.browser("olga")
    form = await open_form(browser, "anthropic")

    told = await browser.post(
        PAGE, data={**form, "base_url": models.url, "key": "sk-ant-wrong-key-0000000000000000"}
    )

    assert told.status_code == 422
    assert "rejected the key" in told.text
    assert "wrong-key" not in told.text
    assert models.url in told.text, "what was typed stays, except the key"
    assert default_model(world) == "offline"
    assert written(world) == ""


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ({"key": "sk-ant-wrong-key-0000000000000000"}, "HTTP 401"),
        ({"base_url": "http://127.0.0.1:9"}, ""),
        ({"model": "claude-0-unknown"}, "HTTP 404: model: claude-0-unknown"),
    ],
)
async def test_a_failed_test_is_told_in_the_language_of_the_page(
    world: DashboardWorld, models: ModelEmulator, typed: dict[str, str], answer: str
) -> None:
    browser = await world.browser("olga")
    browser.cookies.set("shiftboss_lang", "zh")
    form = await open_form(browser, "anthropic")

    told = await browser.post(
        PAGE, data={**form, "base_url": models.url, "key": models.key, **typed}
    )

    shown = re.findall(r'role="alert">(.*?)</p>', told.text, re.DOTALL)[0]
    shown = re.sub(r"<code>.*?</code>", "", shown)
    before, _, said = shown.partition("服务返回：")
    assert "调用失败" in before
    assert said.strip() == answer, "the service's own words stay as they are"
    assert not re.search(r"[a-z]{3,} [a-z]{2,}", before.partition("调用失败")[2])


@pytest.mark.parametrize("language", list(Language))
async def test_the_reason_of_a_failed_test_names_what_to_correct_on_this_form(
    world: DashboardWorld, models: ModelEmulator, language: Language
) -> None:
    browser = await world.browser("olga")
    browser.cookies.set("shiftboss_lang", language)
    form = await open_form(browser, "local")
    words = catalog_for(language)
    typed = {
        "bad_key": {"key": "sk-wrong-0123456789abcdef"},
        "unavailable": {"base_url": "http://127.0.0.1:9/v1"},
        "no_model": {"model": "no-such-model"},
    }

    for reason, wrong in typed.items():
        given = {**form, "base_url": models.openai_url, "key": models.key, **wrong}
        told = unescape((await browser.post(PAGE, data=given)).text)
        shown = re.findall(r'role="alert">(.*?)</div>', told, re.DOTALL)[0]

        assert words(f"setup.refused.{reason}") in shown
        assert not re.search(r"/model|/backend|shiftboss init", shown), "this is the place for it"


async def test_the_form_of_the_model_in_use_is_shown_first(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    browser = await world.browser("olga")
    chosen = re.compile(r'href="\?kind=(\w+)" aria-current="true"')
    first = chosen.findall((await browser.get(PAGE)).text)
    form = await open_form(browser, "local")
    await browser.post(PAGE, data={**form, "base_url": models.openai_url, "key": models.key})

    assert first == ["anthropic"]
    assert chosen.findall((await browser.get(PAGE)).text) == ["local"]


async def test_the_home_page_offers_to_connect_a_model_until_one_is(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    browser = await world.browser("olga")
    before = (await browser.get("/dashboard")).text
    form = await open_form(browser, "local")
    await browser.post(PAGE, data={**form, "base_url": models.openai_url, "key": models.key})
    after = (await browser.get("/dashboard")).text

    assert "No model is connected" in before
    assert f'<a href="{PAGE}">Connect a model</a>' in before
    assert "Nothing is wrong" not in before
    assert "No model is connected" not in after
    assert "Nothing is wrong" in after


@pytest.mark.parametrize(
    "typed",
    [
        {"key": "sk-good\nSHIFTBOSS_OWNERS=telegram:666"},
        {"key": "k" * 3_000},
        {"key": "клю́ч"},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "http://user:pass@host/v1"},
        {"base_url": "http://[/v1"},
        {"base_url": "javascript:alert(1)"},
        {"base_url": ""},
        {"model": "x\nSHIFTBOSS_OWNERS=telegram:666"},
        {"model": "<script>alert(1)</script>"},
        {"kind": "telepathy"},
        {"kind": "openai", "key": ""},
        {"kind": "cli", "cli": "no-such-cli"},
        {"seen": "0123456789abcdef"},
    ],
)
async def test_hostile_input_changes_nothing_and_calls_nobody(
    world: DashboardWorld, models: ModelEmulator, typed: dict[str, str]
) -> None:
    browser = await world.browser()
    form = await open_form(browser, "local")

    told = await browser.post(
        PAGE, data={**form, "base_url": models.openai_url, "key": models.key, **typed}
    )

    assert told.status_code == 422
    assert "<script>alert" not in told.text
    assert not models.requests
    assert not models.refused
    assert (default_model(world), written(world)) == ("offline", "")


async def test_a_form_of_a_megabyte_is_refused(world: DashboardWorld) -> None:
    browser = await world.browser()

    told = await browser.post(PAGE, data={"kind": "openai", "key": "k" * 1_048_576})

    assert told.status_code == 413
    assert "too long" in told.text


async def test_a_second_tab_does_not_overwrite_what_the_first_has_saved(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    browser = await world.browser()
    first, second = await open_form(browser, "local"), await open_form(browser, "offline")
    await browser.post(PAGE, data={**first, "base_url": models.openai_url, "key": models.key})

    told = await browser.post(PAGE, data=second)

    assert told.status_code == 422
    assert "changed in the meantime" in told.text
    assert default_model(world) == "openai"


async def test_a_stored_key_is_not_sent_to_another_address(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    owner = world.program()
    named = {"kind": "local", "base_url": models.openai_url}
    await owner.post(f"{API}/model", json={**named, "key": models.key})

    again = await owner.post(f"{API}/model", json={**named, "model": "local-model"})
    async with ModelEmulator() as other:
        named["base_url"] = other.openai_url
        elsewhere = await owner.post(f"{API}/model", json=named)

        assert [each.status for each in other.refused] == [401]
    assert again.json()["is_connected"]
    assert not elsewhere.json()["is_connected"]
    assert default_model(world) == "openai:local-model"


async def test_the_api_tells_how_models_are_connected_without_the_keys(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    owner = world.program()
    named = {"kind": "anthropic", "base_url": models.url, "key": models.key}

    done = await owner.post(f"{API}/model", json=named)
    told = await owner.get(API)

    assert done.json()["is_connected"]
    assert told.json()["with_key"] == ["anthropic"]
    assert told.json()["model"] == "anthropic:claude-sonnet-5-5"
    assert models.key not in done.text + told.text


async def test_members_neither_see_nor_change_it(
    world: DashboardWorld, models: ModelEmulator
) -> None:
    ann = world.program("ann")
    form = {"kind": "local", "base_url": models.openai_url, "key": models.key}

    assert (await ann.get(PAGE)).status_code == 403
    assert (await ann.post(PAGE, data=form)).status_code == 403
    check_problem(await ann.get(API), 403)
    check_problem(await ann.post(f"{API}/model", json=form), 403)
    assert not models.requests
    assert (default_model(world), written(world)) == ("offline", "")


async def test_a_setting_that_wins_over_the_file_is_named(
    world: DashboardWorld, models: ModelEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_MODEL", "anthropic:claude-opus-5-5")
    named = {"kind": "local", "base_url": models.openai_url, "key": models.key}

    told = check_problem(await world.program().post(f"{API}/model", json=named), 422)

    assert "SHIFTBOSS_MODEL" in told["title"]
    assert (default_model(world), written(world)) == ("offline", "")
