"""The machine's clock is set back or forward while the program is dead: work goes on, or is
offered, and nothing waits for a time that has been."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.channels import open_channel
from tests.chaos.story import ScriptedUser
from tests.chaos.story_run import crashing_program
from tests.journeys.program import ShiftbossProcess
from tests.thoroughness import thorough_only
from tests.waiting import WAIT_SECONDS


@asynccontextmanager
async def at_work(home: Path) -> AsyncGenerator[tuple[ScriptedUser, ShiftbossProcess, str], None]:
    """A task is in the middle of a step."""
    async with open_channel("web") as page:
        program = crashing_program(home, page, SHIFTBOSS_OFFER_AFTER_HOURS="2")
        page.attach(program)
        try:
            await program.start()
            boss = ScriptedUser(channel=page, home=home)
            async with asyncio.timeout(WAIT_SECONDS):
                order = 'wait 2 seconds, then write "x" to x.txt'
                task_id = await boss.start_task(order, status="running")
                await boss.wait_for_row(
                    "SELECT 1 FROM node_runs WHERE status='running' AND path='s1'"
                )
                yield boss, program, task_id
            assert await program.stop() == 0
            assert "Traceback" not in program.printed
        finally:
            await program.kill_if_running()


async def restarted(program: ShiftbossProcess, hours: float) -> None:
    await program.kill()
    program.settings = {**program.settings, "DEADLY_CLOCK": str(hours)}
    await program.start()


async def test_tasks_continue_after_the_clock_is_set_back(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (boss, program, task_id):
        await boss.start_task('write "y" to y.txt')
        await restarted(program, -26)
        assert await boss.wait_for_status(task_id, "completed", "paused", "blocked") == "completed"
        later = await boss.start_task('write "z" to z.txt')
        await boss.wait_for_status(later, "completed")
        await boss.send_command("/list")
        await boss.wait_for_row(
            "SELECT 1 WHERE (SELECT count(*) FROM tasks WHERE status = 'completed') = 3"
            " AND NOT EXISTS (SELECT 1 FROM outbox WHERE state <> 'shown')"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE told_at IS NULL)"
        )


@thorough_only
async def test_a_task_interrupted_long_ago_is_offered_and_resumed(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as (boss, program, task_id):
        await restarted(program, 3)
        await boss.wait_for_status(task_id, "paused")
        await boss.send_command(f"/resume {task_id}")
        await boss.wait_for_status(task_id, "completed")
        assert (next((tmp_path / "work").glob("*/x.txt"))).read_text().strip() == "x"
