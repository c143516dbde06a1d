"""Nobody but the owner's browser and programs reach the chat, and they need the token once."""

from __future__ import annotations

import stat
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from bot.transports.web.access import AllowedHosts, get_browser_address, is_loopback, same_origin
from bot.transports.web.access_token import load_or_create_token, read_token
from bot.transports.web.ports import OpenWithoutToken, PortInUse
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.transports.web.builders import TOKEN, WebHarness

BEARER = {"authorization": f"Bearer {TOKEN}"}


async def test_without_a_token_there_is_only_a_page_that_says_where_to_find_it(
    world: WebHarness,
) -> None:
    async with world.stranger() as browser:
        shown = await browser.get("/", headers={"accept-language": "en"})
    assert shown.status_code == 401
    assert "shiftboss run" in shown.text
    assert TOKEN not in shown.text


async def test_a_wrong_token_is_called_wrong_in_the_readers_language(world: WebHarness) -> None:
    async with world.stranger() as browser:
        english = await browser.get("/?token=guess")
        chinese = await browser.get("/?token=guess", headers={"accept-language": "zh-CN,en;q=.5"})
    assert [english.status_code, chinese.status_code] == [401, 401]
    assert "Wrong token" in english.text
    assert "口令不对" in chinese.text
    assert "set-cookie" not in english.headers


async def test_the_token_is_exchanged_for_a_cookie_and_dropped_from_the_address(
    world: WebHarness,
) -> None:
    async with world.stranger() as browser:
        exchanged = await browser.get(f"/?token={TOKEN}&page=2")
        cookie = exchanged.headers["set-cookie"]
        opened = await browser.get("/")
    assert exchanged.status_code == 303
    assert exchanged.headers["location"] == "/?page=2"
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert TOKEN not in cookie
    assert opened.status_code == 200


async def test_the_redirect_never_leads_to_another_site(world: WebHarness) -> None:
    async with world.stranger() as browser:
        sent = await browser.get(f"{world.url}//evil.example/?token={TOKEN}")
    assert sent.headers["location"] == "/evil.example/"


async def test_a_cookie_of_another_token_is_worth_nothing(world: WebHarness) -> None:
    name = next(iter(world.cookie))
    async with world.stranger(cookies={name: "0" * 64}) as browser:
        assert (await browser.get("/")).status_code == 401
    async with world.stranger(headers={"cookie": f"{name}=é".encode("latin-1")}) as browser:
        assert (await browser.get("/")).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "", "[::bad", "127.0.0.1.evil.example"]
)
async def test_a_foreign_host_name_is_refused_even_with_the_cookie(
    world: WebHarness, host: str
) -> None:
    async with world.browser(headers={"host": host.format(port=world.port)}) as browser:
        for path in ("/", "/healthz", f"/?token={TOKEN}"):
            assert (await browser.get(path)).status_code in {400, 403}


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
async def test_a_post_from_another_site_is_refused(world: WebHarness, origin: str) -> None:
    async with world.browser(headers={"origin": origin}) as browser:
        sent = await browser.post("/upload?name=a.txt", content=b"x")
    assert sent.status_code == 403
    assert not (world.home / "files").exists()


async def test_a_post_without_an_origin_needs_the_bearer(world: WebHarness) -> None:
    async with world.stranger(cookies=world.cookie) as program:
        without = await program.post("/upload?name=a.txt", content=b"x")
        with_it = await program.post("/upload?name=a.txt", content=b"x", headers=BEARER)
    assert [without.status_code, with_it.status_code] == [403, 201]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer guess"}])
async def test_a_program_without_the_token_is_told_that_it_is_missing(
    world: WebHarness, headers: dict[str, str]
) -> None:
    async with world.stranger(headers=headers) as program:
        refused = await program.post("/mcp", json={})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "token" in refused.text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
async def test_a_socket_from_another_site_is_refused(world: WebHarness, origin: str | None) -> None:
    name, value = next(iter(world.cookie.items()))
    opening = connect(
        world.url.replace("http", "ws") + "/ws",
        origin=Origin(origin) if origin else None,
        additional_headers={"cookie": f"{name}={value}"},
        proxy=None,
    )
    with pytest.raises(InvalidStatus) as refused:
        await opening
    assert refused.value.response.status_code == 403


async def test_a_socket_without_the_cookie_is_refused(world: WebHarness) -> None:
    address = world.url.replace("http", "ws") + "/ws"
    with pytest.raises(InvalidStatus):
        await connect(address, origin=Origin(world.url), proxy=None)


