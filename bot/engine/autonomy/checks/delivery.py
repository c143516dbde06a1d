"""Checks for channels that have had a problem for long, and for messages that wait too long or were
given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from storage.records.autonomy import HealthFinding
from storage.records.people import Channel
from storage.records.system import ChannelHealth
from storage.self_checks import Backlog, HealthFigures

_PATIENCE = timedelta(minutes=10)


@dataclass(kw_only=True, eq=False)
class ChannelHealthCheck:
    """Checks channels. Problems count from the first check that saw them, because short ones pass
    by themselves."""

    name = "channels"

    health: Callable[[], Sequence[ChannelHealth]]
    now: Callable[[], datetime]
    _since: dict[Channel, datetime] = field(default_factory=dict, init=False)

    async def find(self) -> Sequence[HealthFinding]:
        ill = {each.channel: each for each in self.health() if each.alert}
        self._since = {channel: self._since.get(channel) or self.now() for channel in ill}
        return [
            _finding(each)
            for channel, each in ill.items()
            if self.now() - self._since[channel] >= _PATIENCE
        ]


def _finding(health: ChannelHealth) -> HealthFinding:
    facts = {name: str(value) for name, value in (health.facts or {}).items()}
    return HealthFinding(
        text="channel_down",
        subject=health.channel.value,
        points=30,
        facts={
            **facts,
            "channel": health.channel.value,
            "reason_key": f"alert.{health.channel}.{health.alert}",
        },
    )


_UNHANDLED_AFTER = timedelta(minutes=30)
_UNSENT_AFTER = timedelta(minutes=15)
_DEAD_SINCE = timedelta(days=1)
RETRY_DEAD = "retry_dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHealthCheck:
    """Checks messages that wait too long. `wake` makes the outbox look for due deliveries."""

    name = "messages"

    figures: HealthFigures
    wake: Callable[[], None]
    now: Callable[[], datetime]

    async def find(self) -> Sequence[HealthFinding]:
        now = self.now()
        found = [
            *self._waiting(
                "inbox_waits", await self.figures.find_unhandled(now - _UNHANDLED_AFTER)
            ),
            *self._waiting("outbox_waits", await self.figures.find_unsent(now - _UNSENT_AFTER)),
        ]
        if n := await self.figures.count_dead_letters(now - _DEAD_SINCE):
            found.append(
                HealthFinding(text="dead_letters", points=10, facts={"n": n}, repair=RETRY_DEAD)
            )
        return found

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        now = self.now()
        count = await self.figures.retry_dead_letters(now - _DEAD_SINCE, now=now)
        if count:
            self.wake()
        return count

    def _waiting(self, text: str, backlog: Backlog) -> Sequence[HealthFinding]:
        if not backlog.count or backlog.oldest is None:
            return ()
        minutes = int((self.now() - backlog.oldest).total_seconds() // 60)
        facts = {"n": backlog.count, "minutes": minutes}
        return (HealthFinding(text=text, points=15, facts=facts),)
