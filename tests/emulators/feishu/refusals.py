"""Tokens and frequency limits."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.emulators.feishu.tenant import EmulatorClock


class FeishuApiError(Exception):
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


class ConnectionCut(StrEnum):
    """Where the connection dies: before the request has any effect, or after all of it."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True, kw_only=True)
class InjectedFault:
    """Applies to requests that match, `times` times; the first fault that matches wins."""

    method: str
    path: str
    times: int = 1
    error: FeishuApiError | None = None
    raw: bytes | None = None
    status: int = 502
    cut: ConnectionCut | None = None
    gate: asyncio.Event | None = None
    delay: float = 0.0
    hits: int = field(default=0)

    def matches(self, method: str, path: str) -> bool:
        wanted = self.method in ("*", method)
        return self.hits < self.times and wanted and re.search(self.path, path) is not None


def rate_limited(seconds: float = 1.0, *, status: int = 429) -> FeishuApiError:
    """The gateway's frequency limit, which says how long to wait."""
    headers = {"x-ogw-ratelimit-reset": f"{seconds:g}", "x-ogw-ratelimit-limit": "50"}
    return FeishuApiError(
        99991400, "request trigger frequency limit", status=status, headers=headers
    )


def quota_used_up() -> FeishuApiError:
    return FeishuApiError(99991403, "This month's API call quota has been exceeded")


def scope_missing(*scopes: str) -> FeishuApiError:
    listed = ", ".join(scopes or ("im:message",))
    return FeishuApiError(
        99991672, f"Access denied. One of the following scopes is required: [{listed}]"
    )


TOKEN_LIFE = 7200
SAME_TOKEN_ABOVE = 1800


class TenantTokens:
    """Tenant access tokens: two hours, the same one while more than thirty minutes are left."""

    def __init__(self, clock: EmulatorClock) -> None:
        self._clock = clock
        self._expires: dict[str, float] = {}
        self._numbers = itertools.count(1)

    def issue(self) -> tuple[str, int]:
        now = self._clock.now()
        for token, expires in self._expires.items():
            if expires - now > SAME_TOKEN_ABOVE:
                return token, int(expires - now)
        token = f"t-g1emu{next(self._numbers):08x}"
        self._expires[token] = now + TOKEN_LIFE
        return token, TOKEN_LIFE

    def expire_all(self) -> None:
        """Every token handed out so far stops working at once."""
        self._expires = dict.fromkeys(self._expires, 0.0)

    def check(self, authorization: str) -> None:
        if not authorization:
            raise FeishuApiError(99991661, "Missing access token for authorization")
        token = authorization.removeprefix("Bearer ")
        if self._expires.get(token, 0.0) <= self._clock.now():
            raise FeishuApiError(
                99991663, "Invalid access token for authorization. Please make a valid"
            )


class RateLimits:
    """Sliding one-second windows per subject, and the month's quota."""

    def __init__(self, clock: EmulatorClock) -> None:
        self._clock = clock
        self._hits: dict[tuple[str, str], deque[float]] = defaultdict(deque)
        self.enforced = True
        self.calls = 0
        self.quota: int | None = None

    def count_call(self) -> None:
        self.calls += 1
        if self.quota is not None and self.calls > self.quota:
            raise quota_used_up()

    def chat(self, chat_id: str) -> None:
        self._hit(
            "chat", chat_id, 5, lambda: FeishuApiError(230020, "This operation triggers the limit")
        )

    def message(self, message_id: str) -> None:
        self._hit(
            "msg",
            message_id,
            5,
            lambda: FeishuApiError(230020, "This operation triggers the limit"),
        )

    def entity(self, card_id: str) -> None:
        self._hit("card", card_id, 10, rate_limited)

    def api(self, name: str, per_second: int = 50) -> None:
        self._hit("api", name, per_second, rate_limited)

    def _hit(
        self, kind: str, subject: str, limit: int, error: Callable[[], FeishuApiError]
    ) -> None:
        hits = self._hits[kind, subject]
        now = self._clock.now()
        while hits and hits[0] <= now - 1.0:
            hits.popleft()
        if self.enforced and len(hits) >= limit:
            raise error()
        hits.append(now)
