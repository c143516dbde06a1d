"""A browser that is signed out stays out, and no cookie can be made up, planted or brought back."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tests.journeys.platform_world import platform_world
from tests.journeys.program import ShiftbossProcess, running_program
from tests.waiting import WAIT_SECONDS

TOKEN = "5f2b9c7e1a8d4063bb17e9c20d5f8a64"
HOSTILE_AGENT = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) `*_ \t@everyone <b>"


@dataclass
class Page:
    """A browser with one cookie, kept over restarts that change the port."""

    program: ShiftbossProcess
    value: str

    @property
    def url(self) -> str:
        return self.program.address.partition("/?")[0]

    @property
    def cookies(self) -> dict[str, str]:
        return {f"shiftboss_{httpx.URL(self.url).port}": self.value}

    async def get(self, path: str = "/") -> int:
        return (await self._send("GET", path)).status_code

    async def post(self, path: str) -> int:
        return (await self._send("POST", path, content=b"x")).status_code

    async def _send(self, method: str, path: str, **how: Any) -> httpx.Response:
        headers = {"origin": self.url}
        async with httpx.AsyncClient(
            cookies=self.cookies, trust_env=False, timeout=WAIT_SECONDS
        ) as browser:
            return await browser.request(method, f"{self.url}{path}", headers=headers, **how)

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[ClientConnection]:
        header = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        async with connect(
            f"{self.url.replace('http', 'ws')}/ws",
            origin=Origin(self.url),
            additional_headers={"cookie": header, "accept-language": "en"},
            proxy=None,
            open_timeout=WAIT_SECONDS,
        ) as socket:
            yield socket

    async def is_out(self) -> bool:
        """Neither reads nor writes."""
        return (
            [await self.get(), await self.get("/files/x"), await self.post("/upload?name=a.txt")]
        ) == [401, 401, 401]


async def sign_in(program: ShiftbossProcess, agent: str = "Firefox", cookie: str = "") -> Page:
    name = f"shiftboss_{httpx.URL(program.address).port}"
    kept = {name: cookie} if cookie else None
    async with httpx.AsyncClient(cookies=kept, trust_env=False, timeout=WAIT_SECONDS) as browser:
        answer = await browser.get(program.address, headers={"user-agent": agent})
    assert answer.status_code == 303
    return Page(program, answer.cookies[name])


def change_store(home: Path, statement: str, *values: str) -> list[Any]:
    with closing(sqlite3.connect(home / "shiftboss.db")) as store, store:
        return store.execute(statement, values).fetchall()


def say(text: str) -> str:
    return json.dumps({"type": "say", "id": "page-12345678", "text": text})


async def wait_closed(socket: ClientConnection) -> int:
    async with asyncio.timeout(WAIT_SECONDS):
        await socket.wait_closed()
    return socket.close_code or 0


async def test_only_a_cookie_that_was_given_out_opens_the_page(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_program(home, SHIFTBOSS_WEB_TOKEN=TOKEN) as program:
        page = await sign_in(program)
        ((session, stored),) = change_store(home, "SELECT id, cookie_hash FROM web_sessions")
        earlier = hmac.new(TOKEN.encode(), b"shiftboss web cookie", hashlib.sha256).hexdigest()
        forged = [
            *(earlier, TOKEN, session, stored, page.value[:-1], page.value.swapcase()),
            *(f"{page.value}x", hashlib.sha256(page.value.encode()).hexdigest(), "' OR 1=1 --"),
            *("%00", "0" * 64, "local", "null"),
        ]

        assert await page.get() == 200
        assert page.value not in (stored, session)
        for value in forged:
            assert await Page(program, value).is_out(), value
        assert await page.get() == 200


async def test_a_session_that_is_signed_out_is_not_brought_back(tmp_path: Path) -> None:
    async with running_program(tmp_path / "home", SHIFTBOSS_WEB_TOKEN=TOKEN) as program:
        page, other = await sign_in(program), await sign_in(program)
        async with page.socket() as socket:
            signed_out = await page.post("/sign-out")
            code = await wait_closed(socket)
        out = await page.is_out()
        await program.kill()
        await program.start()

        assert (signed_out, code, out) == (303, 1008, True)
        assert await page.is_out()
        assert await other.get() == 200


async def test_another_site_can_neither_sign_out_nor_plant_a_session(tmp_path: Path) -> None:
    async with running_program(tmp_path / "home", SHIFTBOSS_WEB_TOKEN=TOKEN) as program:
        page = await sign_in(program)
        async with httpx.AsyncClient(
            cookies=page.cookies, trust_env=False, timeout=WAIT_SECONDS
        ) as evil:
            foreign = await evil.post(
                f"{page.url}/sign-out", headers={"origin": "http://evil.example"}
            )
        planted = await sign_in(program, cookie="planted-by-somebody-else")
        again = await sign_in(program, cookie=page.value)

        assert foreign.status_code == 403
        assert planted.value != "planted-by-somebody-else"
        assert await Page(program, "planted-by-somebody-else").is_out()
        assert again.value != page.value
        assert await page.is_out()
        assert [await planted.get(), await again.get()] == [200, 200]


async def test_an_expired_session_is_over_at_its_next_word(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_program(home, SHIFTBOSS_WEB_TOKEN=TOKEN) as program:
        page = await sign_in(program)
        async with page.socket() as socket:
            await socket.recv()
            change_store(home, "UPDATE web_sessions SET expires_at = created_at")
            await socket.send(say("/run wait 1 hour"))
            code = await wait_closed(socket)

        assert code == 1008
        assert await page.is_out()
        assert not change_store(home, "SELECT id FROM tasks")


async def test_a_new_token_ends_all_sessions_for_good(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_program(home, SHIFTBOSS_WEB_TOKEN=TOKEN) as program:
        page = await sign_in(program)
        await program.stop()
        program.settings = {**program.settings, "SHIFTBOSS_WEB_TOKEN": TOKEN[::-1]}
        await program.start()
        with_another = await page.is_out()
        await program.stop()
        program.settings = {**program.settings, "SHIFTBOSS_WEB_TOKEN": TOKEN}
        await program.start()

        assert with_another
        assert await page.is_out()
        assert not change_store(home, "SELECT id FROM web_sessions")


async def test_an_owner_ends_sessions_in_chat_and_a_kill_changes_nothing(tmp_path: Path) -> None:
    async with platform_world(tmp_path / "home", SHIFTBOSS_WEB_TOKEN=TOKEN) as here:
        lost, kept = await sign_in(here.program, HOSTILE_AGENT), await sign_in(here.program)
        listed = await here.ask("/sessions", expects="Signed-in browsers")
        (session,) = change_store(
            tmp_path / "home", "SELECT id FROM web_sessions WHERE user_agent LIKE ?", "%img%"
        )
        async with lost.socket() as socket:
            await here.ask(f"/sessions end {session[0]}", expects="Session ended")
            code = await wait_closed(socket)
        out, still = await lost.is_out(), await kept.get()
        await here.program.kill()
        await here.program.start()
        await here.wait_until_connected()

        assert session[0] in listed
        assert "onerror" in listed
        assert (code, out, still) == (1008, True, 200)
        assert await lost.is_out()
        assert await kept.get() == 200
        sent = await here.ask("/dashboard", expects="/sign-in/")
        (link,) = set(re.findall(r"http\S+/sign-in/[0-9a-f]+", sent))
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as phone:
            previews = [await phone.head(link), await phone.get(link)]
            used = [await phone.post(link, headers={"origin": kept.url}) for _ in range(2)]
            pages = [await phone.get(f"{kept.url}{path}") for path in ("/dashboard", "/files/x")]
        assert [each.status_code for each in previews] == [200, 200]
        assert [each.status_code for each in used] == [303, 410]
        assert [each.status_code for each in pages] == [200, 403]
        repeated = await here.ask(f"/sessions end {session[0]}", expects="No web session")
        assert session[0] in repeated
        await here.ask("/sessions end others", expects="No browser is signed in")
        assert await kept.is_out()


async def test_the_browser_that_ends_all_others_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_program(home, SHIFTBOSS_WEB_TOKEN=TOKEN) as program:
        mine, *others = [await sign_in(program, HOSTILE_AGENT) for _ in range(4)]
        async with mine.socket() as socket:
            await socket.send(say("/sessions end others"))
            frame = ""
            while "sessions ended" not in frame:
                frame = str(await asyncio.wait_for(socket.recv(), WAIT_SECONDS))
        status, printed = await program.run_to_end("sessions", "--json")

        assert await mine.get() == 200
        assert [await each.is_out() for each in others] == [True] * 3
        assert "<img" not in frame
        assert 'href=\\"javascript' not in frame
        assert status == 0
        assert printed.count('"user_agent"') == 1
