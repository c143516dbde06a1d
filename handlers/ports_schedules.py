"""Defines the port of reminders and scheduled jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from storage.records.people import ChatId, Person
from storage.records.schedules import (
    Firing,
    NewSchedule,
    Schedule,
    ScheduledFiring,
    ScheduleId,
    Timing,
)
from storage.records.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequest:
    """A message that asks for something at a later time. `subject` is the message without the words
    of time and asking; `asks_reminder` tells a reminder from work; `zone_name` is the zone that was
    named, empty for the person's own."""

    timing: Timing
    subject: str
    asks_reminder: bool
    zone_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule with its next firings, and the last one."""

    schedule: Schedule
    upcoming: Sequence[datetime]
    last: Firing | None = None
    last_task: Task | None = None


class SchedulePort(Protocol):
    """Implementations must check in every call that `by` may see the schedule: their own ones, and
    owners all; in a group only those of the group. Otherwise NotFound. Only its person and owners
    may change it. A repeat with the same `source` must change nothing.

    Refusals are UserErrors.
    """

    def read_request(self, text: str) -> TimedRequest | None:
        """Read a whole message by rules, without a model; None if it asks for nothing later."""

    def split_timing(self, text: str) -> tuple[Timing, str]:
        """A time at the beginning or the end, and the rest of the text. Raises UserError if there
        is none, or none that can be used."""

    def read_timing(self, text: str) -> Timing:
        """Read a time in words, as a cron expression or as a date. Raises UserError."""

    async def propose(self, new: NewSchedule) -> ScheduleView:
        """Store a schedule that fires only once somebody confirms it."""

    async def confirm(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Start firing."""

    async def decline(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Give up a proposal."""

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> ScheduleView: ...

    async def list(self, *, by: Person, chat: ChatId) -> Sequence[ScheduleView]: ...

    async def log(self, schedule: Schedule, limit: int) -> Sequence[tuple[Firing, Task | None]]:
        """The newest firings with their tasks."""

    async def pause(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView: ...

    async def resume(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Continue with the next due time; what fell due meanwhile does not count."""

    async def delete(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId
    ) -> ScheduleView: ...

    async def run_now(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId, at: datetime
    ) -> ScheduleView:
        """Fire once besides the due times. `at` is when it was asked for, and the same whenever the
        request is repeated."""

    async def skip_next(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Leave out the next due time."""

    async def finish_reminder(self, firing_id: int, *, by: Person, chat: ChatId) -> ScheduledFiring:
        """Tick a reminder off."""

    async def snooze(
        self, firing_id: int, delay: timedelta, *, by: Person, chat: ChatId, source: str
    ) -> ScheduleView:
        """Remind again after `delay`; returns the schedule of that."""

    async def decide_missed(
        self, firing_id: int, *, run: bool, by: Person, chat: ChatId
    ) -> ScheduledFiring:
        """Run or skip what was missed."""
