"""The machine's clock is set back or forward while the program is dead: work goes on, or is
offered, and nothing waits for a time that has been."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.boss import Boss
from tests.chaos.fronts import front
from tests.chaos.telling import deadly
from tests.journeys.program import Program
from tests.thorough import long

_PATIENCE = 60.0


@asynccontextmanager
async def at_work(home: Path) -> AsyncGenerator[tuple[Boss, Program, str], None]:
    """A task is in the middle of a step."""
    async with front("web") as page:
        program = deadly(home, page, SHIFTBOSS_OFFER_AFTER_HOURS="2")
        page.meets(program)
        try:
            await program.start()
            boss = Boss(front=page, home=home)
            async with asyncio.timeout(_PATIENCE):
                order = 'wait 2 seconds, then write "x" to x.txt'
                task_id = await boss.runs(order, status="running")
                await boss.until("SELECT 1 FROM node_runs WHERE status='running' AND path='s1'")
                yield boss, program, task_id
            assert await program.stop() == 0
            assert "Traceback" not in program.text
        finally:
            await program.end()


async def restarted(program: Program, hours: float) -> None:
    await program.kill()
    program.settings = {**program.settings, "DEADLY_CLOCK": str(hours)}
    await program.start()


async def test_work_goes_on_where_the_clock_was_set_back(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (boss, program, task_id):
        await boss.runs('write "y" to y.txt')
        await restarted(program, -26)
        assert await boss.is_now(task_id, "completed", "paused", "blocked") == "completed"
        later = await boss.runs('write "z" to z.txt')
        await boss.is_now(later, "completed")
        await boss.orders("/list")
        await boss.until(
            "SELECT 1 WHERE (SELECT count(*) FROM tasks WHERE status = 'completed') = 3"
            " AND NOT EXISTS (SELECT 1 FROM outbox WHERE state <> 'shown')"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE told_at IS NULL)"
        )


@long
async def test_work_interrupted_long_ago_by_the_clock_is_offered_and_taken_up(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as (boss, program, task_id):
        await restarted(program, 3)
        await boss.is_now(task_id, "paused")
        await boss.orders(f"/resume {task_id}")
        await boss.is_now(task_id, "completed")
        assert (next((tmp_path / "work").glob("*/x.txt"))).read_text().strip() == "x"
