"""A rest until a time of the clock, kept in the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Failed, Sight, Wait

_MINUTE = timedelta(minutes=1)


class Schedule:
    def enter(self, node: Node, sight: Sight) -> Effect:
        assert isinstance(node.config, nodes.Schedule)
        try:
            due = next_time(node.config, after=sight.now, zone=sight.zone)
        except OverflowError as error:
            return Failed(key="workflow.no_value", facts={"name": node.id, "why": str(error)})
        if due <= sight.now:
            return Done(output={"due": due.isoformat(), "late": True})
        return Wait(until=due, output={"due": due.isoformat()})

    def wake(self, node: Node, sight: Sight) -> Effect:
        return Done(output={"due": sight.now.isoformat()})


def next_time(config: nodes.Schedule, *, after: datetime, zone: ZoneInfo) -> datetime:
    """When it is due, in UTC. A time that a change of clocks leaves out is the moment after the
    gap; one that comes twice is the first. What `at` names may be over."""
    own = ZoneInfo(config.timezone) if config.timezone else zone
    if config.at:
        at = datetime.fromisoformat(config.at)
        return at.astimezone(UTC) if at.tzinfo else _on_the_clock(at, own)
    # Loaded when the first schedule is worked out.
    from cronsim import CronSim

    return next(CronSim(config.cron, after.astimezone(own))).astimezone(UTC)


def _on_the_clock(at: datetime, zone: ZoneInfo) -> datetime:
    found = at.replace(tzinfo=zone).astimezone(UTC)
    if _is_left_out(at, zone):
        at = at.replace(second=0, microsecond=0)
        while _is_left_out(at, zone):
            at -= _MINUTE
        found = at.replace(tzinfo=zone).astimezone(UTC) + _MINUTE
    return found


def _is_left_out(at: datetime, zone: ZoneInfo) -> bool:
    return at.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at
