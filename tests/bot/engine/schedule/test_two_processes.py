"""Two processes work on one table of due times, and one of them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from storage.records.schedules import FiringState, ScheduleId, TaskBody
from tests.bot.engine.schedule.schedule_world import every, schedule_world
from tests.engine_harness import START

COUNT = 8
END = START + timedelta(minutes=COUNT)
HALT = START + timedelta(minutes=2)


def test_two_processes_and_a_kill_fire_each_due_time_exactly_once(tmp_path: Path) -> None:
    minutes = asyncio.run(_plan(tmp_path))
    alive, lives = os.pipe()
    killed = _fork(tmp_path, kill_at=14)
    os.close(lives)
    other = _fork(tmp_path, pause=lambda: os.read(alive, 1))
    os.close(alive)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -signal.SIGKILL
    again = _fork(tmp_path)
    for child in (other, again):
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    asyncio.run(_check(tmp_path, minutes))


async def _plan(home: Path) -> list[ScheduleId]:
    """Two reminders and a job, each minute."""
    async with schedule_world(home) as here:
        bodies = (None, None, TaskBody(instruction="Send the news"))
        made = [await here.add(every(minutes=1), body) for body in bodies]
        return [each.id for each in made]


def _fork(
    home: Path, *, kill_at: int | None = None, pause: Callable[[], object] | None = None
) -> int:
    """A process that fires all that is due until the end; its id. At HALT it calls `pause`: the
    other one is to have enough left to die of, on a machine that gives it no time before."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.run(_fire_all(home, kill_at, pause))
            status = 0
        finally:
            os._exit(status)
    return child


async def _fire_all(home: Path, kill_at: int | None, pause: Callable[[], object] | None) -> None:
    async with schedule_world(home) as here, AsyncExitStack() as stack:
        here.poster.death = kill_at
        here.poster.die = lambda: os.kill(os.getpid(), signal.SIGKILL)
        await here.firer.start(stack)
        while (due := await here.firer.next_due()) is not None and due <= END:
            if pause is not None and due > HALT:
                pause()
                pause = None
            here.time = due
            await here.firer.run_due()


async def _check(home: Path, ids: list[ScheduleId]) -> None:
    async with schedule_world(home) as here:
        for schedule_id in ids:
            fired = [*reversed(await here.schedules.list_firings(schedule_id, 1000))]
            assert [each.due_at for each in fired] == [
                START + timedelta(minutes=n) for n in range(1, COUNT + 1)
            ]
            for each in fired:
                sent = each.state is FiringState.SENT
                assert await here.poster.has(f"firing:{each.id}") is sent
        assert len(await here.tasks()) == 1, "one run of the job, which has not ended"
