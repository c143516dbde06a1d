"""How many calls of a month's allowance are used: counted in memory, kept as a mark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bot.transports.alerts import Alerts, Source
from storage.db import Transaction
from storage.marks import Marks
from storage.records.people import Channel

_NEAR = 0.8


class MonthlyQuota:
    """`quota` 0 means that nobody knows of a limit: then it only counts.

    `count` is cheap and may be called for every call; `save` belongs into a transaction that is
    made anyhow. What a crash loses is what was counted since.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        marks: Marks,
        alerts: Alerts,
        now: Callable[[], datetime],
        quota: int = 0,
    ) -> None:
        self._channel = channel
        self._marks = marks
        self._alerts = alerts
        self._now = now
        self._quota = quota
        self._unsaved = 0
        self._told = ""

    def count(self, calls: int = 1) -> None:
        self._unsaved += calls

    async def save(self, tx: Transaction) -> None:
        if not self._unsaved:
            return
        name, month = f"{self._channel}.calls", f"{self._now():%Y-%m}"
        known = await self._marks.read(tx, name) or {}
        before = known.get("calls", 0) if known.get("month") == month else 0
        calls = before + self._unsaved
        await self._marks.write(tx, name, {"month": month, "calls": calls})
        self._unsaved = 0
        self._watch(month, calls)

    def _watch(self, month: str, calls: int) -> None:
        if self._told and self._told != month:
            self._told = ""
            self._alerts.tell(self._channel, "", source=Source.MAIL)
        if self._quota and calls >= self._quota * _NEAR and not self._told:
            # Said once a month: the figure changes with every call.
            self._told = month
            facts = {"calls": calls, "quota": self._quota}
            self._alerts.tell(self._channel, "quota_near", facts, source=Source.MAIL)
