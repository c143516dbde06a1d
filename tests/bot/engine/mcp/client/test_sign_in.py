"""Owners sign in to MCP servers at a URL; tokens stay in a private file and are refreshed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.engine.mcp.client.server_config import McpScope
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.mcp.client.sign_in import McpSignIns, MissingScopeListener, MissingScopeNotifier
from bot.engine.redaction import MASK
from bot.engine.sandbox.backends import detect_sandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import Sandbox
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.web import WebFetcher, parse_private_hosts
from bot.engine.workers.mcp_config import McpConfigFile
from cards.actions import StartMcpSignIn
from cards.model import ButtonsBlock
from cards.render.text import render
from storage.records.workers import SignInFailed, SignOut
from tests.emulators.mcp_http import McpHttpServer, mcp_http_server
from tests.engine_harness import CHAT, ManualClock, RecordingCourier, owner_cards


async def find_sandbox() -> Sandbox:
    return detect_sandbox()


async def ignore_missing_scope(server: str, scope: str, sign_in: str) -> None:
    pass


@asynccontextmanager
async def opened_pool(
    home: Path,
    site: McpHttpServer,
    *,
    on_missing_scope: MissingScopeListener | None = None,
    client_url: str = "",
    oauth: Mapping[str, Any] | None = None,
) -> AsyncIterator[McpServerPool]:
    """`oauth` is a client registered by hand; `${MAIL_SECRET}` is `s3cret-value`."""
    server = {"url": site.url, **({"oauth": oauth} if oauth else {})}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"mail": server}}))
    fetcher = WebFetcher(private_hosts=parse_private_hosts(["127.0.0.1"]))
    shell = CommandShell(sandbox=find_sandbox, homes=CommandHomes(home / "shell"), env=lambda _: {})
    sign_ins = McpSignIns(
        fetcher=fetcher,
        folder=home / "tokens",
        redirect_uri="http://127.0.0.1:1/mcp/callback",
        on_missing_scope=on_missing_scope or ignore_missing_scope,
        client_id=client_url,
    )
    known = {"MAIL_SECRET": "s3cret-value"}
    pool = McpServerPool(shell, str, fetcher, data_dir=home, variables=known, sign_ins=sign_ins)
    try:
        yield pool
    finally:
        await pool.aclose()


async def call(pool: McpServerPool, home: Path) -> str:
    """What a run gets from the server, or why it gets nothing."""
    servers = await McpConfigFile(home).list_servers()
    async with pool.connect(servers, McpScope(workspace=home)) as brought:
        if brought.notes:
            return brought.notes[0].facts["detail"]
        return await next(each for each in brought.tools if each.name.endswith("echo")).run(
            {"text": "hi"}
        )


def address_after(link: str, code: str = "good") -> str:
    state = parse_qs(urlsplit(link).query)["state"][0]
    return f"http://127.0.0.1:1/mcp/callback?code={code}&state={state}"


async def test_after_a_sign_in_runs_use_the_token_until_it_is_forgotten(tmp_path: Path) -> None:
    async with mcp_http_server("private") as site, opened_pool(tmp_path, site) as pool:
        before = await call(pool, tmp_path)
        link = await pool.start_sign_in("mail")
        assert link is not None
        name = await pool.finish_sign_in(address_after(link))
        during = await call(pool, tmp_path)
        file = tmp_path / "tokens" / "mail.json"
        modes = (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777)
        gone = (await pool.sign_out("mail"), await pool.sign_out("mail"))
        after = await call(pool, tmp_path)

    assert "HTTP 401; an owner can sign in with /mcp login NAME" in before
    assert link.startswith(f"http://127.0.0.1:{site.port}/tenant/authorize?")
    assert "code_challenge_method=S256" in link
    assert name == "mail"
    assert f"as Bearer {MASK}" in during, "the server says what it was sent"
    assert any(sent.get("authorization") == "Bearer access-1" for _, sent, _ in site.requests)
    assert modes == (0o600, 0o700)
    assert gone == (SignOut.REVOKED, SignOut.WAS_OUT)
    assert [each["token"] for each in site.revoked] == ["refresh-1", "access-1"]
    assert {each["client_id"] for each in site.revoked} == {"client-1"}
    assert not file.exists()
    assert "HTTP 401" in after


async def test_an_expired_token_is_refreshed_also_by_the_next_process(tmp_path: Path) -> None:
    async with mcp_http_server("private") as site:
        site.token_seconds = -1
        async with opened_pool(tmp_path, site) as pool:
            link = await pool.start_sign_in("mail")
            assert link is not None
            await pool.finish_sign_in(address_after(link))
        site.token_seconds = 3600
        async with opened_pool(tmp_path, site) as pool:
            said = await call(pool, tmp_path)

    assert [each["grant_type"] for each in site.grants][-1] == "refresh_token"
    assert f"as Bearer {MASK}" in said


async def test_a_code_alone_is_enough_if_one_sign_in_is_open(tmp_path: Path) -> None:
    async with mcp_http_server("private") as site, opened_pool(tmp_path, site) as pool:
        await pool.start_sign_in("mail")

        assert await pool.finish_sign_in(" good ") == "mail"


async def test_a_client_registered_by_hand_signs_in_with_its_secret(tmp_path: Path) -> None:
    oauth = {"clientId": "by-hand", "clientSecret": "${MAIL_SECRET}", "scopes": ["mail:read"]}
    async with mcp_http_server("private") as site:
        site.client = ("by-hand", "s3cret-value")
        async with opened_pool(tmp_path, site) as pool:
            with pytest.raises(SignInFailed):
                await pool.start_sign_in("mail")
        async with opened_pool(tmp_path, site, oauth=oauth) as pool:
            link = await pool.start_sign_in("mail")
            assert link is not None
            await pool.finish_sign_in(address_after(link))
            said = await call(pool, tmp_path)
        async with opened_pool(tmp_path, site, oauth={**oauth, "clientId": "other"}) as pool:
            other = await call(pool, tmp_path)

    asked = parse_qs(urlsplit(link).query)
    assert (asked["client_id"], asked["scope"]) == (["by-hand"], ["mail:read"])
    assert "you said hi" in said
    assert "s3cret-value" not in (tmp_path / "tokens" / "mail.json").read_text()
    assert "HTTP 401" in other, "tokens of one client are not used by another"


async def test_rights_that_are_missing_in_a_call_are_asked_for_by_the_next_sign_in(
    tmp_path: Path,
) -> None:
    heard: list[tuple[str, str, str]] = []

    async def on_missing_scope(server: str, scope: str, sign_in: str) -> None:
        heard.append((server, scope, sign_in))

    async with (
        mcp_http_server("private") as site,
        opened_pool(tmp_path, site, on_missing_scope=on_missing_scope) as pool,
    ):
        site.granted, site.call_scope = "mail:read", "mail:send"
        link = await pool.start_sign_in("mail")
        assert link is not None
        await pool.finish_sign_in(address_after(link))
        refused = await call(pool, tmp_path)
        await call(pool, tmp_path)
        again = await pool.start_sign_in("mail")
        assert again is not None
        scope = parse_qs(urlsplit(again).query)["scope"]
        site.granted = scope[0]
        await pool.finish_sign_in(address_after(again))
        said = await call(pool, tmp_path)

    assert "wants more rights for this (mail:send); an owner can grant them with" in refused
    assert scope == ["mail:read mail:send"]
    assert "you said hi" in said
    assert [each[:2] for each in heard] == [("mail", "mail:send")] * 2
    assert len(set(heard)) == 1, "one sign-in lacks them"


async def test_owners_get_one_card_a_day_for_the_rights_that_a_sign_in_lacks() -> None:
    courier, clock = RecordingCourier(), ManualClock()
    tell = MissingScopeNotifier(owners=owner_cards(courier, [CHAT]), now=clock)

    await tell("mail", "mail:send", "one")
    await tell("mail", "mail:send", "one")
    await tell("mail", "mail:send [x](y)", "one")
    assert len(courier.cards) == 1
    await tell("mail", "mail:send", "two")
    clock.time += timedelta(days=1)
    await tell("mail", "mail:send", "one")

    assert len(courier.cards) == 3
    assert len(courier.sent) == 4, "the second time says nothing new"
    shown = render(courier.sent[1][1])
    assert "refused a call" in shown.text
    assert "[x](y)" in shown.text
    (buttons,) = [each for each in courier.sent[1][1].blocks if isinstance(each, ButtonsBlock)]
    assert [each.action for each in buttons.items] == [StartMcpSignIn(server="mail")]


async def test_a_server_that_greets_everybody_asks_for_the_sign_in_at_its_tools(
    tmp_path: Path,
) -> None:
    async with mcp_http_server("private") as site, opened_pool(tmp_path, site) as pool:
        site.greets_everybody = True
        link = await pool.start_sign_in("mail")
        assert link is not None
        await pool.finish_sign_in(address_after(link))
        said = await call(pool, tmp_path)

    assert "you said hi" in said


async def test_a_server_that_reads_descriptions_of_clients_gets_the_address_of_ours(
    tmp_path: Path,
) -> None:
    url = "https://boss.example/mcp/client.json"
    async with (
        mcp_http_server("private") as site,
        opened_pool(tmp_path, site, client_url=url) as pool,
    ):
        registered = parse_qs(urlsplit(await pool.start_sign_in("mail") or "").query)["client_id"]
        (tmp_path / "tokens" / "mail.json").unlink()
        site.reads_client_descriptions = True
        named = parse_qs(urlsplit(await pool.start_sign_in("mail") or "").query)["client_id"]
        described = pool.client_description

    assert registered == ["client-1"]
    assert named == [url]
    assert described is not None
    assert described["client_id"] == url
    assert described["redirect_uris"] == ["http://127.0.0.1:1/mcp/callback"]


@pytest.mark.parametrize("told", ["", "gone"])
async def test_tokens_that_cannot_be_withdrawn_are_deleted_nevertheless(
    tmp_path: Path, told: str
) -> None:
    async with mcp_http_server("private") as site, opened_pool(tmp_path, site) as pool:
        link = await pool.start_sign_in("mail")
        assert link is not None
        await pool.finish_sign_in(address_after(link))
        file = tmp_path / "tokens" / "mail.json"
        stored = json.loads(file.read_text())
        gone = f"http://127.0.0.1:{site.port}/{told}"
        stored["metadata"]["revocation_endpoint"] = gone if told else None
        file.write_text(json.dumps(stored))

        assert await pool.sign_out("mail") is SignOut.OUT
        assert not file.exists()


@pytest.mark.parametrize("kind", ["state", "code", "refused", "nothing", "again"])
async def test_a_wrong_answer_signs_nobody_in(tmp_path: Path, kind: str) -> None:
    async with mcp_http_server("private") as site, opened_pool(tmp_path, site) as pool:
        link = await pool.start_sign_in("mail")
        assert link is not None
        match kind:
            case "state":
                pasted = "http://127.0.0.1:1/mcp/callback?code=good&state=other"
            case "code":
                pasted = address_after(link, "wrong")
            case "refused":
                pasted = address_after(link).replace("code=good", "error=access_denied")
            case "nothing":
                pasted = "?state="
            case _:
                pasted = address_after(link)
                await pool.finish_sign_in(pasted)

        with pytest.raises(SignInFailed):
            await pool.finish_sign_in(pasted)
        if kind != "again":
            assert "HTTP 401" in await call(pool, tmp_path)


async def test_a_token_goes_to_no_other_address(tmp_path: Path) -> None:
    async with (
        mcp_http_server("private") as site,
        mcp_http_server() as thief,
        opened_pool(tmp_path, site) as pool,
    ):
        link = await pool.start_sign_in("mail")
        assert link is not None
        await pool.finish_sign_in(address_after(link))
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"mail": {"url": thief.url}}}))
        said = await call(pool, tmp_path)

    assert "as None" in said
    assert not any("authorization" in headers for _, headers, _ in thief.requests)


async def test_what_needs_no_sign_in_or_is_not_known_says_so(tmp_path: Path) -> None:
    async with mcp_http_server() as site, opened_pool(tmp_path, site) as pool:
        assert await pool.start_sign_in("nobody") is None
        with pytest.raises(SignInFailed, match="asks for no sign-in"):
            await pool.start_sign_in("mail")


async def test_closing_gives_up_open_sign_ins(tmp_path: Path) -> None:
    async with mcp_http_server("private") as site:
        async with opened_pool(tmp_path, site) as pool:
            await pool.start_sign_in("mail")
        left = {each.get_name() for each in asyncio.all_tasks()}

    assert "mcp sign-in" not in left
