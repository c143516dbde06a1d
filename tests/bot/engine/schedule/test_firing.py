"""Schedules fire once at each due time, whatever the clock and the process do."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TypedDict
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.engine.schedule.firing import MISSED_AFTER, ServiceFailure
from bot.engine.timing import DayHours, WeekdayCalendar
from handlers.errors import UserError
from storage import schema
from storage.errors import WrongState
from storage.records.schedules import (
    EXPIRED,
    CronTiming,
    Firing,
    FiringState,
    Interval,
    MissedPolicy,
    OneTime,
    Schedule,
    ScheduleKind,
    ScheduleState,
    ServiceBody,
    TaskBody,
    Timing,
    WorkflowBody,
)
from storage.records.tasks import EventKind, Task, TaskEvent, TaskStatus
from tests.bot.engine.schedule.schedule_world import (
    Death,
    ScheduleWorld,
    every,
    new_schedule,
    schedule_world,
    upcoming,
)
from tests.engine_harness import BOSS, CHAT, MATE, START
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

JOB = TaskBody(instruction="Send the news")


class _Skip(TypedDict):
    at: datetime
    due_at: datetime | None


async def test_a_reminder_is_sent_once_when_it_is_due_and_is_over_then(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(OneTime(at=START + timedelta(hours=1)))
        await here.firer.run_due()
        assert await here.firings(made) == []
        assert await here.firer.next_due() == START + timedelta(hours=1)

        here.advance(hours=1)
        await here.firer.run_due()
        await here.firer.run_due()

        (fired,) = await here.firings(made)
        assert fired.state is FiringState.SENT
        assert "Water the plants" in await here.poster.text(f"firing:{fired.id}")
        assert (await here.get(made)).state is ScheduleState.ENDED
        assert await here.firer.next_due() is None


async def test_a_job_starts_a_task_in_the_chat_and_thread_that_asked(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(
            every(hours=1), JOB, reply_to="m7", persona="poet", cap="1 USD", use_memory=False
        )
        here.advance(hours=1)
        await here.firer.run_due()

        (fired,) = await here.firings(made)
        assert fired.task_id is not None
        task = await here.engine.store.tasks.get(fired.task_id)
        assert (task.instruction, task.chat_id, task.reply_to) == ("Send the news", CHAT.id, "m7")
        assert (task.persona, task.cap, task.use_memory) == ("poet", "1 USD", False)
        assert (await here.get(made)).next_due == START + timedelta(hours=2)


async def test_a_workflow_runs_with_its_inputs(tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "news.yaml").write_text(
        "name: News\ninputs:\n  - {name: topic}\nnodes:\n  - {id: a, name: Find it}\n"
    )
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=WorkflowBody(name="news", inputs={"topic": "queues"}))
        here.advance(hours=1)
        await here.firer.run_due()

        (fired,) = await here.firings(made)
        assert fired.task_id is not None
        task = await here.engine.store.tasks.get(fired.task_id)
        assert task.graph_version == 1
        assert "queues" in task.instruction + task.title


async def test_a_workflow_that_is_gone_is_said_in_the_chat(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=WorkflowBody(name="gone"))
        here.advance(hours=1)
        await here.firer.run_due()

        (fired,) = await here.firings(made)
        assert fired.state is FiringState.FAILED
        assert "gone" in await here.poster.text(f"firing:{fired.id}")


async def test_the_next_run_is_left_out_while_one_is_under_way(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB)
        for _ in range(2):
            here.advance(hours=1)
            await here.firer.run_due()

        first, second = await here.firings(made)
        assert (first.state, second.state) == (FiringState.STARTED, FiringState.SKIPPED)
        assert second.note == "schedule.skipped_running"


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (MissedPolicy.ONCE, FiringState.STARTED),
        (MissedPolicy.SKIP, FiringState.SKIPPED),
        (MissedPolicy.ASK, FiringState.MISSED),
    ],
)
async def test_what_was_missed_is_done_as_its_row_says(
    tmp_path: Path, policy: MissedPolicy, state: FiringState
) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB, missed=policy)
        here.advance(hours=5, minutes=30)
        await here.firer.run_due()

        (fired,) = await here.firings(made)
        assert fired.due_at == START + timedelta(hours=5)
        assert fired.state is state
        assert (await here.get(made)).next_due == START + timedelta(hours=6)
        card = await here.poster.text(f"missed:{fired.id}")
        assert "the last of 5" in card


async def test_all_that_was_missed_in_a_chat_is_told_on_one_card(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = [await here.add(title=f"Plant {n}") for n in range(30)]
        here.advance(hours=3, minutes=30)
        await here.firer.run_due()

        fired = [(await here.firings(each))[0] for each in made]
        keys = [f"missed:{each.id}" for each in fired]
        cards = [key for key in keys if await here.poster.has(key)]
        assert len(cards) == 1
        card = await here.poster.text(cards[0])
        assert card.count("Plant ") == 20
        assert "and 10 more" in card
        assert {each.state for each in fired} == {FiringState.SENT}


async def test_of_thousands_of_missed_firings_the_newest_is_run(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(every(minutes=20))
        here.advance(days=80, minutes=7)
        await here.firer.run_due()

        (fired,) = await here.firings(made)
        assert fired.due_at == START + timedelta(days=80)
        assert (await here.get(made)).next_due == START + timedelta(days=80, minutes=20)
        assert "the last of 1000+" in await here.poster.text(f"missed:{fired.id}")


async def test_a_person_decides_about_what_was_missed_once(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB, missed=MissedPolicy.ASK)
        here.advance(hours=2, minutes=30)
        await here.firer.run_due()
        (missed,) = await here.firings(made)

        for run in (True, False, True):
            await here.service.decide_missed(missed.id, run=run, by=BOSS, chat=CHAT.id)

        (fired,) = await here.firings(made)
        assert fired.state is FiringState.STARTED
        assert len(await here.tasks()) == 1


async def test_a_failed_run_goes_on_in_the_same_task_after_longer_and_longer_delays(
    tmp_path: Path,
) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(every(days=1), JOB, retries=2, retry_delay=timedelta(minutes=10))
        here.advance(days=1)
        await here.firer.run_due()
        (fired,) = await here.firings(made)
        assert fired.task_id is not None
        retried_at = []
        while (fired := (await here.firings(made))[0]).state is FiringState.STARTED:
            task = await _end_task(here, fired, TaskStatus.BLOCKED)
            await here.firer.handle_task_events(task, [_event(task, EventKind.BLOCKED)])
            fired = (await here.firings(made))[0]
            if fired.retry_at is not None:
                retried_at.append(fired.retry_at - here.time)
                assert await here.firer.next_due() == fired.retry_at
                assert await here.schedules.find_retry_of_task(task.id) == fired.retry_at
                here.time = fired.retry_at
                await here.firer.run_due()
                assert (await here.engine.store.tasks.get(task.id)).status is TaskStatus.PENDING

        assert retried_at == [timedelta(minutes=10), timedelta(minutes=20)]
        assert (fired.state, fired.attempt) == (FiringState.FAILED, 2)
        assert len(await here.tasks()) == 1


async def test_a_run_that_succeeds_is_done(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB)
        here.advance(hours=1)
        await here.firer.run_due()
        (fired,) = await here.firings(made)
        task = await _end_task(here, fired, TaskStatus.COMPLETED)
        await here.firer.handle_task_events(task, [_event(task, EventKind.COMPLETED)])

        assert (await here.firings(made))[0].state is FiringState.DONE


async def test_jobs_of_a_removed_person_are_paused_and_it_is_said(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB)
        async with here.engine.db.write() as tx:
            await tx.execute(sa.delete(schema.identities))
        here.advance(hours=1)
        await here.firer.run_due()

        assert await here.firings(made) == []
        paused = await here.get(made)
        assert (paused.state, paused.reason) == (ScheduleState.PAUSED, "schedule.paused_person")
        assert await here.poster.has(f"schedule-paused:{made.id}:{made.next_due}:{CHAT.id}")


async def test_a_failed_run_of_a_removed_person_is_not_tried_again(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB, retries=1, retry_delay=timedelta(minutes=10))
        here.advance(hours=1)
        await here.firer.run_due()
        (fired,) = await here.firings(made)
        task = await _end_task(here, fired, TaskStatus.FAILED)
        await here.firer.settle_task(task)
        async with here.engine.db.write() as tx:
            await tx.execute(sa.delete(schema.identities))
        here.advance(minutes=10)
        await here.firer.run_due()

        assert [each.state for each in await here.firings(made)] == [FiringState.FAILED]
        assert (await here.engine.store.tasks.get(task.id)).status is TaskStatus.FAILED


async def test_what_reports_to_a_chat_that_is_gone_is_paused_and_told_once(
    tmp_path: Path,
) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB)
        for _ in range(2):
            await here.firer.pause_of_chat(CHAT.id)

        paused = await here.get(made)
        assert (paused.state, paused.reason) == (ScheduleState.PAUSED, "schedule.paused_chat")
        told = await here.poster.text(f"schedule-paused:{made.id}:{made.next_due}:{CHAT.id}")
        assert "can't be reached" in told
        here.advance(hours=3)
        await here.firer.run_due()
        assert await here.firings(made) == []


async def test_a_part_of_the_program_runs_and_its_failure_is_in_the_log(tmp_path: Path) -> None:
    ran: list[datetime] = []

    async def check(_schedule: Schedule, due_at: datetime) -> None:
        ran.append(due_at)
        if len(ran) > 1:
            raise ServiceFailure("disk full")

    async with schedule_world(tmp_path, services={"check": check}) as here:
        made = await here.add(body=ServiceBody(name="check"), kind=ScheduleKind.CHECK)
        for _ in range(2):
            here.advance(hours=1)
            await here.firer.run_due()
            count = len(ran)

            async def is_settled(count: int = count) -> bool:
                fired = await here.firings(made)
                return fired[-1].state is not FiringState.STARTED

            async with asyncio.timeout(WAIT_SECONDS):
                while not await is_settled():
                    await asyncio.sleep(0.01)

        first, second = await here.firings(made)
        assert first.state is FiringState.DONE
        assert (second.state, second.note) == (FiringState.FAILED, "disk full")


async def test_a_run_that_a_death_cut_off_does_not_block_the_next_one(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def check(_schedule: Schedule, _due_at: datetime) -> None:
        await never.wait()

    async with schedule_world(tmp_path, services={"check": check}) as here:
        made = await here.add(body=ServiceBody(name="check"), kind=ScheduleKind.CHECK)
        here.advance(hours=1)
        await here.firer.run_due()
    async with schedule_world(tmp_path, services={"check": check}) as here:
        here.time = START + timedelta(hours=1, minutes=1)
        await here.firer.settle_cut_off()
        here.advance(hours=1)
        await here.firer.run_due()

        first, second = await here.firings(made)
        assert (first.state, first.note) == (FiringState.FAILED, "schedule.cut_off")
        assert second.state is FiringState.STARTED


async def test_firings_leave_the_quiet_hours(tmp_path: Path) -> None:
    quiet = DayHours(start=time(23), end=time(8), zone=ZoneInfo("Asia/Shanghai"))
    async with schedule_world(tmp_path, quiet_hours=quiet) as here:
        made = await here.add(CronTiming(expression="30 * * * *"), JOB, respects_quiet_hours=True)
        times = here.due_times.upcoming(made, datetime(2026, 1, 5, 14, tzinfo=UTC), 3)
        local = [each.astimezone(ZoneInfo("Asia/Shanghai")) for each in times]
        assert [f"{each:%H:%M}" for each in local] == ["22:30", "08:30", "09:30"]


@pytest.mark.parametrize("late", [timedelta(), timedelta(hours=5)], ids=["on time", "missed"])
async def test_what_would_run_in_the_quiet_hours_waits_for_their_end(
    tmp_path: Path, late: timedelta
) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(
            OneTime(at=START + timedelta(hours=1)), JOB, respects_quiet_hours=True
        )
        here.time = START + timedelta(hours=1) + late
        end = here.time + timedelta(hours=2)
        # They were set after it was planned, or it fell due before them and nobody was there.
        here.due_times.quiet_hours = DayHours(
            start=here.time.time(), end=end.time(), zone=ZoneInfo("UTC")
        )
        await here.firer.run_due()
        assert await here.firings(made) == []

        here.time = end
        await here.firer.run_due()
        assert [each.state for each in await here.firings(made)] == [FiringState.STARTED]
        assert (await here.get(made)).state is ScheduleState.ENDED


async def test_a_proposal_that_nobody_confirms_in_a_week_is_over(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        asked = await here.service.propose(new_schedule(every(hours=1)))
        here.advance(days=7, minutes=1)
        for _ in range(2):
            view = await here.service.confirm(asked.schedule.id, by=BOSS, chat=CHAT.id)
            assert (view.schedule.state, view.schedule.reason) == (ScheduleState.ENDED, EXPIRED)
        assert await here.firer.next_due() is None


async def test_snoozing_twice_reminds_once_more(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(OneTime(at=START + timedelta(hours=1)))
        here.advance(hours=1)
        await here.firer.run_due()
        (fired,) = await here.firings(made)
        first, view = [
            await here.service.snooze(
                fired.id, timedelta(minutes=10), by=BOSS, chat=CHAT.id, source="press:1"
            )
            for _ in range(2)
        ]

        assert first.schedule.id == view.schedule.id
        assert view.upcoming == (here.time + timedelta(minutes=10),)
        here.advance(minutes=10)
        await here.firer.run_due()
        again = await here.firings(view.schedule)
        assert [each.state for each in again] == [FiringState.SENT]


async def test_three_times_are_three_counted_from_the_confirmation(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        timing = replace(every(hours=1), times=3)
        asked = await here.service.propose(new_schedule(timing))
        assert len(asked.upcoming) == 3
        here.advance(hours=5, minutes=30)
        view = await here.service.confirm(asked.schedule.id, by=BOSS, chat=CHAT.id)
        for _ in range(10):
            here.advance(hours=1)
            await here.firer.run_due()

        fired = [each.due_at for each in await here.firings(view.schedule)]
        assert fired == [START + timedelta(hours=n) for n in (6, 7, 8)]
        assert (await here.get(view.schedule)).state is ScheduleState.ENDED


async def test_running_now_does_not_change_the_next_due_time(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB)
        for _ in range(2):
            await here.service.run_now(made.id, by=BOSS, chat=CHAT.id, at=here.time)

        assert len(await here.tasks()) == 1
        assert (await here.get(made)).next_due == START + timedelta(hours=1)
        # Asked for at a whole minute, it is told from what was due then.
        (fired,) = await here.firings(made)
        assert fired.due_at.microsecond


@pytest.mark.parametrize("shown", [True, False], ids=["its button", "its command"])
async def test_a_skip_that_a_death_cut_off_leaves_out_one_firing(
    tmp_path: Path, shown: bool
) -> None:
    def die() -> None:
        raise Death

    async with schedule_world(tmp_path) as here:
        made = await here.add()
        asked = _Skip(at=START, due_at=made.next_due if shown else None)
        dying = replace(here.service, on_change=die)
        with pytest.raises(Death):
            await dying.skip_next(made.id, by=BOSS, chat=CHAT.id, **asked)
    async with schedule_world(tmp_path) as here:
        views = [
            await here.service.skip_next(made.id, by=BOSS, chat=CHAT.id, **asked) for _ in range(2)
        ]
        assert {view.schedule.next_due for view in views} == {START + timedelta(hours=2)}
        (skipped,) = await here.firings(made)
        assert (skipped.due_at, skipped.state) == (made.next_due, FiringState.SKIPPED)

        later = views[-1].upcoming[0]
        await here.service.skip_next(made.id, by=BOSS, chat=CHAT.id, at=START, due_at=later)
        assert (await here.get(made)).next_due == START + timedelta(hours=3)


@pytest.mark.parametrize("shown", [True, False], ids=["its button", "its command"])
async def test_what_has_fired_meanwhile_is_not_skipped_and_neither_is_the_next(
    tmp_path: Path, shown: bool
) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add()
        here.advance(hours=1)
        await here.firer.run_due()
        with pytest.raises(UserError, match="schedule_passed"):
            await here.service.skip_next(
                made.id,
                by=BOSS,
                chat=CHAT.id,
                at=START,
                due_at=made.next_due if shown else None,
            )
        assert (await here.get(made)).next_due == START + timedelta(hours=2)


async def test_a_deleted_schedule_runs_no_more_in_any_way(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(
            body=JOB, retries=3, retry_delay=timedelta(hours=12), missed=MissedPolicy.ASK
        )
        here.advance(hours=1)
        await here.firer.run_due()
        (failing,) = await here.firings(made)
        await here.firer.settle_task(await _end_task(here, failing, TaskStatus.FAILED))
        here.advance(minutes=-5, hours=5)
        await here.firer.run_due()
        asked = (await here.firings(made))[-1]
        await here.service.delete(made.id, by=BOSS, chat=CHAT.id)

        with pytest.raises(WrongState):
            await here.service.run_now(made.id, by=BOSS, chat=CHAT.id, at=here.time)
        with pytest.raises(WrongState):
            await here.service.decide_missed(asked.id, run=True, by=BOSS, chat=CHAT.id)
        here.advance(days=1)
        await here.firer.run_due()

        assert len(await here.tasks()) == 1
        assert (await here.firings(made))[0].state is FiringState.FAILED


async def test_others_can_neither_see_nor_change_a_schedule(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(body=JOB)
        with pytest.raises(Exception, match=made.id):
            await here.service.pause(made.id, by=MATE, chat=CHAT.id)
        assert await here.service.list(by=MATE, chat=CHAT.id) == []
        assert (await here.get(made)).state is ScheduleState.ACTIVE


async def test_a_time_that_is_over_is_refused_before_and_at_the_confirmation(
    tmp_path: Path,
) -> None:
    async with schedule_world(tmp_path) as here:
        with pytest.raises(UserError, match=r"timing\.past"):
            await here.service.propose(new_schedule(OneTime(at=START - timedelta(minutes=1))))
        asked = await here.service.propose(new_schedule(OneTime(at=START + timedelta(minutes=1))))
        here.advance(hours=1)
        with pytest.raises(UserError, match=r"timing\.past"):
            await here.service.confirm(asked.schedule.id, by=BOSS, chat=CHAT.id)


async def test_proposals_that_nobody_confirms_do_not_count_but_schedules_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.engine.schedule.service.MAX_PER_PERSON", 2)
    async with schedule_world(tmp_path) as here:
        proposed = [await here.service.propose(new_schedule(every(hours=1))) for _ in range(4)]
        for each in proposed[:2]:
            await here.service.confirm(each.schedule.id, by=BOSS, chat=CHAT.id)

        with pytest.raises(UserError, match="schedule_too_many"):
            await here.service.confirm(proposed[2].schedule.id, by=BOSS, chat=CHAT.id)
        with pytest.raises(UserError, match="schedule_too_many"):
            await here.service.propose(new_schedule(every(hours=1)))


async def test_ten_thousand_schedules_that_are_not_due_are_not_read(tmp_path: Path) -> None:
    async with schedule_world(tmp_path) as here:
        made = await here.add(every(hours=1))
        async with here.engine.db.write() as tx:
            row = (await tx.execute(sa.select(schema.schedules))).one()._asdict()
            later = START + timedelta(days=300)
            rows = [
                {**row, "id": f"x{n}", "source": f"x{n}", "next_due": later} for n in range(10_000)
            ]
            await tx.execute(sa.insert(schema.schedules), rows)
        plan = await here.engine.db.fetch_all(
            sa.text(
                "EXPLAIN QUERY PLAN SELECT min(next_due) FROM schedules WHERE next_due IS NOT NULL"
            )
        )
        assert "ix_schedules_due" in str(plan)
        here.advance(hours=1)
        await here.firer.run_due()
        assert len(await here.firings(made)) == 1


@st.composite
def timings(draw: st.DrawFn) -> tuple[Timing, str]:
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Shanghai", "America/New_York"]))
    # The first firing of each is at most a week off.
    days = draw(st.one_of(st.none(), st.integers(8, 60)))
    until = None if days is None else START + timedelta(days=days)
    if draw(st.booleans()):
        minutes = draw(st.integers(20, 900))
        return Interval(every=timedelta(minutes=minutes), start=START, until=until), zone
    minute, hour = draw(st.integers(0, 59)), draw(st.sampled_from(["*", "*/6", "1", "2", "3", "9"]))
    day = draw(st.sampled_from(["*", "1-5", "0"]))
    return CronTiming(expression=f"{minute} {hour} * * {day}", until=until), zone


_STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, 240),
            st.integers(-600, -1),
            st.sampled_from([24 * 60, 3 * 24 * 60, 80 * 24 * 60]),
        ),
        st.one_of(st.none(), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=sampled(60, 10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(timing=timings(), steps=_STEPS, is_job=st.booleans())
def test_each_due_time_fires_once_under_any_clock_and_any_deaths(
    timing: tuple[Timing, str], steps: list[tuple[int, int | None]], is_job: bool
) -> None:
    """The clock goes forward, back and far ahead (over changes of summer time); the process dies
    inside transactions and after commits."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as home:
            async with schedule_world(Path(home)) as here:
                made = await here.add(timing[0], JOB if is_job else None, zone=timing[1])
                latest = here.time
                for minutes, death in steps:
                    here.advance(minutes=minutes)
                    here.poster.death = death
                    with suppress(Death):
                        await here.firer.run_due()
                    here.poster.death = None
                    latest = max(latest, here.time)
                # Alive again, at the latest time that was ever shown.
                here.time = latest
                await here.firer.run_due()
                _check_law(timing, await here.firings(made), latest)
                tasks = await here.tasks()
                started = [each for each in await here.firings(made) if each.task_id]
                assert len(tasks) == len(started), "a task for each run, and no other"

    asyncio.run(run())


