"""Collects what services say the time is, while somebody examines the clock and the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerDate:
    """A service that answered. `ahead` is how many seconds this machine's clock is ahead of its
    one; None if it did not say the time."""

    host: str
    ahead: float | None


_collected: ContextVar[list[ServerDate] | None] = ContextVar("server_dates", default=None)


@contextmanager
def collect_server_dates() -> Iterator[list[ServerDate]]:
    """The answers to requests that are made within, also by tasks that begin within."""
    dates: list[ServerDate] = []
    token = _collected.set(dates)
    try:
        yield dates
    finally:
        _collected.reset(token)


async def note_response(response: Any) -> None:
    """A hook for responses of `httpx` and of its fork."""
    dates = _collected.get()
    if dates is None:
        return
    try:
        told = parsedate_to_datetime(response.headers.get("date", ""))
        ahead = (datetime.now(UTC) - told.astimezone(UTC)).total_seconds()
    except (ValueError, OverflowError):
        ahead = None
    dates.append(ServerDate(response.request.url.host, ahead))
