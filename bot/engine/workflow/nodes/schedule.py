"""A pause until a given time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from bot.engine.timing import is_cron, load_zone, local_to_utc, next_cron_time
from bot.engine.workflow.expressions.operations import BadExpression
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue
from bot.engine.workflow.nodes.contract import (
    EvaluationContext,
    NodeConfig,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeRole,
    NodeShape,
    NodeTypeSpec,
    NodeWait,
)

_FIRST_YEAR, _LAST_YEAR = 1970, 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig(NodeConfig):
    """Continues at the next time that matches `cron` (five fields), or at `at` (ISO 8601). Both are
    read in `timezone`, which defaults to the Boss's, unless `at` has an offset."""

    kind: Literal["schedule"] = "schedule"
    cron: str = ""
    at: str = ""
    timezone: str = ""


class ScheduleNode(NodeTypeSpec[ScheduleConfig]):
    """Waits until a given time, which is stored. A time in the past does not wait."""

    name = "schedule"
    role = NodeRole.TIMER
    shape = NodeShape.ROUNDED
    config = ScheduleConfig
    markdown_names = ("定时",)
    foreign_names = ("cron",)
    shorthand = "cron"
    telling_fields = ("cron",)
    fields = ("cron", "datetime", "timezone")
    inline_fields = ("at", "time", "tz")
    example = """\
nodes:
  - {id: monday, type: schedule, cron: "0 9 * * 1", timezone: Europe/Berlin}
  - {id: report, name: Report}
"""

    def read(self, block: FieldReader) -> ScheduleConfig:
        return ScheduleConfig(
            cron=block.word("cron"),
            at=block.word("datetime", "at", "time"),
            timezone=block.word("timezone", "tz"),
        )

    def write(self, config: ScheduleConfig) -> dict[str, Any]:
        data = {"cron": config.cron, "datetime": config.at, "timezone": config.timezone}
        return {name: value for name, value in data.items() if value}

    def check(self, config: ScheduleConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        if config.timezone and load_zone(config.timezone) is None:
            facts = {"zone": config.timezone[:60]}
            yield ValidationIssue(key="unknown_zone", field="timezone", facts=facts)
        if bool(config.cron) == bool(config.at):
            yield ValidationIssue(key="cron_or_time", field="cron")
        elif config.at and not _is_timestamp(config.at):
            yield ValidationIssue(key="bad_time", field="datetime", facts={"text": config.at[:60]})
        elif config.cron and not is_cron(config.cron):
            yield ValidationIssue(key="bad_cron", field="cron", facts={"text": config.cron[:60]})

    def enter(self, node: NodeInput[ScheduleConfig], context: EvaluationContext) -> NodeEffect:
        try:
            due = next_due_time(node.settings, after=context.now, zone=context.zone)
        except OverflowError as error:
            why = BadExpression(str(error), "no_such_time")
            return NodeFailure(key="workflow.no_value", facts={"name": node.id, "why": why})
        if due <= context.now:
            return NodeDone(output={"due": due.isoformat(), "late": True})
        return NodeWait(until=due, output={"due": due.isoformat()})

    def wake(self, node: NodeInput[ScheduleConfig], context: EvaluationContext) -> NodeEffect:
        return NodeDone(output={"due": context.now.isoformat()})

    def expected_seconds(self, settings: ScheduleConfig, by_history: float) -> float | None:
        return None


def next_due_time(config: ScheduleConfig, *, after: datetime, zone: ZoneInfo) -> datetime:
    """The time to continue at, in UTC. The result may be in the past for `at`. Raises OverflowError
    after the last year."""
    own = ZoneInfo(config.timezone) if config.timezone else zone
    if config.at:
        at = datetime.fromisoformat(config.at)
        return at.astimezone(UTC) if at.tzinfo else local_to_utc(at, own)
    due = next_cron_time(config.cron, after=after, zone=own)
    if due is None:
        raise OverflowError("date value out of range")
    return due


def _is_timestamp(text: str) -> bool:
    """Whether it is a valid time that exists in every time zone."""
    try:
        return _FIRST_YEAR <= datetime.fromisoformat(text).year <= _LAST_YEAR
    except ValueError:
        return False
