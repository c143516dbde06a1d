"""The long connection: discover, connect, read frames, acknowledge; come back from anything."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from bot.transports.feishu.errors import Broken, FeishuError, Kind
from bot.transports.feishu.link import frames

log = logging.getLogger(__name__)

_OPEN_SECONDS = 10.0
_PONG_SECONDS = 15.0
_STABLE_SECONDS = 60.0
_LONGEST_PAUSE = 60.0
_MAX_FRAME = 16 * 1024 * 1024
_TOO_MANY_CONNECTIONS = 1000040350
_BUSY = (1, 1000040343)

Handle = Callable[[bytes], Awaitable[Mapping[str, Any] | None]]
"""Takes an event's JSON and returns what a press is to be shown. If it raises, the platform
sends the event again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    url: str
    service: int


class Refusal(Exception):
    """The platform, or the network, would not have us; `key` names the operator's message."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(f"{key} {facts}")


class LongConnection:
    """`alert` is called once per kind of trouble and with an empty key when it is over; `stored`
    after every event, with whether it was."""

    def __init__(
        self,
        *,
        prepare: Callable[[], Awaitable[None]],
        discover: Callable[[], Awaitable[dict[str, Any]]],
        handle: Handle,
        alert: Callable[[str, Mapping[str, object]], None],
        stored: Callable[[bool], None],
        domain: str,
        pause: Callable[[float], Awaitable[None]],
        jitter: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._prepare = prepare
        self._discover = discover
        self._handle = handle
        self._alert = alert
        self._stored = stored
        self._domain = domain
        self._pause = pause
        self._jitter = jitter
        self._now = now
        self._answering: set[asyncio.Task[None]] = set()
        self._pong = asyncio.Event()
        self._ping_seconds = 120.0
        self._parts = frames.Assembly(now)
        self._told = ""
        self._failures = 0

    async def run(self) -> None:
        """Never returns: whatever ends a connection, there is a next one."""
        try:
            while True:
                await self._connect_once()
                await self._pause(self._backoff())
        finally:
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    async def _connect_once(self) -> None:
        try:
            await self._prepare()
            endpoint = self._endpoint(await self._discover())
            started = self._now()
            await self._converse(endpoint)
        except Refusal as refusal:
            self._failed(refusal)
        except FeishuError as error:
            self._failed(_refusal(error))
        # ImportError: a proxy of a kind that needs a package which is not there.
        except (Broken, OSError, TimeoutError, WebSocketException, ImportError) as error:
            self._failed(self._unreachable(error))
        else:
            if self._now() - started > _STABLE_SECONDS:
                self._failures = 0

    def _failed(self, refusal: Refusal) -> None:
        if refusal.key and refusal.key != self._told:
            self._told = refusal.key
            self._alert(refusal.key, refusal.facts)
        log.warning("feishu: no long connection: %s", refusal)

    def _unreachable(self, error: Exception) -> Refusal:
        if isinstance(error, InvalidStatus):
            code = error.response.headers.get("handshake-status", error.response.status_code)
            inner = error.response.headers.get("handshake-autherrcode", "")
            if inner == str(_TOO_MANY_CONNECTIONS):
                return Refusal("connections")
            return Refusal("refused", code=code)
        reason = str(error) if isinstance(error, Broken) else type(error).__name__
        return Refusal("unreachable", domain=self._domain, reason=reason)

    def _backoff(self) -> float:
        """Jittered: at once after a quiet life, up to a minute when it keeps failing."""
        longest = min(_LONGEST_PAUSE, 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return longest * (0.5 + self._jitter() / 2)

    def _endpoint(self, data: Mapping[str, Any]) -> Endpoint:
        url = str(data.get("URL", ""))
        query = parse_qs(urlsplit(url).query)
        service = query.get("service_id", [""])[0]
        if "device_id" not in query or not service.isdigit():
            raise Refusal("refused", code="endpoint")
        self._configure(data.get("ClientConfig"))
        return Endpoint(url=url, service=int(service))

    def _configure(self, config: Any) -> None:
        seconds = config.get("PingInterval") if isinstance(config, dict) else None
        if isinstance(seconds, int | float) and seconds > 0:
            self._ping_seconds = float(seconds)

    async def _converse(self, endpoint: Endpoint) -> None:
        loopback = urlsplit(endpoint.url).hostname in ("127.0.0.1", "::1", "localhost")
        async with connect(
            endpoint.url,
            open_timeout=_OPEN_SECONDS,
            close_timeout=2,
            max_size=_MAX_FRAME,
            proxy=None if loopback else True,
        ) as connection:
            log.info("feishu: connected")
            self._told = ""
            self._alert("", {})
            pinging = asyncio.create_task(self._ping(connection, endpoint.service))
            try:
                async for data in connection:
                    self._receive(connection, data)
            except ConnectionClosed:
                pass
            finally:
                pinging.cancel()
                await asyncio.gather(pinging, return_exceptions=True)
        log.info("feishu: disconnected")

    async def _ping(self, connection: ClientConnection, service: int) -> None:
        """Ping at the platform's pace; no pong in time means that nobody is there."""
        while True:
            self._pong.clear()
            await connection.send(frames.ping(service))
            try:
                async with asyncio.timeout(_PONG_SECONDS):
                    await self._pong.wait()
            except TimeoutError:
                log.warning("feishu: no pong, connecting anew")
                connection.transport.abort()
                return
            await asyncio.sleep(self._ping_seconds)

    def _receive(self, connection: ClientConnection, data: str | bytes) -> None:
        try:
            frame = frames.read(data if isinstance(data, bytes) else data.encode())
            if frame.is_pong:
                self._pong.set()
                if frame.payload:
                    self._configure(json.loads(frame.payload))
            elif frame.is_data and (payload := self._parts.add(frame)) is not None:
                task = asyncio.create_task(self._answer(connection, frame, payload))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        except ValueError as error:
            log.warning("feishu: unreadable frame: %s", error)

    async def _answer(
        self, connection: ClientConnection, frame: frames.Frame, payload: bytes
    ) -> None:
        started = self._now()
        code, answer = 200, None
        try:
            answer = await self._handle(payload)
        except Exception:  # one event must not end the connection; the platform sends it again
            log.exception("feishu: an event could not be stored")
            code = 500
        self._stored(code == 200)  # noqa: PLR2004 - the platform's word for done
        took = int((self._now() - started) * 1000)
        try:
            await connection.send(frames.ack(frame, answer, code=code, took_ms=took))
        except ConnectionClosed:
            log.info("feishu: connection went before the ack; the event will come again")


def _refusal(error: FeishuError) -> Refusal:
    if error.code == _TOO_MANY_CONNECTIONS:
        return Refusal("connections")
    if error.code in _BUSY or error.kind in (Kind.SERVER, Kind.CHANNEL_RATE):
        return Refusal("", code=error.code)
    if error.kind is Kind.CREDENTIALS:
        return Refusal("credentials", code=error.code)
    if error.kind is Kind.SCOPE:
        return Refusal("scope", detail=error.msg[:200])
    return Refusal("refused", code=error.code)
