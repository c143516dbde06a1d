"""When a schedule continues: time zones, clock changes and times in the past."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.nodes.contract import EvaluationContext, NodeDone, NodeFailure, NodeWait
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.schedule import ScheduleConfig, next_due_time
from tests.bot.engine.workflow.builders import (
    IssuePlace,
    assert_refused,
    graph_text,
    node_data,
    read_node,
)

_BERLIN = "Europe/Berlin"
_SHANGHAI = ZoneInfo("Asia/Shanghai")


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        ("0 9 * * *", "", "2026-11-22 08:00", "2026-11-23 01:00"),
        ("0 9 * * *", "UTC", "2026-11-22 08:00", "2026-11-22 09:00"),
        ("0 9 * * *", "UTC", "2026-11-22 09:00", "2026-11-23 09:00"),
        ("0 9 * * 1-5", "America/New_York", "2026-11-20 15:00", "2026-11-23 14:00"),
        ("0 0 29 2 *", "UTC", "2026-11-22 00:00", "2028-02-29 00:00"),
        # 02:30 does not exist that day: it goes on when the clocks have been put forward.
        ("30 2 * * *", _BERLIN, "2026-03-28 12:00", "2026-03-29 01:00"),
        # 02:30 comes twice: it goes on the first time, and not again.
        ("30 2 * * *", _BERLIN, "2026-10-24 12:00", "2026-10-25 00:30"),
        ("30 2 * * *", _BERLIN, "2026-10-25 00:30", "2026-10-26 01:30"),
    ],
)
def test_cron_is_read_in_its_own_zone_else_in_the_boss_s(
    cron: str, zone: str, after: str, due: str
) -> None:
    config = ScheduleConfig(cron=cron, timezone=zone)

    assert next_due_time(config, after=_at(after), zone=_SHANGHAI) == _at(due)


@pytest.mark.parametrize(
    ("at", "zone", "due"),
    [
        ("2026-12-01T09:00", "", "2026-12-01 01:00"),
        ("2026-12-01T09:00", _BERLIN, "2026-12-01 08:00"),
        ("2026-12-01T09:00+02:00", _BERLIN, "2026-12-01 07:00"),
        ("2026-12-01T09:00Z", "", "2026-12-01 09:00"),
        ("2026-12-01", "UTC", "2026-12-01 00:00"),
        ("2026-03-29T02:30", _BERLIN, "2026-03-29 01:00"),
        ("2026-10-25T02:30", _BERLIN, "2026-10-25 00:30"),
    ],
)
def test_a_time_is_read_in_its_zone_unless_it_says_its_own(at: str, zone: str, due: str) -> None:
    config = ScheduleConfig(at=at, timezone=zone)

    assert next_due_time(config, after=_at("2026-01-01"), zone=_SHANGHAI) == _at(due)


def _enter(config: ScheduleConfig) -> object:
    node = WorkflowNode(id="s", title="s", type="schedule", config=config)
    now = _at("2026-11-22 08:00")
    return NodeType.SCHEDULE.spec.enter(
        node, EvaluationContext(now=now, zone=_SHANGHAI, names={}, warn=pytest.fail)
    )


def test_it_waits_for_a_time_to_come() -> None:
    effect = _enter(ScheduleConfig(at="2026-11-22T09:00Z"))

    assert isinstance(effect, NodeWait)
    assert effect.until == _at("2026-11-22 09:00")


def test_a_time_that_is_over_is_not_waited_for() -> None:
    effect = _enter(ScheduleConfig(at="2020-01-01T00:00Z"))

    assert isinstance(effect, NodeDone)
    assert effect.output["late"] is True


def test_a_time_beyond_the_calendar_fails_the_node_and_not_the_program() -> None:
    assert isinstance(_enter(ScheduleConfig(at="9999-12-31T23:59:59-12:00")), NodeFailure)


def test_a_schedule_may_stand_alone() -> None:
    node = read_node({"id": "n", "type": "schedule", "schedule": "0 9 * * *"})

    assert node.config == ScheduleConfig(cron="0 9 * * *")


BROKEN: dict[str, tuple[str, list[IssuePlace]]] = {
    "no time to wait for": (
        graph_text(node_data("schedule", schedule={"timezone": "UTC"})),
        [("cron_or_time", "b", "schedule.cron")],
    ),
    "a bad cron": (
        graph_text(node_data("schedule", schedule={"cron": "61 * * * *"})),
        [("bad_cron", "b", "schedule.cron")],
    ),
    "a day that never comes": (
        graph_text(node_data("schedule", schedule={"cron": "0 0 31 2 *"})),
        [("bad_cron", "b", "schedule.cron")],
    ),
    "a bad time": (
        graph_text(node_data("schedule", schedule={"datetime": "tomorrow"})),
        [("bad_time", "b", "schedule.datetime")],
    ),
    "an unknown zone": (
        graph_text(node_data("schedule", schedule={"cron": "0 9 * * *", "timezone": "Mars/Base"})),
        [("unknown_zone", "b", "schedule.timezone")],
    ),
    "a way out of the zones": (
        graph_text(
            node_data("schedule", schedule={"cron": "0 9 * * *", "timezone": "../../etc/passwd"})
        ),
        [("unknown_zone", "b", "schedule.timezone")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_settings_are_refused(name: str) -> None:
    assert_refused(*BROKEN[name])
