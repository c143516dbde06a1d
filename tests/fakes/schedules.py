"""A fake of the schedule port: keeps schedules in memory and never fires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from handlers.errors import ActionForbidden, UserError
from handlers.ports_autonomy import ScheduleView, TimedRequest
from storage.errors import NotFound
from storage.records.people import ChatId, Person, PersonId, PersonRole
from storage.records.schedules import (
    Firing,
    FiringState,
    Interval,
    MessageBody,
    MissedPolicy,
    NewSchedule,
    OneTime,
    Schedule,
    ScheduledFiring,
    ScheduleId,
    ScheduleKind,
    ScheduleState,
    Timing,
)
from storage.records.tasks import Task
from tests.builders import NOW


def make_schedule(**changes: Any) -> Schedule:
    """Ann's reminder of each hour."""
    made = Schedule(
        id=ScheduleId("sch4dl"),
        kind=ScheduleKind.REMINDER,
        state=ScheduleState.ACTIVE,
        reason="",
        title="Water the plants",
        timing=Interval(every=timedelta(hours=1), start=NOW),
        zone="Asia/Shanghai",
        body=MessageBody(text="Water the plants"),
        owner_id=PersonId("ann"),
        chat_id=ChatId("c1"),
        reply_to="",
        project_dir="",
        model="",
        backend="",
        persona="",
        cap="",
        use_memory=True,
        missed=MissedPolicy.ONCE,
        retries=0,
        retry_delay=timedelta(minutes=5),
        respects_quiet_hours=False,
        next_due=NOW + timedelta(hours=1),
        created_at=NOW,
    )
    return replace(made, **changes)


def make_firing(**changes: Any) -> Firing:
    made = Firing(
        id=1,
        schedule_id=ScheduleId("sch4dl"),
        due_at=NOW,
        state=FiringState.SENT,
        attempt=0,
        retry_at=None,
        fired_at=NOW,
        ended_at=None,
        task_id=None,
        note="",
    )
    return replace(made, **changes)


class FakeSchedules:
    """`requests` are the messages that are understood, `timings` the words of time."""

    def __init__(self) -> None:
        self.requests: dict[str, TimedRequest] = {}
        self.timings: dict[str, Timing] = {}
        self.proposed: list[NewSchedule] = []
        self.all: dict[str, Schedule] = {}
        self.firings = {
            1: ScheduledFiring(schedule=make_schedule(), firing=make_firing()),
        }
        self.ran: list[tuple[str, datetime]] = []
        self.last: Firing | None = None
        self.snoozes: list[tuple[int, timedelta, str]] = []

    def add(self, schedule: Schedule) -> Schedule:
        self.all[schedule.id] = schedule
        return schedule

    def fires(self, schedule_id: str) -> bool:
        return self.all[schedule_id].state is ScheduleState.ACTIVE

    def read_request(self, text: str) -> TimedRequest | None:
        return self.requests.get(text)

    def check_readable(self, text: str) -> None:
        if text.startswith("remind me"):
            raise UserError("timing.words")

    def split_timing(self, text: str) -> tuple[Timing, str]:
        for words, timing in self.timings.items():
            if text.startswith(words):
                return timing, text.removeprefix(words).strip()
        raise UserError("timing.unread", text=text[:60])

    def read_timing(self, text: str) -> Timing:
        return self.split_timing(text)[0]

    async def propose(self, new: NewSchedule) -> ScheduleView:
        self.proposed.append(new)
        values = {name: getattr(new, name) for name in NewSchedule.__dataclass_fields__}
        del values["source"]
        schedule = Schedule(
            **values,
            id=ScheduleId(f"s{len(self.proposed)}"),
            state=ScheduleState.PROPOSED,
            reason="",
            next_due=None,
            created_at=NOW,
        )
        return self._view(self.add(schedule))

    async def confirm(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        return self._move(schedule_id, by, ScheduleState.ACTIVE)

    async def decline(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        return self._move(schedule_id, by, ScheduleState.ENDED)

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> ScheduleView:
        return self._view(self._get(prefix, by))

    async def list_newest(
        self, *, by: Person, chat: ChatId, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[ScheduleView]:
        raise NotImplementedError

    async def list(
        self, *, by: Person, chat: ChatId, until: datetime | None = None
    ) -> Sequence[ScheduleView]:
        return [
            self._view(each)
            for each in self.all.values()
            if each.state in {ScheduleState.ACTIVE, ScheduleState.PAUSED}
        ]

    async def log(self, schedule: Schedule, limit: int) -> Sequence[tuple[Firing, Task | None]]:
        found = [each.firing for each in self.firings.values() if each.schedule.id == schedule.id]
        return [(firing, None) for firing in found[:limit]]

    async def pause(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        return self._move(schedule_id, by, ScheduleState.PAUSED)

    async def resume(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        return self._move(schedule_id, by, ScheduleState.ACTIVE)

    async def delete(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        return self._move(schedule_id, by, ScheduleState.ENDED)

    async def run_now(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId, at: datetime
    ) -> ScheduleView:
        self.ran.append((schedule_id, at))
        return replace(self._view(self._get(schedule_id, by)), last=self.last)

    async def skip_next(
        self,
        schedule_id: ScheduleId,
        *,
        by: Person,
        chat: ChatId,
        at: datetime,
        due_at: datetime | None = None,
    ) -> ScheduleView:
        return self._view(self._get(schedule_id, by))

    async def finish_reminder(self, firing_id: int, *, by: Person, chat: ChatId) -> ScheduledFiring:
        return self._settle(firing_id, FiringState.DONE)

    async def snooze(
        self, firing_id: int, delay: timedelta, *, by: Person, chat: ChatId, source: str
    ) -> ScheduleView:
        self.snoozes.append((firing_id, delay, source))
        fired = self._settle(firing_id, FiringState.DONE)
        again = replace(fired.schedule, timing=OneTime(at=NOW + delay))
        return ScheduleView(schedule=again, upcoming=(NOW + delay,))

    async def decide_missed(
        self, firing_id: int, *, run: bool, by: Person, chat: ChatId
    ) -> ScheduledFiring:
        return self._settle(firing_id, FiringState.STARTED if run else FiringState.SKIPPED)

    def _settle(self, firing_id: int, state: FiringState) -> ScheduledFiring:
        fired = self.firings[firing_id]
        settled = replace(fired, firing=replace(fired.firing, state=state))
        self.firings[firing_id] = settled
        return settled

    def _get(self, schedule_id: str, by: Person) -> Schedule:
        found = self.all.get(schedule_id)
        if found is None:
            raise NotFound("schedule", schedule_id)
        return found

    def _move(self, schedule_id: str, by: Person, state: ScheduleState) -> ScheduleView:
        found = self._get(schedule_id, by)
        if found.owner_id != by.id and by.role is not PersonRole.OWNER:
            raise ActionForbidden
        return self._view(self.add(replace(found, state=state)))

    def _view(self, schedule: Schedule) -> ScheduleView:
        timing = schedule.timing
        upcoming = (timing.at,) if isinstance(timing, OneTime) else (NOW + timedelta(hours=1),)
        return ScheduleView(schedule=schedule, upcoming=upcoming)
