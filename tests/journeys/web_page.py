"""A client of the web chat that exchanges frames as its page does."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tests.journeys.program import ShiftbossProcess
from tests.waiting import WAIT_SECONDS

_PAGE_IDS = itertools.count(10_000_000)
_RECEIPTS = {"stored", "refused", "toast"}


class WebPageClient:
    """An open page of the web chat."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.frames: list[dict[str, Any]] = []

    async def send_message(self, text: str) -> None:
        frame = {"type": "say", "id": f"page-{next(_PAGE_IDS)}", "text": text}
        await self._socket.send(json.dumps(frame))

    async def press(self, html: str, label: str) -> None:
        """Press the button with this label on a card."""
        await self._socket.send(press_frame(button_token(html, label), next(_PAGE_IDS)))

    async def next_frame(
        self, kind: str, part: str = "", timeout: float = WAIT_SECONDS
    ) -> dict[str, Any]:
        """The next frame of that kind, or of any, with this in its HTML."""
        while True:
            frame = await self._receive(timeout)
            if kind in {"", frame["type"]} and part in frame.get("html", ""):
                return frame

    async def exchange(self, frame: str) -> dict[str, Any]:
        """Send a frame as it is; the frame that acknowledges or refuses it."""
        await self._socket.send(frame)
        while True:
            answer = await self._receive()
            if answer["type"] in _RECEIPTS:
                return answer

    async def wait_closed(self) -> None:
        await self._socket.wait_closed()

    async def _receive(self, timeout: float = WAIT_SECONDS) -> dict[str, Any]:
        async with asyncio.timeout(timeout):
            frame: dict[str, Any] = json.loads(await self._socket.recv())
        self.frames.append(frame)
        return frame


def button_token(html: str, label: str) -> str:
    """The token of the button with that label."""
    found = re.search(rf'data-token="([^"]+)"[^>]*><bdi>[^<]*{label}', html)
    assert found, html
    return found[1]


def press_frame(token: str, number: int) -> str:
    return json.dumps({"type": "press", "id": f"press-{number:04}", "token": token})


@asynccontextmanager
async def open_web_page(shiftboss: ShiftbossProcess) -> AsyncGenerator[WebPageClient, None]:
    """Opened by the printed address, as a browser opens it."""
    url = httpx.URL(shiftboss.address)
    origin = f"http://127.0.0.1:{url.port}"
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as browser:
        await browser.get(url, follow_redirects=True)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    async with connect(
        f"ws://127.0.0.1:{url.port}/ws",
        origin=Origin(origin),
        additional_headers={"cookie": cookies, "accept-language": "en"},
        proxy=None,
        open_timeout=WAIT_SECONDS,
    ) as socket:
        yield WebPageClient(socket)


async def send_frames(shiftboss: ShiftbossProcess, *frames: str) -> list[dict[str, Any]]:
    """Send these frames from a page of their own; the answer to each."""
    async with open_web_page(shiftboss) as page:
        return [await page.exchange(frame) for frame in frames]
