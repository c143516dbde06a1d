"""Drive: its goals, its budget, and the tasks it makes for serious problems."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.engine.autonomy.drive import GOALS, DriveBudget, DriveService, ProblemDiagnosis
from bot.engine.schedule.builtin import BuiltinSchedules
from bot.engine.schedule.firing import DueTimes, ServiceFailure
from bot.engine.timing import DayHours, WeekdayCalendar
from storage.ids import IdGenerator
from storage.records.autonomy import GoalName, GoalState
from storage.records.people import Chat, ChatId, Language, PersonId
from storage.records.tasks import NewTask, Task, TaskPriority, TaskStatus
from storage.records.usage import SpendingCap, parse_cap
from storage.schedules import ScheduleRepo
from storage.usage import UsageRepo
from tests.bot.engine.autonomy.self_check_world import LOW, STUCK, SelfCheckWorld, self_check_world
from tests.engine_harness import BOSS, CHAT

CAP = "1 USD"
SERIOUS = replace(STUCK, repair="")


@dataclass
class DriveWorld:
    checks: SelfCheckWorld
    cap: str = CAP
    has_model: bool = True
    cleaned: int = 0
    wakes: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        return self.checks.time

    @property
    def budget(self) -> DriveBudget:
        db = self.checks.engine.db
        return DriveBudget(
            cap=lambda: parse_cap(self.cap),
            tasks=self.checks.engine.store.tasks,
            usage=UsageRepo(db),
            zone=ZoneInfo("UTC"),
            now=self.now,
        )

    @property
    def diagnosis(self) -> ProblemDiagnosis:
        async def report_to() -> tuple[Chat, Language]:
            return CHAT, Language.CHINESE

        return ProblemDiagnosis(
            self_check=self.checks.service(),
            repo=self.checks.repo,
            db=self.checks.engine.db,
            budget=self.budget,
            report_to=report_to,
            can_work=lambda: self.has_model,
            create_task=self.checks.engine.tasks.create_within,
            on_task=lambda: self.wakes.append("task"),
        )

    async def look_into_problems(self) -> None:
        """The goal, with the self-check running as in the program."""
        diagnosis = self.diagnosis
        async with AsyncExitStack() as stack:
            await diagnosis.self_check.start(stack)
            await diagnosis()

    async def clean_up(self) -> None:
        self.cleaned += 1

    @property
    def drive(self) -> DriveService:
        """As after a start of the program."""
        runs = {GoalName.HEALTH_CHECK: self.look_into_problems, GoalName.CLEANUP: self.clean_up}
        schedules = ScheduleRepo(self.checks.engine.db)
        night = DayHours(
            start=time(12),
            end=time(15),
            zone=ZoneInfo("UTC"),
        )

        async def anchor() -> tuple[PersonId, ChatId]:
            return BOSS.id, CHAT.id

        return DriveService(
            runs=runs,
            builtin=BuiltinSchedules(
                db=self.checks.engine.db,
                schedules=schedules,
                due_times=DueTimes(calendar=WeekdayCalendar(), quiet_hours=night),
                wanted=[each.schedule for each in GOALS if each.name in runs],
                get_anchor=anchor,
                zone="UTC",
                now=self.now,
                new_id=IdGenerator().short_id,
                on_change=lambda: None,
            ),
            schedules=schedules,
            budget=self.budget,
            tasks=self.checks.engine.store.tasks,
        )

    async def restart(self) -> DriveService:
        drive = self.drive
        async with AsyncExitStack() as stack:
            await drive.builtin.start(stack)
        return drive

    async def made(self) -> list[Task]:
        return [*await self.checks.engine.store.tasks.list_by_source("self-drive:")]


@asynccontextmanager
async def drive_world(home: Path) -> AsyncGenerator[DriveWorld, None]:
    async with self_check_world(home) as checks:
        yield DriveWorld(checks=checks)


async def states(drive: DriveService) -> dict[GoalName, GoalState]:
    return {each.name: each.state for each in (await drive.get_status()).goals}


async def test_goals_begin_as_they_should_and_wait_for_the_end_of_quiet_hours(
    tmp_path: Path,
) -> None:
    async with drive_world(tmp_path) as world:
        drive = await world.restart()

        assert await states(drive) == {
            GoalName.HEALTH_CHECK: GoalState.ON,
            GoalName.EVOLVE: GoalState.UNAVAILABLE,
            GoalName.CLEANUP: GoalState.DISABLED,
        }
        health = (await drive.get_status()).goals[0]
        # Four hours from 9:00 are within the quiet hours.
        assert health.next_due is not None
        assert (health.next_due.hour, health.next_due.minute) == (15, 0)
        assert {*drive.services} == {"goal:health-check", "goal:cleanup"}


async def test_a_stop_lasts_until_the_next_start_and_a_disabled_goal_stays_off(
    tmp_path: Path,
) -> None:
    async with drive_world(tmp_path) as world:
        drive = await world.restart()
        await drive.stop()
        stopped = await states(drive)
        await drive.start()
        started = await states(drive)

        await drive.stop()
        after_restart = await states(await world.restart())
        await drive.stop()
        await drive.disable(GoalName.HEALTH_CHECK)
        await drive.start()
        disabled = await states(await world.restart())

        assert stopped[GoalName.HEALTH_CHECK] is GoalState.STOPPED
        assert started[GoalName.HEALTH_CHECK] is GoalState.ON
        assert after_restart[GoalName.HEALTH_CHECK] is GoalState.ON
        assert disabled[GoalName.HEALTH_CHECK] is GoalState.DISABLED


async def test_a_goal_that_is_enabled_while_drive_is_stopped_waits_for_the_start(
    tmp_path: Path,
) -> None:
    async with drive_world(tmp_path) as world:
        drive = await world.restart()
        await drive.stop()
        await drive.enable(GoalName.CLEANUP)
        waiting = await states(drive)
        await drive.start()

        assert waiting[GoalName.CLEANUP] is GoalState.STOPPED
        assert (await states(drive))[GoalName.CLEANUP] is GoalState.ON


async def test_serious_problems_are_explained_by_one_task_for_the_owner(tmp_path: Path) -> None:
    async with drive_world(tmp_path) as world:
        world.checks.check.findings = [SERIOUS, LOW]

        await world.look_into_problems()
        await world.look_into_problems()

        (task,) = await world.made()
        assert task.title.startswith("[自驱]")
        assert (task.chat_id, task.created_by) == (CHAT.id, BOSS.id)
        assert (task.priority, task.use_memory) == (TaskPriority.NORMAL, False)
        assert "队列停住了" in task.instruction
        assert "磁盘" not in task.instruction, "the lesser problem is not worth money"
        assert parse_cap(task.cap) == parse_cap(CAP)
        assert world.wakes == ["task"]


async def test_no_task_is_made_without_a_model_or_a_serious_problem(tmp_path: Path) -> None:
    async with drive_world(tmp_path) as world:
        world.checks.check.findings = [LOW]
        await world.look_into_problems()
        world.checks.check.findings, world.has_model = [SERIOUS], False
        await world.look_into_problems()

        assert await world.made() == []


async def test_tasks_stay_within_the_budget_of_the_day(tmp_path: Path) -> None:
    """An open one counts with its cap; the next day begins anew."""
    async with drive_world(tmp_path) as world:
        world.checks.check.findings = [SERIOUS]
        first = await spend(world, "0.96 USD")
        world.checks.time += timedelta(minutes=1)

        with pytest.raises(ServiceFailure, match="no_budget"):
            await world.look_into_problems()
        used = await world.budget.get_used()
        world.checks.time += timedelta(days=1)
        await world.look_into_problems()

        assert first.status is TaskStatus.PENDING
        assert used == SpendingCap(micros=960_000)
        assert len(await world.made()) == 2


async def test_what_is_left_of_the_budget_is_the_cap_of_the_next_task(tmp_path: Path) -> None:
    async with drive_world(tmp_path) as world:
        world.cap = "1 USD, 50k tokens"
        await spend(world, "0.25 USD, 10k tokens")

        assert parse_cap(await world.budget.get_task_cap()) == SpendingCap(
            micros=750_000, tokens=40_000
        )
        world.cap = ""
        assert await world.budget.get_task_cap() == ""


async def spend(world: DriveWorld, cap: str) -> Task:
    """A task of drive that has not ended."""
    engine = world.checks.engine
    new = NewTask(
        title="[self] x",
        instruction="x",
        priority=TaskPriority.NORMAL,
        chat_id=CHAT.id,
        created_by=BOSS.id,
        source="self-drive:0",
        cap=cap,
    )
    async with engine.db.write() as tx:
        return await engine.tasks.create_within(tx, new)
