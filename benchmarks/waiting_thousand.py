"""Memory, coroutines and slots held by a thousand tasks that wait for a person."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.engine_runs import InstantBackend, run_core
from benchmarks.figures import Figure, Measurement, Scale, at_least, at_most
from benchmarks.measurements import resident_mib
from storage.records.tasks import TaskPriority, TaskStatus
from tests.engine_harness import EngineHarness

_WARM_UP = 150
_WAITING = 1_000
_PATIENCE_SECONDS = 240.0
_MB = 1024 * 1024 / 1e6


async def measure(scale: Scale) -> list[Measurement]:
    """Each task is planned, asks for approval before its first step, and waits. The first 150 only
    warm the process up; the figures are the growth by the next thousand. They are measured in a
    process of their own, because memory that others have freed would hide the growth. A task that
    comes later must still run to its end."""
    waiting = scale.pick(_WAITING, 3)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.waiting_thousand", scale, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    memory, coroutines, slots, completed = json.loads(told)
    return [
        Figure(f"resident memory of {waiting:,} waiting tasks", memory, "MB", at_most(5)),
        Figure("coroutines they hold", coroutines, "", at_most(0)),
        Figure("slots they hold", slots, "", at_most(0)),
        Figure("later tasks completed, of 1", completed, "", at_least(1)),
    ]


async def _measure(scale: Scale) -> tuple[float, int, int, int]:
    worker = InstantBackend(titles=_titles)
    with tempfile.TemporaryDirectory() as folder:
        async with run_core(Path(folder), worker, slots=3) as world:
            await _wait_for_people(world, scale.pick(_WARM_UP, 1))
            before, coroutines = await _settled()
            await _wait_for_people(world, scale.pick(_WAITING, 3))
            after, left = await _settled()
            late = await world.create_task("Count the chairs", priority=TaskPriority.NORMAL)
            view = await world.until(late)
            running = (await world.store.tasks.count_by_status()).get(TaskStatus.RUNNING, 0)
    completed = int(view.task.status is TaskStatus.COMPLETED)
    return after - before, left - coroutines, running, completed


def _titles(task: str) -> tuple[str, ...]:
    return ("Deploy to production",) if "release" in task else ("do it",)


async def _wait_for_people(world: EngineHarness, count: int) -> None:
    before = await _count_waiting(world)
    for n in range(count):
        await world.create_task(f"Make the release {n} of {before}")
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await _count_waiting(world) < before + count:
            await asyncio.sleep(0.1)
        while await world.store.events.list_unnotified(1):
            await asyncio.sleep(0.1)


async def _count_waiting(world: EngineHarness) -> int:
    return (await world.store.tasks.count_by_status()).get(TaskStatus.WAITING, 0)


async def _settled() -> tuple[float, int]:
    """Resident megabytes and tasks on the loop, after all free memory has been given back."""
    await asyncio.sleep(0.5)
    gc.collect()
    return resident_mib(os.getpid()) * _MB, len(asyncio.all_tasks())


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(Scale(sys.argv[1])))))
