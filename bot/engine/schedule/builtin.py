"""Keeps the schedules of Shiftboss's own services in line with the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.engine.schedule.firing import DueTimes
from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.records.people import ChatId, PersonId
from storage.records.schedules import (
    CronTiming,
    Interval,
    MissedPolicy,
    NewSchedule,
    Schedule,
    ScheduleKind,
    ScheduleState,
    ServiceBody,
    Timing,
)
from storage.schedules import ScheduleRepo

OFF_BY_SETTING = "schedule.off_by_setting"
STOPPED = "schedule.stopped_until_start"
_OFF_AT_FIRST = "schedule.off_at_first"
_PAUSED_BY_OWNER = "schedule.paused_by_you"
_ENDS_AT_START = {OFF_BY_SETTING, STOPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinSchedule:
    """A service of Shiftboss that runs on a schedule; `name` is its name. `timing` is a cron timing
    or an interval, None if a setting turns it off. With `starts_off` it is paused until an owner
    resumes it."""

    name: str
    kind: ScheduleKind
    timing: CronTiming | timedelta | None
    missed: MissedPolicy = MissedPolicy.ONCE
    respects_quiet_hours: bool = False
    starts_off: bool = False

    @property
    def source(self) -> str:
        return f"builtin:{self.name}"


@dataclass(slots=True, kw_only=True, eq=False)
class BuiltinSchedules:
    """Creates the rows at the start and follows their settings. A row that an owner has paused
    stays paused.

    `get_anchor` returns the person and the chat that the rows belong to. They must always be there;
    where a part reports to is its own affair. `on_change` is called after a commit that changed a
    due time."""

    name = "builtin schedules"

    db: Database
    schedules: ScheduleRepo
    due_times: DueTimes
    wanted: Sequence[BuiltinSchedule]
    get_anchor: Callable[[], Awaitable[tuple[PersonId, ChatId]]]
    zone: str
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    on_change: Callable[[], None]

    async def start(self, stack: AsyncExitStack) -> None:
        for each in self.wanted:
            await self._apply(each)

    async def follow(self, wanted: Sequence[BuiltinSchedule]) -> None:
        """Apply changed settings while the schedules run."""
        self.wanted = wanted
        for each in wanted:
            await self._apply(each)
        self.on_change()

    async def run(self) -> None:
        """Does nothing: all work is done at the start."""
        await asyncio.Event().wait()

    async def get(self, name: str) -> Schedule:
        """The schedule of this service, created if necessary. Raises NotFound if a setting has
        always turned it off."""
        source = f"builtin:{name}"
        found = await self.schedules.find_by_source(source)
        if found is None:
            for each in self.wanted:
                if each.name == name:
                    await self._apply(each)
            found = await self.schedules.find_by_source(source)
        if found is None:
            raise NotFound("schedule", name)
        return found

    async def switch(self, name: str, *, on: bool) -> Schedule:
        """Pause or resume a service for an owner. One that a setting turns off stays off."""
        schedule = await self.get(name)
        if schedule.reason == OFF_BY_SETTING or (schedule.state is ScheduleState.ACTIVE) is on:
            return schedule
        async with self.db.write() as tx:
            await self._set_state(tx, schedule, "" if on else _PAUSED_BY_OWNER)
        self.on_change()
        return await self.get(name)

    async def stop(self, name: str) -> None:
        """Pause an active service until it is resumed or Shiftboss restarts."""
        schedule = await self.get(name)
        if schedule.state is ScheduleState.ACTIVE:
            async with self.db.write() as tx:
                await self._set_state(tx, schedule, STOPPED)
            self.on_change()

    async def _apply(self, wanted: BuiltinSchedule) -> None:
        known = await self.schedules.find_by_source(wanted.source)
        if known is None and wanted.timing is not None:
            await self._create(wanted, wanted.timing)
        elif known is not None:
            await self._follow(wanted, known)

    async def _create(self, wanted: BuiltinSchedule, timing: CronTiming | timedelta) -> None:
        owner_id, chat_id = await self.get_anchor()
        new = NewSchedule(
            kind=wanted.kind,
            title=wanted.name,
            timing=self._stored_timing(timing),
            zone=self.zone,
            body=ServiceBody(name=wanted.name),
            owner_id=owner_id,
            chat_id=chat_id,
            source=wanted.source,
            missed=wanted.missed,
            respects_quiet_hours=wanted.respects_quiet_hours,
        )
        async with self.db.write() as tx:
            made = await self.schedules.create(tx, new, new_id=self.new_id, now=self.now())
            await self._set_state(tx, made, _OFF_AT_FIRST if wanted.starts_off else "")

    async def _follow(self, wanted: BuiltinSchedule, known: Schedule) -> None:
        timing = known.timing
        if wanted.timing is not None and not _is_same(wanted.timing, known.timing):
            timing = self._stored_timing(wanted.timing)
        reason = known.reason
        if wanted.timing is None:
            # What an owner has paused is still paused when the setting allows it again.
            reason = known.reason or OFF_BY_SETTING
        elif known.reason in _ENDS_AT_START:
            reason = ""
        is_same = (
            timing == known.timing
            and known.zone == self.zone
            and known.missed is wanted.missed
            and known.respects_quiet_hours is wanted.respects_quiet_hours
        )
        if is_same and reason == known.reason:
            return
        async with self.db.write() as tx:
            changed = await self.schedules.update(
                tx,
                known,
                timing=timing,
                zone=self.zone,
                missed=wanted.missed,
                respects_quiet_hours=wanted.respects_quiet_hours,
            )
            if changed is not None:
                await self._set_state(tx, changed, reason)

    async def _set_state(self, tx: Transaction, schedule: Schedule, reason: str) -> None:
        """Change the state without a reason for a pause. The next due time follows from now."""
        due = None if reason else self.due_times.next_due(schedule, self.now())
        state = ScheduleState.PAUSED if reason else ScheduleState.ACTIVE
        await self.schedules.update(tx, schedule, state=state, reason=reason, next_due=due)

    def _stored_timing(self, timing: CronTiming | timedelta) -> Timing:
        if isinstance(timing, timedelta):
            return Interval(every=timing, start=self.now())
        return timing


def _is_same(wanted: CronTiming | timedelta, stored: Timing) -> bool:
    """Whether both timings are the same. An interval keeps its start."""
    if isinstance(wanted, timedelta):
        return isinstance(stored, Interval) and stored.every == wanted
    return stored == wanted
