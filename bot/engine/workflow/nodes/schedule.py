"""A rest until a time of the clock, kept in the store."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Done, Effect, Sight, Wait


class Schedule:
    def enter(self, node: Node, sight: Sight) -> Effect:
        assert isinstance(node.config, nodes.Schedule)
        due = next_time(node.config, after=sight.now, zone=sight.zone)
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
        return (at if at.tzinfo else at.replace(tzinfo=own)).astimezone(UTC)
    # Loaded when the first schedule is worked out.
    from cronsim import CronSim

    return next(CronSim(config.cron, after.astimezone(own))).astimezone(UTC)
