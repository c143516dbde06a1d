"""Keeps summaries from costing without end: few calls at a time, and none where none is let in."""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta

MOST_CALLS = 24
SPELL = timedelta(minutes=10)
REST = timedelta(minutes=30)
MOST_REFUSALS = 5


class Paused(Exception):
    """No call is made before `until`."""

    def __init__(self, why: str, until: datetime) -> None:
        self.until = until
        super().__init__(why)


class Guard:
    def __init__(self) -> None:
        self._calls: defaultdict[str, deque[datetime]] = defaultdict(deque)
        self._paused: dict[str, datetime] = {}
        self._refusals = 0
        self._closed_until: datetime | None = None

    def call(self, session_id: str, now: datetime) -> None:
        """One more call for this session. Raises Paused."""
        if self._closed_until is not None and now < self._closed_until:
            raise Paused("models refuse to answer", self._closed_until)
        until = self._paused.get(session_id)
        if until is not None and now < until:
            raise Paused("too many summaries at once", until)
        calls = self._calls[session_id]
        while calls and calls[0] <= now - SPELL:
            calls.popleft()
        if len(calls) >= MOST_CALLS:
            self._paused[session_id] = now + REST
            raise Paused("too many summaries at once", now + REST)
        calls.append(now)

    def refused(self, now: datetime) -> None:
        self._refusals += 1
        if self._refusals >= MOST_REFUSALS:
            self._closed_until, self._refusals = now + REST, 0

    def answered(self) -> None:
        self._refusals = 0

    def forget(self, session_id: str) -> None:
        """Nothing more is wanted of it."""
        self._calls.pop(session_id, None)
        self._paused.pop(session_id, None)