async def test_health_needs_no_token_and_tells_nothing(world: WebHarness) -> None:
    async with world.stranger() as program:
        answer = await program.get("/healthz")
    assert answer.json() == {"ok": True}


async def test_every_answer_forbids_scripts_of_others_and_framing(world: WebHarness) -> None:
    async with world.browser() as browser:
        for path in ("/", "/static/app.js", "/nope", "/healthz"):
            headers = (await browser.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_the_page_holds_no_inline_script_or_style(world: WebHarness) -> None:
    async with world.browser() as browser:
        page = (await browser.get("/")).text
    assert page.count("<script") == 2
    assert '<script type="application/json" id="boot">' in page
    assert " style=" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


async def test_a_port_in_use_is_one_clear_line(world: WebHarness, tmp_path: Path) -> None:
    second = WebHarness(tmp_path)
    second.port = world.port
    with pytest.raises(PortInUse) as problem:
        await second.start()
    line = catalog_for(Language.ENGLISH)(problem.value.key, **problem.value.facts)
    assert str(world.port) in line
    assert "SHIFTBOSS_WEB_PORT" in line


async def test_other_machines_are_let_in_only_with_a_token_chosen_on_purpose(
    tmp_path: Path,
) -> None:
    world = WebHarness(tmp_path)
    world.settings = {"host": "0.0.0.0", "token": ""}
    with pytest.raises(OpenWithoutToken) as problem:
        await world.start()
    line = catalog_for(Language.CHINESE)(problem.value.key, **problem.value.facts)
    assert "SHIFTBOSS_WEB_TOKEN" in line


async def test_on_loopback_a_token_is_made_once_and_kept_to_its_owner(tmp_path: Path) -> None:
    world = WebHarness(tmp_path)
    world.settings = {"token": ""}
    await world.start()
    first = world.transport.login_url
    await world.stop()
    await world.start()
    assert world.transport.login_url == first
    assert world.transport.token == read_token(tmp_path)
    assert len(world.transport.token) >= 32
    assert stat.S_IMODE((tmp_path / "web-token").stat().st_mode) == 0o600
    await world.stop()


def test_a_home_without_a_token_reads_as_none(tmp_path: Path) -> None:
    assert read_token(tmp_path) == ""
    assert load_or_create_token(tmp_path) == read_token(tmp_path)


async def test_the_socket_is_given_back_when_the_stack_unwinds_before_running(
    tmp_path: Path,
) -> None:
    world = WebHarness(tmp_path)
    async with AsyncExitStack() as stack:
        await world.prepare(stack)
        await world.transport.start(stack)
    world.port = world.transport.port
    await world.start()
    await world.stop()


def test_names_of_this_machine_are_told_from_others() -> None:
    assert [is_loopback(h) for h in ("localhost", "127.0.0.1", "127.9.9.9", "::1")] == [True] * 4
    assert [is_loopback(h) for h in ("0.0.0.0", "", "10.0.0.1", "example.org")] == [False] * 4


def test_a_program_on_all_addresses_answers_to_addresses_and_chosen_names_only() -> None:
    rule = AllowedHosts("0.0.0.0", public_url="https://Boss.example:8443/x")
    assert [rule.allows(h) for h in ("10.0.0.7:80", "[fe80::1]:80", "BOSS.example")] == [True] * 3
    assert [rule.allows(h) for h in ("evil.example", "boss.example.evil", "")] == [False] * 3
    assert not AllowedHosts("127.0.0.1").allows("10.0.0.7")
    odd = ("evil@127.0.0.1", "127.0.0.1/x", "127.0.0.1?x", "127.0.0.1#x", "127.0.0.1:80:80", "[::1")
    assert not any(map(AllowedHosts("127.0.0.1").allows, odd))


def test_an_origin_is_the_same_only_with_scheme_name_and_port() -> None:
    assert same_origin("http://127.0.0.1:80", "127.0.0.1:80")
    foreign = ["http://127.0.0.1", "ftp://127.0.0.1:80", "null", "", "http://[bad", "127.0.0.1:80"]
    assert not any(same_origin(origin, "127.0.0.1:80") for origin in foreign)


def test_the_address_shown_can_be_opened_on_this_machine() -> None:
    assert get_browser_address("0.0.0.0", 80) == "http://127.0.0.1:80/"
    assert get_browser_address("::1", 80) == "http://[::1]:80/"