def _check_law(timing: tuple[Timing, str], fired: Sequence[Firing], latest: datetime) -> None:
    dues = [each.due_at for each in fired]
    assert len(set(dues)) == len(dues), "no due time fires twice"
    until = None if isinstance(timing[0], OneTime) else timing[0].until
    assert until is None or all(due <= until for due in dues), "nothing fires after the end"
    expected = [
        each
        for each in upcoming(
            timing[0],
            after=START,
            zone=ZoneInfo(timing[1]),
            calendar=WeekdayCalendar(),
            count=8000,
        )
        if each <= latest
    ]
    assert set(dues) <= set(expected), "nothing fires that is not due"
    by_due = {each.due_at: each for each in fired}
    for due in expected:
        if due not in by_due:
            newer = [each for each in fired if each.due_at > due]
            assert any(each.fired_at - due > MISSED_AFTER for each in newer), f"{due} is lost"


async def _end_task(here: ScheduleWorld, fired: Firing, status: TaskStatus) -> Task:
    assert fired.task_id is not None
    async with here.engine.db.write() as tx:
        task = await here.engine.store.tasks.lock(tx, fired.task_id)
        return await here.engine.store.tasks.update(tx, task, status=status, status_reason="why")


def _event(task: Task, kind: EventKind) -> TaskEvent:
    return TaskEvent(id=1, task_id=task.id, kind=kind, text="", at=START)
