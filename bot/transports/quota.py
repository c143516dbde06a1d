"""Monthly quotas of API calls: counts them, notifies owners, and reduces cosmetic traffic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from bot.transports.alerts import AlertSource, ChannelAlerts
from cards.catalog import TextCatalog
from cards.courier import OwnerCardSender
from cards.model import Card, CardTone, TextBlock, titled_card
from storage.db import Transaction
from storage.key_value import KeyValueStore
from storage.records.people import Channel

_ALERT_SHARE = 0.8


class QuotaLevel(Enum):
    """A level of the monthly quota: the share that is left, and the traffic that it allows. The
    level begins below the share `below`; `edits` limits the edits of a streamed answer, and
    `edit_factor` multiplies the time between two progress edits of a card (None: no edits).
    """

    FULL = (1.01, None, 1.0)
    THIN = (0.5, 2, 10.0)
    SPARSE = (0.2, 0, 60.0)
    LAST = (0.05, 0, None)

    def __init__(self, below: float, edits: int | None, edit_factor: float | None) -> None:
        self.below = below
        self.edits = edits
        self.edit_factor = edit_factor

    @property
    def percent(self) -> int:
        return round(self.below * 100)


@dataclass(eq=False)
class MonthlyQuota:
    """Counts calls of the current month. A `quota` of 0 means that no limit is known.

    `count` is cheap; call `save` in a transaction that takes place anyway, and `announce` after its
    commit. A crash loses the calls counted since. `on_level` is awaited when a level begins; it may
    be called again for the same level after a restart.
    """

    channel: Channel
    key_values: KeyValueStore
    alerts: ChannelAlerts
    now: Callable[[], datetime]
    quota: int = 0
    on_level: Callable[[QuotaLevel, str], Awaitable[None]] | None = field(default=None, init=False)
    _unsaved: int = field(default=0, init=False)
    _saved: int = field(default=0, init=False)
    _month: str = field(default="", init=False)
    _alerted_month: str = field(default="", init=False)
    _announced: tuple[str, QuotaLevel] = field(default=("", QuotaLevel.FULL), init=False)

    @property
    def level(self) -> QuotaLevel:
        if not self.quota:
            return QuotaLevel.FULL
        left = 1 - self.calls / self.quota
        return next(each for each in reversed(QuotaLevel) if left < each.below)

    @property
    def calls(self) -> int:
        """Calls of this month so far."""
        return self._unsaved + (self._saved if self._month == self._current_month else 0)

    async def load(self) -> None:
        """Take up the count of an earlier process."""
        known = await self.key_values.get(self._key) or {}
        self._month, self._saved = str(known.get("month", "")), int(known.get("calls", 0))

    def count(self, calls: int = 1) -> None:
        self._unsaved += calls

    async def save(self, tx: Transaction) -> None:
        if not self._unsaved:
            return
        month = self._current_month
        known = await self.key_values.read(tx, self._key) or {}
        before = known.get("calls", 0) if known.get("month") == month else 0
        calls = before + self._unsaved
        await self.key_values.write(tx, self._key, {"month": month, "calls": calls})
        self._unsaved, self._saved, self._month = 0, calls, month
        self._alert_when_near(month, calls)

    async def announce(self) -> None:
        """Pass a level that was reached to `on_level`."""
        now = (self._current_month, self.level)
        if now != self._announced and self.level is not QuotaLevel.FULL and self.on_level:
            await self.on_level(self.level, self._current_month)
        self._announced = now

    @property
    def _key(self) -> str:
        return f"{self.channel}.calls"

    @property
    def _current_month(self) -> str:
        return f"{self.now():%Y-%m}"

    def _alert_when_near(self, month: str, calls: int) -> None:
        if self._alerted_month and self._alerted_month != month:
            self._alerted_month = ""
            self.alerts.report(self.channel, "", source=AlertSource.OUTBOX)
        if self.quota and calls >= self.quota * _ALERT_SHARE and not self._alerted_month:
            # Alert once a month, as the figure changes with every call.
            self._alerted_month = month
            facts = {"calls": calls, "quota": self.quota}
            self.alerts.report(self.channel, "quota_near", facts, source=AlertSource.OUTBOX)


@dataclass(frozen=True, kw_only=True)
class QuotaNotifier:
    """Notifies the owners of a level that was reached, once a month."""

    quota: MonthlyQuota
    owners: OwnerCardSender

    async def __call__(self, level: QuotaLevel, month: str) -> None:
        def draw(words: TextCatalog) -> Card:
            text = words(f"quota.{level.name.lower()}", left=level.percent, quota=self.quota.quota)
            return titled_card(words("quota.title"), TextBlock(text), tone=CardTone.WARN)

        # The key makes a second notice of the same level impossible.
        await self.owners.notify(f"quota:{self.quota.channel}:{month}:{level.name}", draw)
