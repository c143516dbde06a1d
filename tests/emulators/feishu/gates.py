"""Tokens and frequency limits."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable

from tests.emulators.feishu.clock import Clock
from tests.emulators.feishu.faults import ApiError, quota_used_up, rate_limited

TOKEN_LIFE = 7200
SAME_TOKEN_ABOVE = 1800


class Tokens:
    """Tenant access tokens: two hours, the same one while more than thirty minutes are left."""

    def __init__(self, clock: Clock) -> None:
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
            raise ApiError(99991661, "Missing access token for authorization")
        token = authorization.removeprefix("Bearer ")
        if self._expires.get(token, 0.0) <= self._clock.now():
            raise ApiError(99991663, "Invalid access token for authorization. Please make a valid")


class Rates:
    """Sliding one-second windows per subject, and the month's quota."""

    def __init__(self, clock: Clock) -> None:
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
        self._hit("chat", chat_id, 5, lambda: ApiError(230020, "This operation triggers the limit"))

    def message(self, message_id: str) -> None:
        self._hit(
            "msg", message_id, 5, lambda: ApiError(230020, "This operation triggers the limit")
        )

    def entity(self, card_id: str) -> None:
        self._hit("card", card_id, 10, rate_limited)

    def api(self, name: str) -> None:
        self._hit("api", name, 50, rate_limited)

    def _hit(self, kind: str, subject: str, limit: int, error: Callable[[], ApiError]) -> None:
        hits = self._hits[kind, subject]
        now = self._clock.now()
        while hits and hits[0] <= now - 1.0:
            hits.popleft()
        if self.enforced and len(hits) >= limit:
            raise error()
        hits.append(now)
