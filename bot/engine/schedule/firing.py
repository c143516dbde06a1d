"""Fires due schedules: sends reminders, starts tasks, runs services of Shiftboss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeAlias, assert_never
from zoneinfo import ZoneInfo

from bot.engine.agent.conversation.turn_taking import CardPoster
from bot.engine.timing import DayHours, WorkingCalendar, load_zone, next_due
from bot.engine.workflow.definition import Workflow, load_workflow
from bot.engine.workflow.validation import validate_workflow
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.views.schedules import (
    MAX_COUNTED_MISSED,
    MissedFiring,
    firing_failed_card,
    missed_firings_card,
    reminder_card,
    schedule_paused_card,
)
from storage.db import Database, Transaction
from storage.errors import WrongState
from storage.people import PeopleRepo
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, PersonId
from storage.records.schedules import (
    Firing,
    FiringState,
    MessageBody,
    MissedPolicy,
    OneTime,
    Schedule,
    ScheduledFiring,
    ScheduleKind,
    ScheduleState,
    ServiceBody,
    TaskBody,
    Timing,
)
from storage.records.tasks import (
    EventKind,
    NewTask,
    Task,
    TaskEvent,
    TaskId,
    TaskPriority,
    TaskStatus,
)
from storage.records.workflows import PreparedWorkflow, WorkflowRefused
from storage.schedules import ScheduleRepo
from storage.tasks import TaskRepo

log = logging.getLogger(__name__)

MISSED_AFTER = timedelta(minutes=5)
"""A firing that is later than this was missed: the program did not run, or the clock jumped."""
_MOMENT = timedelta(microseconds=1)
_SOON = timedelta(hours=1)
_BATCH = 1000
_MAX_TITLE = 80
_MAX_RETRY_DELAY = timedelta(days=1)


class ServiceFailure(Exception):
    """A service could not do its work; the text is a reason for people."""


ScheduledService: TypeAlias = Callable[[Schedule, datetime], Awaitable[None]]
"""Runs a part of the program for a schedule that was due at this time. May raise ServiceFailure."""


def was_asked_for(due_at: datetime) -> bool:
    """Whether somebody requested this firing of a cron schedule by `run_now`: due times are whole
    minutes, and `run_now` never uses one."""
    return bool(due_at.second or due_at.microsecond)


class TaskEnqueuer(Protocol):
    async def create_within(
        self, tx: Transaction, new: NewTask, workflow: Workflow | None = None
    ) -> Task: ...

    async def retry_unattended(self, task_id: TaskId, *, source: str) -> bool:
        """Run a blocked or failed task again from its unfinished step; False if it cannot be."""
        ...


class WorkflowPreparer(Protocol):
    async def prepare_run(self, name: str, values: Mapping[str, Any]) -> PreparedWorkflow: ...


@dataclass(slots=True, kw_only=True, eq=False)
class DueTimes:
    """Computes the due times of schedules. `quiet_hours` is None if there are none. Both fields are
    replaced when the settings change, and apply from each schedule's next firing on."""

    calendar: WorkingCalendar
    quiet_hours: DayHours | None

    def next_due(self, schedule: Schedule, after: datetime) -> datetime | None:
        """The first firing after `after`, moved out of the quiet hours if the schedule wants it: to
        their end, unless the schedule fires by itself soon after it."""
        due = self._plain_due(schedule, after)
        quiet = self.quiet_hours if schedule.respects_quiet_hours else None
        if due is None or quiet is None or not quiet.contains(due):
            return due
        end = quiet.next_end(due)
        following = self._plain_due(schedule, end - _MOMENT)
        return end if following is None or following - end > _SOON else following

    def _plain_due(self, schedule: Schedule, after: datetime) -> datetime | None:
        zone = load_zone(schedule.zone) or ZoneInfo("UTC")
        return next_due(schedule.timing, after=after, zone=zone, calendar=self.calendar)

    def quiet_until(self, schedule: Schedule, now: datetime) -> datetime | None:
        """When the quiet hours end in which this schedule must not fire now; None if it may."""
        is_held = schedule.respects_quiet_hours and self.is_quiet(now)
        return self.quiet_hours.next_end(now) if self.quiet_hours and is_held else None

    def is_quiet(self, now: datetime) -> bool:
        return self.quiet_hours is not None and self.quiet_hours.contains(now)

    def around(
        self, schedule: Schedule, now: datetime, gap: timedelta
    ) -> tuple[datetime, datetime | None]:
        """The last firing until `now`, which must exist, and the first after it. `gap` is the
        approximate time between two."""
        newest, following = None, self.next_due(schedule, now - gap)
        while newest is None:
            while following is not None and following <= now:
                newest, following = following, self.next_due(schedule, following)
            if newest is None:
                gap *= 2
                following = self.next_due(schedule, now - gap)
        return newest, following

    def upcoming(
        self, schedule: Schedule, after: datetime, count: int, until: datetime | None = None
    ) -> Sequence[datetime]:
        """The next firings, at most `count`, and none after `until`."""
        found: list[datetime] = []
        while len(found) < count and (due := self.next_due(schedule, after)) is not None:
            if until is not None and due > until:
                break
            found.append(due)
            after = due
        return found

    def end_counted(self, schedule: Schedule, now: datetime) -> Timing:
        """The timing of a schedule that starts now, with the end that its number of firings
        implies."""
        timing = schedule.timing
        if isinstance(timing, OneTime) or not timing.times:
            return timing
        return replace(timing, until=self.upcoming(schedule, now, timing.times)[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """Everything a firing needs from outside its transaction. A workflow that cannot run has only
    the reason."""

    words: TextCatalog
    new_task: NewTask | None = None
    workflow: Workflow | None = None
    refusal: str = ""


@dataclass(kw_only=True, eq=False)
class ScheduleFirer:
    """A source of the due timer. Each due time is claimed by a conditional update in the
    transaction that does what it stands for, so that it fires once whatever happens in between.

    What was missed is told on one card for each chat. `services` are the parts of the program that
    schedules may run. `in_git` tells whether tasks of a folder work on branches. `owner_chats` are
    the private chats of the owners with their languages.
    """

    name = "schedules"

    db: Database
    schedules: ScheduleRepo
    task_repo: TaskRepo
    people: PeopleRepo
    tasks: TaskEnqueuer
    workflows: WorkflowPreparer
    poster: CardPoster
    due_times: DueTimes
    services: Mapping[str, ScheduledService]
    language_of: Callable[[ChatId, PersonId, str], Awaitable[Language]]
    owner_chats: Callable[[], Awaitable[Sequence[tuple[ChatId, Language]]]]
    in_git: Callable[[Path], Awaitable[bool]]
    now: Callable[[], datetime]
    on_tasks: Callable[[], None]
    _running: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._cancel_services)
        await self.settle_cut_off()
        await self._set_lost_due_times()

    async def run(self) -> None:
        """The due timer calls `run_due`."""
        await asyncio.Event().wait()

    async def next_due(self) -> datetime | None:
        return await self.schedules.next_due()

    async def run_due(self) -> None:
        while True:
            now = self.now()
            found = await self.schedules.list_due(now, _BATCH)
            due = [each for each in found if not await self._put_off(each, now)]
            late = [each for each in due if _is_late(each, now)]
            by_chat = sorted(late, key=lambda each: each.chat_id)
            for chat_id, missed in groupby(by_chat, key=lambda each: each.chat_id):
                await self._fire_missed(chat_id, list(missed), now)
            for schedule in due:
                if schedule not in late:
                    await self._fire(schedule, now)
            for retry in await self.schedules.list_due_retries(now, _BATCH):
                await self._retry(retry, now)
            if len(found) < _BATCH:
                return

    async def run_now(self, schedule: Schedule, *, due_at: datetime) -> Firing | None:
        """Fire once in addition to the due times; None if this moment has fired already. Raises
        WrongState for a proposed, ended or deleted schedule."""
        if not was_asked_for(due_at):
            due_at += _MOMENT
        prepared = await self._prepare(schedule, due_at)
        async with self.db.write() as tx:
            if await self.schedules.find_firing(tx, schedule.id, due_at) is not None:
                return None
            state = (await self.schedules.get(schedule.id, tx=tx)).state
            if state not in {ScheduleState.ACTIVE, ScheduleState.PAUSED}:
                raise WrongState("schedule", schedule.id, state)
            firing = await self._execute(tx, schedule, due_at, prepared)
        self._after_commit(schedule, firing)
        return firing

    async def run_missed(self, missed: ScheduledFiring) -> bool:
        """Run what waited for a decision; False if that has been decided. Raises WrongState if the
        schedule was deleted."""
        schedule, firing = missed.schedule, missed.firing
        prepared = await self._prepare(schedule, firing.due_at)
        async with self.db.write() as tx:
            if (await self.schedules.get(schedule.id, tx=tx)).is_deleted:
                raise WrongState("schedule", schedule.id, ScheduleState.ENDED)
            done = await self._execute(tx, schedule, firing.due_at, prepared, of=firing)
        if done is None:
            return False
        self._after_commit(schedule, done)
        return True

    async def handle_task_events(self, task: Task, events: Sequence[TaskEvent]) -> None:
        """Record how a scheduled task ended, and plan its next attempt."""
        if any(event.kind.is_ending or event.kind is EventKind.CANCELLED for event in events):
            await self.settle_task(task)

    async def settle_task(self, task: Task) -> None:
        async with self.db.write() as tx:
            found = await self.schedules.find_firing_of_task(tx, task.id)
            if found is None:
                return
            schedule, firing = found.schedule, found.firing
            now, reason = self.now(), formats.single_line(task.status_reason, 300)
            match task.status:
                case TaskStatus.COMPLETED:
                    await self.schedules.settle_firing(tx, firing, FiringState.DONE, now=now)
                case TaskStatus.CANCELLED:
                    await self.schedules.settle_firing(
                        tx, firing, FiringState.SKIPPED, now=now, note="schedule.cancelled"
                    )
                case TaskStatus.FAILED | TaskStatus.BLOCKED if firing.retry_at is None:
                    await self._plan_retry(tx, schedule, firing, reason, now)

    async def _plan_retry(
        self, tx: Transaction, schedule: Schedule, firing: Firing, reason: str, now: datetime
    ) -> None:
        if firing.attempt >= schedule.retries:
            state, retry_at = FiringState.FAILED, None
        else:
            delay = schedule.retry_delay * 2 ** min(firing.attempt, 20)
            state, retry_at = FiringState.STARTED, now + min(delay, _MAX_RETRY_DELAY)
        await self.schedules.settle_firing(
            tx, firing, state, now=now, note=reason, retry_at=retry_at
        )

    async def _retry(self, found: ScheduledFiring, now: datetime) -> None:
        """Retry the same task, which keeps its finished steps."""
        schedule, firing = found.schedule, found.firing
        attempt = firing.attempt + 1
        source = f"firing:{firing.id}:{attempt}"
        goes_on = (
            schedule.state is not ScheduleState.PAUSED
            and not schedule.is_deleted
            and firing.task_id is not None
            and await self.people.has_access(schedule.owner_id)
            and await self.tasks.retry_unattended(firing.task_id, source=source)
        )
        state = FiringState.STARTED if goes_on else FiringState.FAILED
        async with self.db.write() as tx:
            await self.schedules.settle_firing(
                tx, firing, state, now=now, note=firing.note, attempt=attempt
            )

    async def _put_off(self, schedule: Schedule, now: datetime) -> bool:
        """Move what would run now to the end of the quiet hours: it was missed before them, or they
        have changed."""
        until = self.due_times.quiet_until(schedule, now)
        runs = not _is_late(schedule, now) or schedule.missed is MissedPolicy.ONCE
        if until is None or not runs:
            return False
        async with self.db.write() as tx:
            await self.schedules.claim(tx, schedule, next_due=until, ended=False)
        return True

    async def _fire(self, schedule: Schedule, now: datetime) -> None:
        due_at = schedule.next_due
        assert due_at is not None
        if not await self.people.has_access(schedule.owner_id):
            await self._pause(schedule, "schedule.paused_person")
            return
        prepared = await self._prepare(schedule, due_at)
        following = self.due_times.next_due(schedule, max(now, due_at))
        async with self.db.write() as tx:
            if not await self.schedules.claim(
                tx, schedule, next_due=following, ended=following is None
            ):
                return
            firing = await self._execute(tx, schedule, due_at, prepared)
        self._after_commit(schedule, firing)

    async def _fire_missed(self, chat_id: ChatId, late: Sequence[Schedule], now: datetime) -> None:
        """Handle missed firings by each schedule's policy, and report all of them on one card."""
        prepared = []
        for schedule in late:
            if not await self.people.has_access(schedule.owner_id):
                await self._pause(schedule, "schedule.paused_person")
                continue
            count, newest, following = self._count_missed(schedule, now)
            ready = await self._prepare(schedule, newest)
            prepared.append((schedule, count, newest, following, ready))
        if not prepared:
            return
        done: list[tuple[Schedule, Firing]] = []
        shown: list[MissedFiring] = []
        async with self.db.write() as tx:
            for schedule, count, newest, following, ready in prepared:
                if not await self.schedules.claim(
                    tx, schedule, next_due=following, ended=following is None
                ):
                    continue
                firing = await self._execute_missed(tx, schedule, newest, ready)
                done.append((schedule, firing))
                if schedule.kind in {ScheduleKind.REMINDER, ScheduleKind.JOB}:
                    shown.append(MissedFiring(schedule=schedule, firing=firing, count=count))
            if shown:
                words = prepared[0][-1].words
                card = missed_firings_card(shown, words)
                key = f"missed:{shown[0].firing.id}"
                await self.poster.post(tx, chat_id, card, key=key, urgency=DeliveryUrgency.NOTICE)
        for schedule, firing in done:
            self._after_commit(schedule, firing)

    def _count_missed(
        self, schedule: Schedule, now: datetime
    ) -> tuple[int, datetime, datetime | None]:
        """The number of missed due times, the newest of them, and the next due time."""
        due = schedule.next_due
        assert due is not None
        count, newest = 1, due
        following = self.due_times.next_due(schedule, due)
        while following is not None and following <= now:
            if count >= MAX_COUNTED_MISSED:
                mean = (newest - due) / count
                return count, *self.due_times.around(schedule, now, mean)
            count, newest = count + 1, following
            following = self.due_times.next_due(schedule, following)
        return count, newest, following

    async def _execute_missed(
        self, tx: Transaction, schedule: Schedule, due_at: datetime, prepared: _Prepared
    ) -> Firing:
        match schedule.missed:
            case MissedPolicy.ONCE if isinstance(schedule.body, MessageBody):
                # The card of what was missed says it.
                state, note = FiringState.SENT, "schedule.late"
            case MissedPolicy.ONCE:
                firing = await self._execute(tx, schedule, due_at, prepared)
                assert firing is not None
                return firing
            case MissedPolicy.SKIP:
                state, note = FiringState.SKIPPED, "schedule.skipped_missed"
            case MissedPolicy.ASK:
                state, note = FiringState.MISSED, ""
            case _:
                assert_never(schedule.missed)
        return await self.schedules.add_firing(
            tx, schedule, due_at=due_at, state=state, now=self.now(), note=note
        )

    async def _prepare(self, schedule: Schedule, due_at: datetime) -> _Prepared:
        words = catalog_for(
            await self.language_of(schedule.chat_id, schedule.owner_id, schedule.title)
        )
        body = schedule.body
        if isinstance(body, MessageBody | ServiceBody):
            return _Prepared(words=words)
        new = NewTask(
            title=formats.single_line(schedule.title, _MAX_TITLE),
            instruction="",
            # What somebody asks for now goes first.
            priority=TaskPriority.NORMAL,
            chat_id=schedule.chat_id,
            created_by=schedule.owner_id,
            source=f"firing:{schedule.id}:{due_at.isoformat()}",
            reply_to=schedule.reply_to,
            project_dir=schedule.project_dir,
            in_git=bool(schedule.project_dir) and await self.in_git(Path(schedule.project_dir)),
            model=schedule.model,
            backend=schedule.backend,
            persona=schedule.persona,
            cap=schedule.cap,
            use_memory=schedule.use_memory,
        )
        if isinstance(body, TaskBody):
            return _Prepared(words=words, new_task=replace(new, instruction=body.instruction))
        try:
            ready = await self.workflows.prepare_run(body.name, body.inputs)
            workflow = validate_workflow(load_workflow(ready.body))
        except WorkflowRefused as error:
            detail = words("schedule.workflow_refused", name=error.name, why=error.detail)
            return _Prepared(words=words, refusal=formats.single_line(detail, 300))
        task = replace(new, title=ready.title or new.title, instruction=ready.instruction)
        return _Prepared(words=words, new_task=task, workflow=workflow)

    async def _execute(
        self,
        tx: Transaction,
        schedule: Schedule,
        due_at: datetime,
        prepared: _Prepared,
        *,
        of: Firing | None = None,
    ) -> Firing | None:
        """Carry out the schedule in the transaction that claims its due time. `of` is the stored
        firing to carry out; None if it has been decided since."""
        state, note, task_id = FiringState.STARTED, "", None
        running = await self.schedules.find_running(tx, schedule.id)
        body = schedule.body
        if isinstance(body, MessageBody):
            state = FiringState.SENT
        elif running is not None:
            state, note = FiringState.SKIPPED, "schedule.skipped_running"
        elif prepared.refusal:
            state, note = FiringState.FAILED, prepared.refusal
        elif prepared.new_task is not None:
            task_id = (await self.tasks.create_within(tx, prepared.new_task, prepared.workflow)).id
        if of is None:
            firing = await self.schedules.add_firing(
                tx,
                schedule,
                due_at=due_at,
                state=state,
                now=self.now(),
                task_id=task_id,
                note=note,
            )
        elif await self.schedules.settle_firing(
            tx, of, state, now=self.now(), note=note, task_id=task_id
        ):
            firing = replace(of, state=state, note=note, task_id=task_id)
        else:
            return None
        await self._post_firing(tx, ScheduledFiring(schedule=schedule, firing=firing), prepared)
        return firing

    async def _post_firing(
        self, tx: Transaction, fired: ScheduledFiring, prepared: _Prepared
    ) -> None:
        """Send the card of a firing. Tasks have cards of their own."""
        schedule, firing = fired.schedule, fired.firing
        match firing.state:
            case FiringState.SENT:
                card = reminder_card(fired, prepared.words)
                urgency = DeliveryUrgency.ANSWER
            case FiringState.FAILED:
                card, urgency = firing_failed_card(fired, prepared.words), DeliveryUrgency.NOTICE
            case _:
                return
        await self.poster.post(
            tx,
            schedule.chat_id,
            card,
            key=f"firing:{firing.id}",
            urgency=urgency,
            reply_to=schedule.reply_to,
        )

    def _after_commit(self, schedule: Schedule, firing: Firing | None) -> None:
        self.poster.wake()
        if firing is None or firing.state is not FiringState.STARTED:
            return
        if firing.task_id is not None:
            self.on_tasks()
        elif isinstance(schedule.body, ServiceBody):
            work = asyncio.create_task(
                self._run_service(schedule, schedule.body, firing), name=f"schedule {schedule.id}"
            )
            self._running.add(work)
            work.add_done_callback(self._running.discard)

    async def _run_service(self, schedule: Schedule, body: ServiceBody, firing: Firing) -> None:
        state, note = FiringState.DONE, ""
        try:
            await self._find_service(body.name)(schedule, firing.due_at)
        except ServiceFailure as error:
            log.warning("schedule %s (%s) failed: %s", schedule.id, body.name, error)
            state, note = FiringState.FAILED, str(error)
        except Exception:
            # Error boundary: one part of the program must not stop the others.
            log.exception("schedule %s (%s) failed", schedule.id, body.name)
            state, note = FiringState.FAILED, "failure.unexpected"
        async with self.db.write() as tx:
            await self.schedules.settle_firing(tx, firing, state, now=self.now(), note=note)

    def _find_service(self, name: str) -> ScheduledService:
        service = self.services.get(name)
        if service is None:
            raise ServiceFailure(f"there is no {name!r} in this version")
        return service

    async def settle_cut_off(self) -> None:
        """Settle firings that a crash interrupted, or whose task ended unnoticed."""
        for found in await self.schedules.list_started():
            firing = found.firing
            if firing.task_id is not None:
                await self.settle_task(await self.task_repo.get(firing.task_id))
                continue
            async with self.db.write() as tx:
                await self.schedules.settle_firing(
                    tx, firing, FiringState.FAILED, now=self.now(), note="schedule.cut_off"
                )

    async def _set_lost_due_times(self) -> None:
        """Compute due times after a restore. Firings due since the backup are skipped, because they
        may have been done."""
        now = self.now()
        for schedule in await self.schedules.list_without_due():
            due = self.due_times.next_due(schedule, now)
            state = ScheduleState.ENDED if due is None else ScheduleState.ACTIVE
            async with self.db.write() as tx:
                await self.schedules.update(tx, schedule, state=state, next_due=due)

    async def pause_of_chat(self, chat_id: ChatId) -> None:
        """Pause schedules that report to an unreachable chat. Safe to repeat."""
        for schedule in await self.schedules.list_active_of_chat(chat_id):
            await self._pause(schedule, "schedule.paused_chat")

    async def _pause(self, schedule: Schedule, reason: str) -> None:
        """Pause a schedule and notify the owners, because its person or its chat may be gone."""
        owners = await self.owner_chats()
        async with self.db.write() as tx:
            paused = await self.schedules.update(
                tx, schedule, state=ScheduleState.PAUSED, reason=reason, next_due=None
            )
            for chat, language in owners if paused is not None else ():
                await self.poster.post(
                    tx,
                    chat,
                    schedule_paused_card(replace(schedule, reason=reason), catalog_for(language)),
                    key=f"schedule-paused:{schedule.id}:{schedule.next_due}:{chat}",
                    urgency=DeliveryUrgency.NOTICE,
                )
        self.poster.wake()

    async def _cancel_services(self) -> None:
        running = list(self._running)
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _is_late(schedule: Schedule, now: datetime) -> bool:
    return schedule.next_due is not None and now - schedule.next_due > MISSED_AFTER
