"""The web chat with a page that is always open, comes back after each death, and says again
whatever was not acknowledged: as the real page does."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from tests.journeys.program import ShiftbossProcess

_BUTTON = re.compile(r'data-token="(\w+)"[^>]*>(.*?)</button>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_REST = 0.05
_PATIENCE = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message of the bot; `first` is what it said when it came, `file` a file's name."""

    id: str
    text: str
    first: str
    file: str = ""


class WebChannelClient:
    name: Literal["web"] = "web"
    rooms = 1

    def __init__(self) -> None:
        self.said = 0
        self._numbers = itertools.count(1)
        self._items: dict[str, dict[str, Any]] = {}
        self._unheard: dict[str, dict[str, Any]] = {}
        self._heard: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._program: ShiftbossProcess | None = None
        self._socket: ClientConnection | None = None
        self._living: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._living = asyncio.create_task(self._reconnect_forever())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._living is not None
        self._living.cancel()
        await asyncio.gather(self._living, return_exceptions=True)

    @property
    def settings(self) -> Mapping[str, str]:
        return {"SHIFTBOSS_LANGUAGE": "en"}

    def attach(self, program: ShiftbossProcess) -> None:
        self._program = program

    async def send_message(
        self, text: str, *, room: int = 0, file: tuple[str, bytes] | None = None
    ) -> None:
        assert room < self.rooms
        self.said += 1
        frame: dict[str, Any] = {"type": "say", "id": self._new_id("say"), "text": text}
        if file is not None:
            frame["files"] = [await self._upload(*file)]
        await self._send(frame)

    async def press(self, word: str, *, about: str = "", room: int = 0) -> None:
        assert room < self.rooms
        async with asyncio.timeout(_PATIENCE):
            while (found := self._button(word, about)) is None:
                await self._change()
        card, token = found
        await self._send(
            {"type": "press", "id": self._new_id("press"), "card": card, "token": token}
        )

    def list_messages(self) -> Sequence[ShownMessage]:
        return [
            ShownMessage(id=each["id"], text=_text(each["html"]), first="")
            for each in self._items.values()
            if each["id"].startswith("card-")
        ]

    def count_unacknowledged(self) -> int:
        return len(self._unheard)

    def misbehave(self, dice: Callable[[int], int]) -> None:
        if dice(2):
            self.redeliver()
        elif self._socket is not None:
            self._socket.transport.abort()

    def redeliver(self) -> None:
        """All frames of before, under their old ids."""
        for frame in self._heard[-20:]:
            self._unheard[frame["id"]] = frame
        if self._socket is not None:
            self._socket.transport.abort()

    async def _send(self, frame: dict[str, Any]) -> None:
        self._unheard[frame["id"]] = frame
        if self._socket is not None:
            with suppress(WebSocketException, OSError):
                await self._socket.send(json.dumps(frame))

    async def _reconnect_forever(self) -> None:
        while True:
            with suppress(WebSocketException, OSError, IndexError, httpx.HTTPError, TimeoutError):
                await self._connect()
            self._socket = None
            await asyncio.sleep(_REST)

    async def _connect(self) -> None:
        if self._program is None:
            return
        address, token = self._address_and_token()
        async with connect(
            f"{address.replace('http', 'ws', 1)}/ws",
            additional_headers={"Authorization": f"Bearer {token}", "accept-language": "en"},
            proxy=None,
            open_timeout=5,
        ) as socket:
            self._socket = socket
            for frame in list(self._unheard.values()):
                await socket.send(json.dumps(frame))
            async for raw in socket:
                self._handle_frame(json.loads(raw))

    def _handle_frame(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "past":
            self._items = {item["id"]: item for item in frame["items"]}
        elif frame["type"] == "item":
            self._items[frame["id"]] = frame
        elif frame["type"] in {"stored", "toast"} and frame.get("id") in self._unheard:
            self._heard.append(self._unheard.pop(frame["id"]))
        elif frame["type"] == "refused":
            raise AssertionError(f"refused: {frame}")
        bell, self._changed = self._changed, asyncio.Event()
        bell.set()

    async def _upload(self, name: str, data: bytes) -> str:
        while True:
            with suppress(httpx.HTTPError, IndexError):
                address, token = self._address_and_token()
                async with httpx.AsyncClient(trust_env=False) as browser:
                    answer = await browser.post(
                        f"{address}/upload",
                        params={"name": name},
                        content=data,
                        headers={"Authorization": f"Bearer {token}"},
                    )
                if answer.status_code == httpx.codes.CREATED:
                    return str(answer.json()["id"])
            await asyncio.sleep(_REST)

    def _address_and_token(self) -> tuple[str, str]:
        assert self._program is not None
        address, _, token = self._program.address.partition("/?token=")
        return address, token

    def _button(self, word: str, about: str) -> tuple[str, str] | None:
        for item in self._items.values():
            for token, label in _BUTTON.findall(item["html"]):
                if word in label and about in _text(item["html"]):
                    return item["id"], token
        return None

    async def _change(self) -> None:
        await self._changed.wait()

    def _new_id(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers):08}"


def _text(markup: str) -> str:
    return html.unescape(_TAG.sub(" ", markup))
