"""Wakes the heartbeat: merges reasons, keeps to its hours, and plans the next run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from bot.engine.agent.conversation.turn_taking import CardPoster
from bot.engine.autonomy.heartbeat.run import CUT_OFF, HeartbeatRunner
from bot.engine.autonomy.heartbeat.task_list import append_task, read_task_file, tick_tasks
from bot.engine.llm.backend import BackendUnavailable
from bot.engine.schedule.builtin import OFF_BY_SETTING, BuiltinSchedules
from bot.engine.schedule.firing import ScheduleFirer, ServiceFailure
from bot.engine.timing import DayHours
from cards.catalog import catalog_for
from cards.views.heartbeat import file_unusable_card
from handlers.errors import UserError
from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.heartbeat import HeartbeatRepo
from storage.key_value import KeyValueStore
from storage.records.autonomy import (
    HeartbeatOutcome,
    HeartbeatRun,
    HeartbeatStatus,
    TaskFileState,
    WakeReason,
    merge_reasons,
)
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, Language
from storage.records.schedules import Schedule, ScheduleState
from storage.records.tasks import Task, TaskEvent
from storage.schedules import ScheduleRepo

log = logging.getLogger(__name__)

NAME = "heartbeat"
COALESCE = timedelta(milliseconds=250)
"""Reasons that come within this time wake it once."""
MIN_GAP = timedelta(minutes=5)
"""Ended tasks wake it no sooner after its last run."""
RETRY_DELAY = timedelta(minutes=5)

_REASONS = "heartbeat.reasons"
_FILE_TOLD = "heartbeat.file_told"
_STATUS_RUNS = 3


@dataclass(kw_only=True, eq=False)
class HeartbeatService:
    """Runs by its row in the table of schedules, and implements
    `handlers.ports_autonomy.HeartbeatPort`.

    Reasons wait in the store until a run takes them; those that come during a run lead to one more
    run after it. `find_chat` returns the chat of an owner's newest message, None if no owner has
    written. `spent_and_cap` are today's cost and cap in micro-dollars."""

    name = "heartbeat"

    db: Database
    runs: HeartbeatRepo
    schedules: ScheduleRepo
    key_values: KeyValueStore
    builtin: BuiltinSchedules
    firer: ScheduleFirer
    runner: HeartbeatRunner
    poster: CardPoster
    path: Path
    every: timedelta
    hours: ActiveHours
    hours_text: str
    find_chat: Callable[[], Awaitable[Chat | None]]
    language_of: Callable[[Chat], Awaitable[Language]]
    spent_and_cap: Callable[[], Awaitable[tuple[int, int]]]
    now: Callable[[], datetime]
    on_change: Callable[[], None]
    _is_running: bool = field(default=False, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        await self.runs.cut_off(now=self.now(), note=CUT_OFF)
        await self._tick_done()

    async def run(self) -> None:
        """The due timer calls `run_scheduled`."""
        await asyncio.Event().wait()

    async def run_scheduled(self, schedule: Schedule, _due_at: datetime) -> None:
        """Satisfies `ScheduledService`."""
        self._is_running = True
        outcome, retry = HeartbeatOutcome.NOTHING_DUE, False
        try:
            reasons = await self._take_reasons() or (WakeReason.INTERVAL,)
            while reasons:
                began, retry = self.now(), False
                try:
                    outcome = await self._run_once(reasons)
                except BackendUnavailable as error:
                    log.warning("the heartbeat failed: %s", error)
                    outcome = HeartbeatOutcome.FAILED
                    retry = WakeReason.RETRY not in reasons
                await self._plan_next(began, retry=retry)
                reasons = () if retry else await self._take_reasons()
        finally:
            self._is_running = False
        if not retry and await self.key_values.get(_REASONS):
            # One came after the last look, and left the due time to this run.
            await self._run_soon(self.now() + COALESCE)
        if outcome is HeartbeatOutcome.FAILED:
            raise ServiceFailure(outcome.value)

    async def wake(self, reason: WakeReason) -> None:
        """Run soon for this reason, merged with other reasons. Does nothing while the heartbeat is
        off."""
        schedule = await self.schedules.find_by_source(f"builtin:{NAME}")
        if schedule is None or schedule.state is not ScheduleState.ACTIVE:
            return
        (last,) = await self.runs.list_recent(1) or (None,)
        due = self.now() + COALESCE
        if last is not None:
            due = max(due, last.started_at + MIN_GAP)
        async with self.db.write() as tx:
            await self._add_reason(tx, reason)
        if not self._is_running:
            await self._run_soon(due)

    async def _run_soon(self, due: datetime) -> None:
        """Move the next run forward to this time, or to the next opening after it."""
        schedule = await self.builtin.get(NAME)
        due = self.hours.next_opening(due)
        if schedule.state is not ScheduleState.ACTIVE:
            return
        if schedule.next_due is None or schedule.next_due > due:
            async with self.db.write() as tx:
                await self.schedules.update(tx, schedule, next_due=due)
            self.on_change()

    async def handle_task_events(self, task: Task, events: Sequence[TaskEvent]) -> None:
        """An ended task may be what a line of the list waits for."""
        if any(event.kind.is_ending for event in events):
            async with self.db.read() as view:
                fired = await self.schedules.find_firing_of_task(view, task.id)
            await self.wake(WakeReason.COMMAND if fired is None else WakeReason.JOB)

    async def status(self) -> HeartbeatStatus:
        schedule = await self.schedules.find_by_source(f"builtin:{NAME}")
        file = await asyncio.to_thread(read_task_file, self.path)
        chat = await self.find_chat()
        spent, cap = await self.spent_and_cap()
        return HeartbeatStatus(
            # Before its first start it is as the setting wants it.
            is_on=bool(self.every) if schedule is None else schedule.state is ScheduleState.ACTIVE,
            every_minutes=int(self.every.total_seconds() // 60),
            hours=self.hours_text,
            next_due=None if schedule is None else schedule.next_due,
            chat=None if chat is None else chat.id,
            file_state=file.state,
            pending=file.pending,
            runs=tuple(await self.runs.list_recent(_STATUS_RUNS)),
            spent_micros=spent,
            cap_micros=cap,
        )

    async def switch(self, *, on: bool) -> HeartbeatStatus:
        await self._get_schedule()
        await self.builtin.switch(NAME, on=on)
        return await self.status()

    async def run_now(self, *, at: datetime) -> bool:
        schedule = await self._get_schedule()
        async with self.db.write() as tx:
            await self._add_reason(tx, WakeReason.REQUESTED)
        if self._is_running:
            return False
        await self.firer.run_now(schedule, due_at=at)
        return True

    async def add(self, text: str) -> HeartbeatStatus:
        try:
            state = await asyncio.to_thread(append_task, self.path, text)
        except OSError as error:
            raise UserError("heartbeat_file", why=error.strerror or "") from error
        if state not in {TaskFileState.READ, TaskFileState.MISSING}:
            raise UserError("heartbeat_unreadable")
        return await self.status()

    async def log(self, limit: int) -> Sequence[HeartbeatRun]:
        return await self.runs.list_recent(limit)

    async def _get_schedule(self) -> Schedule:
        """Raises UserError if a setting has switched the heartbeat off, or if the program has never
        run."""
        try:
            schedule = await self.builtin.get(NAME)
        except NotFound:
            raise UserError("heartbeat_not_started" if self.every else "heartbeat_off") from None
        if schedule.reason == OFF_BY_SETTING:
            raise UserError("heartbeat_off")
        return schedule

    async def _run_once(self, reasons: Sequence[WakeReason]) -> HeartbeatOutcome:
        # Whoever asks for a run is there, whatever the hour.
        if WakeReason.REQUESTED not in reasons and not self.hours.contains(self.now()):
            return await self.runner.record(reasons, HeartbeatOutcome.OUTSIDE_HOURS)
        await self._tick_done()
        file = await asyncio.to_thread(read_task_file, self.path)
        chat = await self.find_chat()
        if chat is None:
            return await self.runner.record(
                reasons, HeartbeatOutcome.NOTHING_DUE, note="heartbeat.no_chat"
            )
        language = await self.language_of(chat)
        await self._tell_file_state(file.state, chat, language)
        if not file.pending:
            return await self.runner.record(reasons, HeartbeatOutcome.NOTHING_DUE)
        outcome = await self.runner.run(reasons, file, chat, language)
        await self._tick_done()
        return outcome

    async def _plan_next(self, began: datetime, *, retry: bool) -> None:
        """Plan the next run one interval after this one, or when the active hours start."""
        schedule = await self.builtin.get(NAME)
        due = self.now() + RETRY_DELAY if retry else max(began + self.every, self.now())
        due = self.hours.next_opening(due)
        async with self.db.write() as tx:
            if retry:
                await self._add_reason(tx, WakeReason.RETRY)
            if schedule.state is ScheduleState.ACTIVE:
                await self.schedules.update(tx, schedule, next_due=due)
        self.on_change()

    async def _tell_file_state(self, state: TaskFileState, chat: Chat, language: Language) -> None:
        """Report an unusable file once, until it is usable again."""
        is_fine = state in {TaskFileState.READ, TaskFileState.MISSING}
        wanted = "" if is_fine else state.value
        card = await self.poster.prepare(file_unusable_card(state, catalog_for(language)))
        async with self.db.write() as tx:
            if (await self.key_values.read(tx, _FILE_TOLD) or "") == wanted:
                return
            await self.key_values.write(tx, _FILE_TOLD, wanted)
            if wanted:
                key = f"heartbeat-file:{self.now():%Y%m%d%H%M%S}"
                await self.poster.post(tx, chat.id, card, key=key, urgency=DeliveryUrgency.NOTICE)
        self.poster.wake()

    async def _tick_done(self) -> None:
        """Tick in the file what runs have recorded as done, also those before a death."""
        for run in await self.runs.list_unticked():
            try:
                await asyncio.to_thread(tick_tasks, self.path, run.to_tick)
            except OSError as error:
                log.warning("HEARTBEAT.md cannot be changed: %s", error)
                return
            await self.runs.mark_ticked(run.id)

    async def _add_reason(self, tx: Transaction, reason: WakeReason) -> None:
        waiting = await self.key_values.read(tx, _REASONS) or []
        await self.key_values.write(tx, _REASONS, merge_reasons([*waiting, reason.value]))

    async def _take_reasons(self) -> tuple[WakeReason, ...]:
        async with self.db.write() as tx:
            waiting = await self.key_values.read(tx, _REASONS) or []
            if waiting:
                await self.key_values.write(tx, _REASONS, [])
        return merge_reasons(waiting)


_MAX_MOVES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveHours:
    """The hours inside `active` and outside `quiet`; None means no limit."""

    active: DayHours | None
    quiet: DayHours | None

    def contains(self, at: datetime) -> bool:
        is_active = self.active is None or self.active.contains(at)
        return is_active and not (self.quiet is not None and self.quiet.contains(at))

    def next_opening(self, at: datetime) -> datetime:
        """`at` itself if it is within the active hours, else the next time that is. If both
        settings leave nothing of a day, the last time tried."""
        for _ in range(_MAX_MOVES):
            if self.active is not None and not self.active.contains(at):
                at = self.active.next_start(at)
            elif self.quiet is not None and self.quiet.contains(at):
                at = self.quiet.next_end(at)
            else:
                break
        return at
