"""Frames of the long connection: reading, putting parts together, pings and acks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.transports.feishu.link.sdk import decode_error, frame_class

_CONTROL, _DATA = 0, 1
_PARTS_LIVE = 5.0
_MAX_PARTS = 1000
_MAX_PENDING = 100


class BadFrame(ValueError):
    """Bytes that are no frame of this protocol."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `raw` is the protobuf message, kept because an ack echoes it."""

    raw: Any
    headers: Mapping[str, str]
    payload: bytes

    @property
    def is_pong(self) -> bool:
        return self.raw.method == _CONTROL and self.headers.get("type") == "pong"

    @property
    def is_data(self) -> bool:
        return bool(self.raw.method == _DATA)


def read(data: bytes) -> Frame:
    raw = frame_class()()
    try:
        raw.ParseFromString(data)
    except (decode_error(), ValueError) as error:
        raise BadFrame("not a frame") from error
    headers = {header.key: header.value for header in raw.headers}
    return Frame(raw, headers, raw.payload)


def ping(service: int) -> bytes:
    raw = frame_class()()
    raw.SeqID = 0
    raw.LogID = 0
    raw.service = service
    raw.method = _CONTROL
    _add(raw, "type", "ping")
    data: bytes = raw.SerializeToString()
    return data


def ack(frame: Frame, answer: Mapping[str, Any] | None, *, code: int, took_ms: int) -> bytes:
    """The frame echoed with the outcome; `answer` is what a card press is shown."""
    body: dict[str, Any] = {"code": code}
    if answer is not None:
        text = json.dumps(answer, ensure_ascii=False)
        body["data"] = base64.b64encode(text.encode("utf-8", "replace")).decode()
    _add(frame.raw, "biz_rt", str(took_ms))
    frame.raw.payload = json.dumps(body).encode()
    data: bytes = frame.raw.SerializeToString()
    return data


class Assembly:
    """Puts payloads together that arrive in parts; parts are forgotten after five seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._parts: dict[str, tuple[float, dict[int, bytes]]] = {}

    def add(self, frame: Frame) -> bytes | None:
        """The whole payload once it is there."""
        try:
            total = int(frame.headers.get("sum", "1") or 1)
            number = int(frame.headers.get("seq", "0") or 0)
        except ValueError as error:
            raise BadFrame("part numbers are no numbers") from error
        if total <= 1:
            return frame.payload
        if total > _MAX_PARTS or not 0 <= number < total:
            raise BadFrame(f"part {number} of {total}")
        return self._collect(frame.headers.get("message_id", ""), total, number, frame.payload)

    def _collect(self, message_id: str, total: int, number: int, part: bytes) -> bytes | None:
        now = self._now()
        self._parts = {k: v for k, v in self._parts.items() if v[0] > now}
        if message_id not in self._parts and len(self._parts) >= _MAX_PENDING:
            raise BadFrame("too many unfinished payloads")
        _, parts = self._parts.get(message_id, (0.0, {}))
        parts[number] = part
        if len(parts) < total:
            self._parts[message_id] = (now + _PARTS_LIVE, parts)
            return None
        self._parts.pop(message_id, None)
        return b"".join(parts[index] for index in sorted(parts))


def _add(raw: Any, key: str, value: str) -> None:
    header = raw.headers.add()
    header.key = key
    header.value = value
