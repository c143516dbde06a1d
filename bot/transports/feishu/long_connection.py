"""The Feishu long connection: connects, receives and acknowledges events, and reconnects."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
    """The connection. `alert` is called once per problem, and with an empty key when it is solved;
    `on_stored` after every event, with whether it was stored; `on_connected` after every
    connection.
    """

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
        """Stay connected. Never returns; reconnects after every failure."""
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
        """Keep an event that could not be stored, to try again: the platform waits up to five
        minutes before it repeats it.
        """
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


_CONTROL, _DATA = 0, 1
_PART_LIFETIME = 5.0
_MAX_PARTS = 1000
_MAX_PENDING_PAYLOADS = 100

_SEQUENCE, _LOG, _SERVICE, _METHOD, _HEADER, _PAYLOAD = 1, 2, 3, 4, 5, 8
_NUMBERS = (_SEQUENCE, _LOG, _SERVICE, _METHOD)
"""Fields that each frame must have."""
_KEY, _VALUE = 1, 2
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Wire types: the lowest three bits of a field's tag."""
_MAX_VARINT_BYTES = 10


class FeishuFrameError(ValueError):
    """Invalid frame."""


@dataclass(frozen=True, slots=True)
class FeishuFrame:
    """One frame. `numbers` and `texts` are its other fields by number, which an acknowledgement
    echoes."""

    numbers: Mapping[int, int]
    headers: Mapping[str, str]
    payload: bytes
    texts: Mapping[int, bytes]

    @property
    def is_pong(self) -> bool:
        return self.numbers[_METHOD] == _CONTROL and self.headers.get("type") == "pong"

    @property
    def is_data(self) -> bool:
        return self.numbers[_METHOD] == _DATA


def parse_frame(data: bytes) -> FeishuFrame:
    """Raises FeishuFrameError."""
    numbers: dict[int, int] = {}
    headers: dict[str, str] = {}
    texts: dict[int, bytes] = {}
    for number, value in _read_fields(data):
        if isinstance(value, int):
            numbers[number] = value
        elif number == _HEADER:
            header = dict(_read_fields(value))
            headers[_read_text(header.get(_KEY))] = _read_text(header.get(_VALUE))
        else:
            texts[number] = value
    if any(each not in numbers for each in _NUMBERS):
        raise FeishuFrameError("not a frame")
    return FeishuFrame(numbers, headers, texts.pop(_PAYLOAD, b""), texts)


def encode_ping(service: int) -> bytes:
    numbers = dict.fromkeys(_NUMBERS, 0) | {_SERVICE: service, _METHOD: _CONTROL}
    return _write_frame(FeishuFrame(numbers, {"type": "ping"}, b"", {}))


def encode_ack(
    frame: FeishuFrame, answer: Mapping[str, Any] | None, *, code: int, took_ms: int
) -> bytes:
    """The frame echoed with its result; `answer` is the toast of a card press."""
    body: dict[str, Any] = {"code": code}
    if answer is not None:
        text = json.dumps(answer, ensure_ascii=False)
        body["data"] = base64.b64encode(text.encode("utf-8", "replace")).decode()
    headers = {**frame.headers, "biz_rt": str(took_ms)}
    payload = json.dumps(body).encode()
    return _write_frame(FeishuFrame(frame.numbers, headers, payload, frame.texts))


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


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields in order. Fields of fixed length, which no frame has, are left out."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        size = {_FIXED_64: 8, _FIXED_32: 4}.get(kind, 0)
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif not size:
            raise FeishuFrameError(f"wire type {kind}")
        if not number or at + size > len(data):
            raise FeishuFrameError("cut off")
        if kind == _BYTES:
            yield number, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value, at + index + 1
    raise FeishuFrameError("cut off")


def _read_text(value: int | bytes | None) -> str:
    if not isinstance(value, bytes):
        raise FeishuFrameError("a header without key or value")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise FeishuFrameError("a header is no text") from error


def _write_frame(frame: FeishuFrame) -> bytes:
    headers = (
        _write_bytes(_KEY, key.encode()) + _write_bytes(_VALUE, value.encode())
        for key, value in frame.headers.items()
    )
    # In the order of their numbers, as the SDK writes them.
    parts = [(each, _write_number(each, value)) for each, value in frame.numbers.items()]
    parts += [(_HEADER, _write_bytes(_HEADER, each)) for each in headers]
    payload = {_PAYLOAD: frame.payload} if frame.payload else {}
    parts += [(each, _write_bytes(each, text)) for each, text in {**frame.texts, **payload}.items()]
    return b"".join(part for _, part in sorted(parts, key=lambda each: each[0]))


def _write_number(number: int, value: int) -> bytes:
    return _write_varint(number << 3 | _VARINT) + _write_varint(value)


def _write_bytes(number: int, value: bytes) -> bytes:
    return _write_varint(number << 3 | _BYTES) + _write_varint(len(value)) + value


def _write_varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - what fits into seven bits
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
