"""What the platform answers when it refuses, and misbehaviour that tests order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ApiError(Exception):
    """A refusal in the platform's own envelope: `{"code", "msg"}` with an HTTP status."""

    def __init__(
        self, code: int, msg: str, *, status: int = 400, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{code} {msg}")
        self.code = code
        self.msg = msg
        self.status = status
        self.headers = dict(headers or {})


class CardRefused(Exception):
    """A card the platform would not accept; carries the inner ErrCode."""

    def __init__(self, err_code: int, detail: str) -> None:
        super().__init__(f"ErrCode: {err_code}; ErrMsg: {detail}; ")
        self.err_code = err_code


class Cut(StrEnum):
    """Where the connection dies: before the request has any effect, or after all of it."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True, kw_only=True)
class Fault:
    """Applies to requests that match, `times` times; the first fault that matches wins."""

    method: str
    path: str
    times: int = 1
    error: ApiError | None = None
    raw: bytes | None = None
    status: int = 502
    cut: Cut | None = None
    gate: asyncio.Event | None = None
    delay: float = 0.0
    hits: int = field(default=0)

    def matches(self, method: str, path: str) -> bool:
        wanted = self.method in ("*", method)
        return self.hits < self.times and wanted and re.search(self.path, path) is not None


def rate_limited(seconds: float = 1.0, *, status: int = 429) -> ApiError:
    """The gateway's frequency limit, which says how long to wait."""
    headers = {"x-ogw-ratelimit-reset": f"{seconds:g}", "x-ogw-ratelimit-limit": "50"}
    return ApiError(99991400, "request trigger frequency limit", status=status, headers=headers)


def quota_used_up() -> ApiError:
    return ApiError(99991403, "This month's API call quota has been exceeded")


def scope_missing(*scopes: str) -> ApiError:
    listed = ", ".join(scopes or ("im:message",))
    return ApiError(99991672, f"Access denied. One of the following scopes is required: [{listed}]")
