"""The Feishu long connection: connects, receives and acknowledges events, and reconnects."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from bot.transports.feishu.api import (
    FeishuConnectionError,
    FeishuError,
    FeishuErrorKind,
    is_loopback,
)
from bot.transports.feishu.frames import (
    FeishuFrame,
    FeishuFrameAssembler,
    encode_ack,
    encode_ping,
    parse_frame,
)
from storage.errors import StoreUnavailable

log = logging.getLogger(__name__)

_OPEN_TIMEOUT = 10.0
_PONG_TIMEOUT = 15.0
_STABLE_SECONDS = 60.0
_MAX_BACKOFF = 60.0
_MAX_UNSTORED = 1000
_STORE_ERRORS = (StoreUnavailable, OSError)
_MAX_FRAME = 16 * 1024 * 1024
_TOO_MANY_CONNECTIONS = 1000040350
_BUSY_CODES = (1, 1000040343)

FeishuEventCallback = Callable[[bytes], Awaitable[Mapping[str, Any] | None]]
"""Handles an event's JSON and returns the toast of a press. If it raises, the event is tried again,
by us and by the platform."""


class FeishuConnectionRefused(Exception):
    """The connection was refused; `key` is the operator's alert."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(f"{key} {facts}")


@dataclass(kw_only=True, eq=False)
class FeishuLongConnection:
    """`alert` is called once per problem and with an empty key when it is solved; `on_stored` after
    every event, with whether it was stored; `on_connected` after every connecting."""

    prepare: Callable[[], Awaitable[None]]
    discover: Callable[[], Awaitable[dict[str, Any]]]
    handle: FeishuEventCallback
    alert: Callable[[str, Mapping[str, object]], None]
    on_stored: Callable[[bool], None]
    on_connected: Callable[[], None]
    domain: str
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]
    now: Callable[[], float]
    _unstored: deque[bytes] = field(default_factory=deque, init=False)
    _event_tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _pong: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _ping_seconds: float = field(default=120.0, init=False)
    _assembler: FeishuFrameAssembler = field(init=False)
    _last_alert: str = field(default="", init=False)
    _failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._assembler = FeishuFrameAssembler(self.now)

    async def run(self) -> None:
        """Never returns; reconnects after every failure."""
        try:
            while True:
                await self._connect_once()
                await self.sleep(self._backoff())
        finally:
            for task in self._event_tasks:
                task.cancel()
            await asyncio.gather(*self._event_tasks, return_exceptions=True)

    async def _connect_once(self) -> None:
        try:
            await self.prepare()
            url, service = self._parse_endpoint(await self.discover())
            started = self.now()
            await self._run_connection(url, service)
        except FeishuConnectionRefused as refusal:
            self._report_refusal(refusal)
        except FeishuError as error:
            self._report_refusal(_refusal_from_error(error))
        # ImportError: the configured proxy type needs a package that is not installed.
        except (FeishuConnectionError, OSError, WebSocketException, ImportError) as error:
            self._report_refusal(self._refusal_from_failure(error))
        else:
            if self.now() - started > _STABLE_SECONDS:
                self._failures = 0

    def _report_refusal(self, refusal: FeishuConnectionRefused) -> None:
        if refusal.key and refusal.key != self._last_alert:
            self._last_alert = refusal.key
            self.alert(refusal.key, refusal.facts)
        log.warning("feishu: no long connection: %s", refusal)

    def _refusal_from_failure(self, error: Exception) -> FeishuConnectionRefused:
        if isinstance(error, InvalidStatus):
            code = error.response.headers.get("handshake-status", error.response.status_code)
            inner = error.response.headers.get("handshake-autherrcode", "")
            if inner == str(_TOO_MANY_CONNECTIONS):
                return FeishuConnectionRefused("connections")
            return FeishuConnectionRefused("refused", code=code)
        reason = str(error) if isinstance(error, FeishuConnectionError) else type(error).__name__
        return FeishuConnectionRefused("unreachable", domain=self.domain, reason=reason)

    def _backoff(self) -> float:
        """Seconds with jitter: none after a stable connection, up to a minute after repeated
        failures."""
        longest = min(_MAX_BACKOFF, 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return longest * (0.5 + self.jitter() / 2)

    def _parse_endpoint(self, data: Mapping[str, Any]) -> tuple[str, int]:
        """The address to connect to and the service number in it."""
        url = str(data.get("URL", ""))
        query = parse_qs(urlsplit(url).query)
        service = query.get("service_id", [""])[0]
        if "device_id" not in query or not service.isdigit():
            raise FeishuConnectionRefused("refused", code="endpoint")
        self._configure(data.get("ClientConfig"))
        return url, int(service)

    def _configure(self, config: Any) -> None:
        seconds = config.get("PingInterval") if isinstance(config, dict) else None
        if isinstance(seconds, int | float) and seconds > 0:
            self._ping_seconds = float(seconds)

    async def _run_connection(self, url: str, service: int) -> None:
        async with connect(
            url,
            open_timeout=_OPEN_TIMEOUT,
            close_timeout=2,
            max_size=_MAX_FRAME,
            proxy=None if is_loopback(url) else True,
        ) as connection:
            log.info("feishu: connected")
            self._last_alert = ""
            self.alert("", {})
            self.on_connected()
            pinging = asyncio.create_task(self._keep_alive(connection, service))
            try:
                async for data in connection:
                    self._receive_frame(connection, data)
            except ConnectionClosed:
                pass
            finally:
                pinging.cancel()
                await asyncio.gather(pinging, return_exceptions=True)
        log.info("feishu: disconnected")

    async def _keep_alive(self, connection: ClientConnection, service: int) -> None:
        """Ping at the platform's interval; without a pong in time the connection is closed."""
        while True:
            self._pong.clear()
            await connection.send(encode_ping(service))
            try:
                async with asyncio.timeout(_PONG_TIMEOUT):
                    await self._pong.wait()
            except TimeoutError:
                log.warning("feishu: no pong, reconnecting")
                connection.transport.abort()
                return
            await asyncio.sleep(self._ping_seconds)

    def _receive_frame(self, connection: ClientConnection, data: str | bytes) -> None:
        try:
            frame = parse_frame(data if isinstance(data, bytes) else data.encode())
            if frame.is_pong:
                self._pong.set()
                if frame.payload:
                    self._configure(json.loads(frame.payload))
            elif frame.is_data and (payload := self._assembler.add(frame)) is not None:
                task = asyncio.create_task(self._handle_event(connection, frame, payload))
                self._event_tasks.add(task)
                task.add_done_callback(self._event_tasks.discard)
        except ValueError as error:
            log.warning("feishu: unreadable frame: %s", error)

    async def _handle_event(
        self, connection: ClientConnection, frame: FeishuFrame, payload: bytes
    ) -> None:
        started = self.now()
        code, answer = 200, None
        try:
            answer = await self.handle(payload)
        except Exception as error:  # error boundary: the platform sends the event again
            log.exception("feishu: an event could not be stored")
            code = 500
            if isinstance(error, _STORE_ERRORS):
                self._keep(payload)
        self.on_stored(code == 200)  # noqa: PLR2004 - HTTP status OK
        took = int((self.now() - started) * 1000)
        try:
            await connection.send(encode_ack(frame, answer, code=code, took_ms=took))
        except ConnectionClosed:
            log.info("feishu: connection lost before the ack; the event will be sent again")

    def _keep(self, payload: bytes) -> None:
        """Try again ourselves: the platform waits up to five minutes before it does."""
        if len(self._unstored) >= _MAX_UNSTORED:
            return
        self._unstored.append(payload)
        if len(self._unstored) == 1:
            task = asyncio.create_task(self._store_later(), name="feishu unstored events")
            self._event_tasks.add(task)
            task.add_done_callback(self._event_tasks.discard)

    async def _store_later(self) -> None:
        """Store what could not be stored, in order. An event that the platform has sent again
        meanwhile is stored once."""
        attempt = 0
        while self._unstored:
            await self.sleep(min(_MAX_BACKOFF, 2.0**attempt))
            try:
                while self._unstored:
                    await self.handle(self._unstored[0])
                    self._unstored.popleft()
                    self.on_stored(True)
            except _STORE_ERRORS as error:
                log.warning("feishu: an event still cannot be stored: %s", error)
                attempt = min(attempt + 1, 10)
            except Exception:  # error boundary: it must not stop those behind it
                log.exception("feishu: an event is left to the platform's repetition")
                self._unstored.popleft()


def _refusal_from_error(error: FeishuError) -> FeishuConnectionRefused:
    if error.code == _TOO_MANY_CONNECTIONS:
        return FeishuConnectionRefused("connections")
    if error.code in _BUSY_CODES or error.kind in (
        FeishuErrorKind.SERVER,
        FeishuErrorKind.CHANNEL_RATE,
    ):
        return FeishuConnectionRefused("", code=error.code)
    if error.kind is FeishuErrorKind.CREDENTIALS:
        return FeishuConnectionRefused("credentials", code=error.code)
    if error.kind is FeishuErrorKind.SCOPE:
        return FeishuConnectionRefused("scope", detail=error.msg[:200])
    return FeishuConnectionRefused("refused", code=error.code)
