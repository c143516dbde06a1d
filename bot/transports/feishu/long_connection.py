"""The Feishu long connection: connects, reads and acknowledges protobuf frames, and reconnects.
Imports only the SDK's frame module: the whole SDK takes three seconds and 160 MiB."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from types import ModuleType
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
from storage.errors import StoreUnavailable

# The last one would search for namespace packages with setuptools, which takes 60 ms.
_EMPTY_PACKAGES = ("lark_oapi", "lark_oapi.ws", "lark_oapi.ws.pb", "lark_oapi.ws.pb.google")


@cache
def frame_class() -> Any:
    """The SDK's `Frame` message class."""
    return _load_frame_module().Frame


@cache
def decode_error() -> type[Exception]:
    """Exception raised for invalid frames."""
    _load_frame_module()
    message = importlib.import_module("lark_oapi.ws.pb.google.protobuf.message")
    error: type[Exception] = message.DecodeError
    return error


def _load_frame_module() -> ModuleType:
    for name in _EMPTY_PACKAGES:
        if name not in sys.modules:
            sys.modules[name] = _empty_package(name)
    return importlib.import_module("lark_oapi.ws.pb.pbbp2_pb2")


def _empty_package(name: str) -> ModuleType:
    """An empty package as import parent, so that its `__init__` does not run."""
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(name)
    module = ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations or ())
    module.__spec__ = spec
    return module


_CONTROL, _DATA = 0, 1
_PART_LIFETIME = 5.0
_MAX_PARTS = 1000
_MAX_PENDING_PAYLOADS = 100


class FeishuFrameError(ValueError):
    """Invalid frame."""


@dataclass(frozen=True, slots=True)
class FeishuFrame:
    """One frame; `raw` is the protobuf message, which an acknowledgement echoes."""

    raw: Any
    headers: Mapping[str, str]
    payload: bytes

    @property
    def is_pong(self) -> bool:
        return self.raw.method == _CONTROL and self.headers.get("type") == "pong"

    @property
    def is_data(self) -> bool:
        return bool(self.raw.method == _DATA)


def parse_frame(data: bytes) -> FeishuFrame:
    raw = frame_class()()
    try:
        raw.ParseFromString(data)
    except (decode_error(), ValueError) as error:
        raise FeishuFrameError("not a frame") from error
    headers = {header.key: header.value for header in raw.headers}
    return FeishuFrame(raw, headers, raw.payload)


def encode_ping(service: int) -> bytes:
    raw = frame_class()(SeqID=0, LogID=0, service=service, method=_CONTROL)
    _add_header(raw, "type", "ping")
    data: bytes = raw.SerializeToString()
    return data


def encode_ack(
    frame: FeishuFrame, answer: Mapping[str, Any] | None, *, code: int, took_ms: int
) -> bytes:
    """The frame echoed with its result; `answer` is the toast of a card press."""
    body: dict[str, Any] = {"code": code}
    if answer is not None:
        text = json.dumps(answer, ensure_ascii=False)
        body["data"] = base64.b64encode(text.encode("utf-8", "replace")).decode()
    _add_header(frame.raw, "biz_rt", str(took_ms))
    frame.raw.payload = json.dumps(body).encode()
    data: bytes = frame.raw.SerializeToString()
    return data


class FeishuFrameAssembler:
    """Joins payloads sent in parts; incomplete ones are dropped after five seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._parts: dict[str, tuple[float, dict[int, bytes]]] = {}

    def add(self, frame: FeishuFrame) -> bytes | None:
        """The payload, once it is complete."""
        try:
            total = int(frame.headers.get("sum", "1") or 1)
            number = int(frame.headers.get("seq", "0") or 0)
        except ValueError as error:
            raise FeishuFrameError("part numbers are no numbers") from error
        if total <= 1:
            return frame.payload
        if total > _MAX_PARTS or not 0 <= number < total:
            raise FeishuFrameError(f"part {number} of {total}")
        return self._collect(frame.headers.get("message_id", ""), total, number, frame.payload)

    def _collect(self, message_id: str, total: int, number: int, part: bytes) -> bytes | None:
        now = self._now()
        self._parts = {k: v for k, v in self._parts.items() if v[0] > now}
        if message_id not in self._parts and len(self._parts) >= _MAX_PENDING_PAYLOADS:
            raise FeishuFrameError("too many unfinished payloads")
        _, parts = self._parts.get(message_id, (0.0, {}))
        parts[number] = part
        if len(parts) < total:
            self._parts[message_id] = (now + _PART_LIFETIME, parts)
            return None
        self._parts.pop(message_id, None)
        return b"".join(parts[index] for index in sorted(parts))


def _add_header(raw: Any, key: str, value: str) -> None:
    raw.headers.add(key=key, value=value)


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
