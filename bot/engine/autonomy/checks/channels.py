"""Checks for channels that have had a problem for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from storage.records.autonomy import HealthFinding
from storage.records.people import Channel
from storage.records.system import ChannelHealth

_PATIENCE = timedelta(minutes=10)


@dataclass(kw_only=True, eq=False)
class ChannelHealthCheck:
    """Problems count from the first check that saw them: short ones pass by themselves."""

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
