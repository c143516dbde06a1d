"""Implements schedules for people: propose, confirm, list and change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from bot.engine.schedule.firing import DueTimes, ScheduleFirer
from bot.engine.timing import check_timing, load_zone
from handlers.errors import ActionForbidden, UserError
from handlers.ports_autonomy import ScheduleView, TimedRequest
from storage.db import Database, Transaction
from storage.errors import NotFound, WrongState
from storage.records.people import Chat, ChatId, ChatKind, Person, PersonId, PersonRole
from storage.records.schedules import (
    DELETED,
    EXPIRED,
    Firing,
    FiringState,
    NewSchedule,
    OneTime,
    Schedule,
    ScheduledFiring,
    ScheduleId,
    ScheduleState,
    Timing,
)
from storage.records.tasks import Task
from storage.schedules import ScheduleRepo
from storage.tasks import TaskRepo

MAX_PER_PERSON = 200
PROPOSAL_LIFETIME = timedelta(weeks=1)
"""A proposal that nobody has confirmed by then means nothing any more."""
_LISTED = 50
_SHOWN_FIRINGS = 3
MAX_UPCOMING = 60
"""Firings of one schedule that a calendar lists: twice a day in four weeks, and some."""
_SKIPPED_BY_PERSON = "schedule.skipped_by_you"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleService:
    """Implements `handlers.ports_autonomy.SchedulePort`. `on_change` is called after a commit that
    changed a due time."""

    db: Database
    schedules: ScheduleRepo
    tasks: TaskRepo
    firer: ScheduleFirer
    due_times: DueTimes
    get_chat: Callable[[ChatId], Awaitable[Chat]]
    zone: ZoneInfo
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    on_change: Callable[[], None]

    def read_request(self, text: str) -> TimedRequest | None:
        # Imported on first use: its word tables cost the start.
        from bot.engine.schedule.time_phrases import read_request

        return read_request(text, now=self.now(), zone=self.zone)

    def check_readable(self, text: str) -> None:
        # Imported on first use: its word tables cost the start.
        from bot.engine.schedule.time_phrases import check_readable

        check_readable(text)

    def split_timing(self, text: str) -> tuple[Timing, str]:
        # Imported on first use: its word tables cost the start.
        from bot.engine.schedule.time_phrases import split_timing

        return split_timing(text, now=self.now(), zone=self.zone)

    def read_timing(self, text: str) -> Timing:
        # Imported on first use: its word tables cost the start.
        from bot.engine.schedule.time_phrases import read_timing

        return read_timing(text, now=self.now(), zone=self.zone)

    async def propose(self, new: NewSchedule) -> ScheduleView:
        self._check_timing(new.timing, new.zone)
        await self._check_count(new.owner_id)
        async with self.db.write() as tx:
            schedule = await self.schedules.create(tx, new, new_id=self.new_id, now=self.now())
        return self._view(schedule)

    async def confirm(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        schedule = await self._get_changeable(schedule_id, by, chat)
        if schedule.state is not ScheduleState.PROPOSED:
            # Pressed again, or confirmed by a command meanwhile.
            return await self._full_view(schedule)
        if self.now() - schedule.created_at > PROPOSAL_LIFETIME:
            return await self._change(
                schedule, state=ScheduleState.ENDED, reason=EXPIRED, next_due=None
            )
        await self._check_count(schedule.owner_id)
        self._check_timing(schedule.timing, schedule.zone)
        return await self._change(
            schedule,
            state=ScheduleState.ACTIVE,
            next_due=self.due_times.next_due(schedule, self.now()),
            timing=self.due_times.end_counted(schedule, self.now()),
        )

    async def decline(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        schedule = await self._get_changeable(schedule_id, by, chat)
        if schedule.state is not ScheduleState.PROPOSED:
            raise WrongState("schedule", schedule.id, schedule.state)
        return await self._change(schedule, state=ScheduleState.ENDED, next_due=None)

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> ScheduleView:
        of, where = await self._visibility(by, chat)
        found = await self.schedules.find(prefix, of=of, chat=where)
        return await self._full_view(found)

    async def list(
        self, *, by: Person, chat: ChatId, until: datetime | None = None
    ) -> Sequence[ScheduleView]:
        of, where = await self._visibility(by, chat)
        found = await self.schedules.list(of=of, chat=where, limit=_LISTED)
        views = [await self._full_view(each) for each in found]
        return views if until is None else [self._extend(each, until) for each in views]

    async def list_newest(
        self, *, by: Person, chat: ChatId, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[ScheduleView]:
        of, where = await self._visibility(by, chat)
        found = await self.schedules.list_newest(of=of, chat=where, before=before, limit=limit)
        return [self._view(each) for each in found]

    async def log(self, schedule: Schedule, limit: int) -> Sequence[tuple[Firing, Task | None]]:
        firings = await self.schedules.list_firings(schedule.id, limit)
        return [(each, await self._task_of(each)) for each in firings]

    async def pause(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        schedule = await self._get_changeable(schedule_id, by, chat)
        if schedule.state is ScheduleState.PAUSED:
            return await self._full_view(schedule)
        if schedule.state is not ScheduleState.ACTIVE:
            raise WrongState("schedule", schedule.id, schedule.state)
        return await self._change(
            schedule, state=ScheduleState.PAUSED, reason="schedule.paused_by_you", next_due=None
        )

    async def resume(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        schedule = await self._get_changeable(schedule_id, by, chat)
        if schedule.state is ScheduleState.ACTIVE:
            return await self._full_view(schedule)
        if schedule.state is not ScheduleState.PAUSED:
            raise WrongState("schedule", schedule.id, schedule.state)
        self._check_timing(schedule.timing, schedule.zone)
        return await self._change(
            schedule,
            state=ScheduleState.ACTIVE,
            reason="",
            next_due=self.due_times.next_due(schedule, self.now()),
        )

    async def delete(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Delete a schedule. A task that it has started continues and can be stopped by itself."""
        schedule = await self._get_changeable(schedule_id, by, chat)
        if schedule.state is ScheduleState.ENDED:
            return await self._full_view(schedule)
        return await self._change(
            schedule, state=ScheduleState.ENDED, reason=DELETED, next_due=None
        )

    async def run_now(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId, at: datetime
    ) -> ScheduleView:
        schedule = await self._get_changeable(schedule_id, by, chat)
        await self.firer.run_now(schedule, due_at=at)
        return await self._full_view(schedule)

    async def skip_next(
        self,
        schedule_id: ScheduleId,
        *,
        by: Person,
        chat: ChatId,
        at: datetime,
        due_at: datetime | None = None,
    ) -> ScheduleView:
        schedule = await self._get_changeable(schedule_id, by, chat)
        async with self.db.write() as tx:
            schedule = await self.schedules.get(schedule.id, tx=tx)
            if due_at is None:
                known = await self.schedules.find_firing_after(tx, schedule.id, at)
            else:
                known = await self.schedules.find_firing(tx, schedule.id, due_at)
            if known is None:
                await self._skip(tx, schedule, due_at or schedule.next_due)
            elif known.note != _SKIPPED_BY_PERSON:
                raise UserError("schedule_passed", id=schedule.id)
        self.on_change()
        return await self._full_view(await self.schedules.get(schedule.id))

    async def _skip(self, tx: Transaction, schedule: Schedule, due_at: datetime | None) -> None:
        if schedule.state is not ScheduleState.ACTIVE or due_at is None:
            raise WrongState("schedule", schedule.id, schedule.state)
        following = self.due_times.next_due(schedule, due_at)
        taken = due_at == schedule.next_due and await self.schedules.claim(
            tx, schedule, next_due=following, ended=following is None
        )
        if not taken:
            raise UserError("schedule_passed", id=schedule.id)
        await self.schedules.add_firing(
            tx,
            schedule,
            due_at=due_at,
            state=FiringState.SKIPPED,
            now=self.now(),
            note=_SKIPPED_BY_PERSON,
        )

    async def finish_reminder(self, firing_id: int, *, by: Person, chat: ChatId) -> ScheduledFiring:
        found = await self._get_firing(firing_id, by, chat)
        async with self.db.write() as tx:
            if found.firing.state is FiringState.SENT:
                await self.schedules.settle_firing(
                    tx, found.firing, FiringState.DONE, now=self.now(), note=found.firing.note
                )
        return await self._get_firing(firing_id, by, chat)

    async def snooze(
        self, firing_id: int, delay: timedelta, *, by: Person, chat: ChatId, source: str
    ) -> ScheduleView:
        found = await self._get_firing(firing_id, by, chat)
        schedule = found.schedule
        now = self.now()
        again = NewSchedule(
            kind=schedule.kind,
            title=schedule.title,
            timing=OneTime(at=now + delay),
            zone=schedule.zone,
            body=schedule.body,
            owner_id=schedule.owner_id,
            chat_id=schedule.chat_id,
            source=source,
            reply_to=schedule.reply_to,
        )
        async with self.db.write() as tx:
            made = await self.schedules.create(tx, again, new_id=self.new_id, now=now)
            if made.state is ScheduleState.PROPOSED:
                due = made.timing.at if isinstance(made.timing, OneTime) else None
                made = (
                    await self.schedules.update(tx, made, state=ScheduleState.ACTIVE, next_due=due)
                    or made
                )
                await self.schedules.settle_firing(
                    tx, found.firing, FiringState.DONE, now=now, note="schedule.snoozed"
                )
        self.on_change()
        return self._view(made)

    async def decide_missed(
        self, firing_id: int, *, run: bool, by: Person, chat: ChatId
    ) -> ScheduledFiring:
        found = await self._get_firing(firing_id, by, chat)
        await self._require_control(found.schedule, by)
        if found.firing.state is FiringState.MISSED and run:
            await self.firer.run_missed(found)
        elif found.firing.state is FiringState.MISSED:
            async with self.db.write() as tx:
                await self.schedules.settle_firing(
                    tx,
                    found.firing,
                    FiringState.SKIPPED,
                    now=self.now(),
                    note=_SKIPPED_BY_PERSON,
                )
        return await self._get_firing(firing_id, by, chat)

    async def _check_count(self, person: PersonId) -> None:
        if await self.schedules.count_of(person) >= MAX_PER_PERSON:
            raise UserError("schedule_too_many", n=MAX_PER_PERSON)

    def _check_timing(self, timing: Timing, zone: str) -> None:
        loaded = load_zone(zone)
        if loaded is None:
            raise UserError("schedule_zone", name=zone[:60])
        check_timing(timing, now=self.now(), zone=loaded, calendar=self.due_times.calendar)

    async def _change(
        self,
        schedule: Schedule,
        *,
        state: ScheduleState,
        next_due: datetime | None,
        reason: str | None = None,
        timing: Timing | None = None,
    ) -> ScheduleView:
        why = schedule.reason if reason is None else reason
        async with self.db.write() as tx:
            changed = await self.schedules.update(
                tx,
                schedule,
                state=state,
                reason=why,
                next_due=next_due,
                timing=timing or schedule.timing,
            )
        self.on_change()
        return await self._full_view(changed or await self.schedules.get(schedule.id))

    async def _get_changeable(self, schedule_id: ScheduleId, by: Person, chat: ChatId) -> Schedule:
        schedule = await self._get_visible(schedule_id, by, chat)
        await self._require_control(schedule, by)
        return schedule

    async def _get_visible(self, schedule_id: ScheduleId, by: Person, chat: ChatId) -> Schedule:
        of, where = await self._visibility(by, chat)
        return await self.schedules.find(schedule_id, of=of, chat=where)

    async def _get_firing(self, firing_id: int, by: Person, chat: ChatId) -> ScheduledFiring:
        found = await self.schedules.get_firing(firing_id)
        if found is None:
            raise NotFound("firing", str(firing_id))
        await self._get_visible(found.schedule.id, by, chat)
        return found

    async def _require_control(self, schedule: Schedule, by: Person) -> None:
        if schedule.owner_id != by.id and not by.role.allows(PersonRole.OWNER):
            raise ActionForbidden

    async def _visibility(self, by: Person, chat: ChatId) -> tuple[PersonId | None, ChatId | None]:
        """The schedules that this person may see: in a group those of the group, else their own;
        owners see all in private."""
        if (await self.get_chat(chat)).kind is not ChatKind.PRIVATE:
            return None, chat
        return (None if by.role.allows(PersonRole.OWNER) else by.id), None

    def _view(self, schedule: Schedule) -> ScheduleView:
        if schedule.state is ScheduleState.ACTIVE and schedule.next_due is not None:
            later = self.due_times.upcoming(schedule, schedule.next_due, _SHOWN_FIRINGS - 1)
            return ScheduleView(schedule=schedule, upcoming=(schedule.next_due, *later))
        if schedule.state is ScheduleState.PROPOSED:
            times = 0 if isinstance(schedule.timing, OneTime) else schedule.timing.times
            count = min(_SHOWN_FIRINGS, times or _SHOWN_FIRINGS)
            shown = self.due_times.upcoming(schedule, self.now(), count)
            return ScheduleView(schedule=schedule, upcoming=shown)
        return ScheduleView(schedule=schedule, upcoming=())

    def _extend(self, view: ScheduleView, until: datetime) -> ScheduleView:
        """Add the firings until then to a view, unless there are too many."""
        if len(view.upcoming) < _SHOWN_FIRINGS or view.upcoming[-1] > until:
            return view
        room = MAX_UPCOMING - _SHOWN_FIRINGS + 1
        more = self.due_times.upcoming(view.schedule, view.upcoming[-1], room, until)
        if len(more) == room:
            return replace(view, more_until=True)
        return replace(view, upcoming=(*view.upcoming, *more))

    async def _full_view(self, schedule: Schedule) -> ScheduleView:
        view = self._view(schedule)
        for last in await self.schedules.list_firings(schedule.id, 1):
            view = replace(view, last=last, last_task=await self._task_of(last))
        return view

    async def _task_of(self, firing: Firing) -> Task | None:
        if firing.task_id is None:
            return None
        try:
            return await self.tasks.get(firing.task_id)
        except NotFound:
            return None
