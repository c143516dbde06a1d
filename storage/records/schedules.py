"""Defines schedules (what is due when, for whom) and their firings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType, TypeAlias

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId

ScheduleId = NewType("ScheduleId", str)


class DayFilter(StrEnum):
    """Days on which a cron timing fires. WORKING and FREE days are those of the calendar."""

    ANY = "any"
    WORKING = "working"
    FREE = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTime:
    """Fires once. `at` has a zone."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Fires at `start` and then always after `every`. Whole days keep the local hour; other
    intervals are not stretched by changes of summer time. `start` has a zone.

    The last firing is at `until` or before. `times` is how many there are in all, 0 for any number;
    `until` follows from it as soon as the schedule is active."""

    every: timedelta
    start: datetime
    until: datetime | None = None
    times: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTiming:
    """Fires at the local times that match the five fields of `expression`, on the days of the
    filter. `L` and `#` are allowed in it; several expressions are joined by `; `. `nth` leaves
    one of the filter's days in each month: 1 is the first, -1 the last, 0 all of them. `until` and
    `times` are as of an Interval; nothing fires before `since`."""

    expression: str
    days: DayFilter = DayFilter.ANY
    nth: int = 0
    since: datetime | None = None
    until: datetime | None = None
    times: int = 0

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.expression.split(";"))


Timing: TypeAlias = OneTime | Interval | CronTiming


class ScheduleKind(StrEnum):
    """REMINDER only sends a message; JOB runs work. The others belong to the program itself."""

    REMINDER = "reminder"
    JOB = "job"
    HEARTBEAT = "heartbeat"
    GOAL = "goal"
    CHECK = "check"


DELETED = "schedule.deleted"
"""The reason of a schedule that a person has ended."""
EXPIRED = "schedule.expired"
"""The reason of a proposal that nobody has confirmed in time."""


class ScheduleState(StrEnum):
    """PROPOSED waits for the person's yes and never fires. ENDED will not fire again."""

    PROPOSED = "proposed"
    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


class MissedPolicy(StrEnum):
    """The handling of firings that were missed while the program did not run: run the newest once,
    skip them, or ask."""

    ONCE = "once"
    SKIP = "skip"
    ASK = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBody:
    """Sends this text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBody:
    """Starts a task with this instruction."""

    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowBody:
    """Starts the saved workflow of this name with these inputs."""

    name: str
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBody:
    """Runs a part of the program itself, such as a report or a self-check."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


ScheduleBody: TypeAlias = MessageBody | TaskBody | WorkflowBody | ServiceBody


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to create. `source` names the message that asked: the same source creates the same
    schedule. `zone` is an IANA name. `cap` limits what each run may cost, empty for the usual cap.
    `use_memory` is False for runs that see no memory and leave none. `retries` limits how often a
    failed run is repeated, `retry_delay` is the delay before the first, doubled each time.
    `respects_quiet_hours` moves firings out of the quiet hours."""

    kind: ScheduleKind
    title: str
    timing: Timing
    zone: str
    body: ScheduleBody
    owner_id: PersonId
    chat_id: ChatId
    source: str
    reply_to: str = ""
    project_dir: str = ""
    model: str = ""
    backend: str = ""
    persona: str = ""
    cap: str = ""
    use_memory: bool = True
    missed: MissedPolicy = MissedPolicy.ONCE
    retries: int = 0
    retry_delay: timedelta = timedelta(minutes=5)
    respects_quiet_hours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`next_due` is None while it does not fire. `reason` is the text key of why it is paused, or
    DELETED."""

    id: ScheduleId
    kind: ScheduleKind
    state: ScheduleState
    reason: str
    title: str
    timing: Timing
    zone: str
    body: ScheduleBody
    owner_id: PersonId
    chat_id: ChatId
    reply_to: str
    project_dir: str
    model: str
    backend: str
    persona: str
    cap: str
    use_memory: bool
    missed: MissedPolicy
    retries: int
    retry_delay: timedelta
    respects_quiet_hours: bool
    next_due: datetime | None
    created_at: datetime

    @property
    def is_deleted(self) -> bool:
        return self.state is ScheduleState.ENDED and self.reason == DELETED


class FiringState(StrEnum):
    """STARTED runs a task or a part of the program. SENT is a reminder that nobody has ticked off
    yet. MISSED waits for a person to decide whether it runs."""

    STARTED = "started"
    SENT = "sent"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def is_open(self) -> bool:
        """True while something is still to come of it."""
        return self in {FiringState.STARTED, FiringState.SENT, FiringState.MISSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One due time of a schedule and what came of it, unique by schedule and `due_at`. `attempt`
    counts repeats of a failed run; the next one is due at `retry_at`. `note` is a text key or the
    reason of a failure."""

    id: int
    schedule_id: ScheduleId
    due_at: datetime
    state: FiringState
    attempt: int
    retry_at: datetime | None
    fired_at: datetime
    ended_at: datetime | None
    task_id: TaskId | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFiring:
    """A firing with its schedule."""

    schedule: Schedule
    firing: Firing
