"""A thousand tasks that wait for a person: what they hold in memory, on the loop and of slots."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.core import Worker, core
from benchmarks.figures import held, resident_mib
from storage.records.tasks import Priority, TaskStatus
from tests.engine_world import Engine

_FIRST = 150
_THOUSAND = 1_000
_BAR = 5.0
_PATIENCE = 240.0
_MB = 1024 * 1024 / 1e6


async def measure() -> list[str]:
    """In a process of its own: the memory that others have freed would hide what it takes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.waiting_thousand", stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode().splitlines()


async def _measure() -> list[str]:
    """Each is planned, its step asks before it begins, and it waits; the first of them only warm
    up what the process keeps anyhow."""
    worker = Worker(titles=_titles)
    with tempfile.TemporaryDirectory() as folder:
        async with core(Path(folder), worker, slots=3) as world:
            await _wait_for_people(world, _FIRST)
            before, coroutines = await _still()
            await _wait_for_people(world, _THOUSAND)
            after, left = await _still()
            late = await world.add("Count the chairs", priority=Priority.NORMAL)
            view = await world.until(late)
            running = (await world.store.tasks.counts()).get(TaskStatus.RUNNING, 0)
    return [
        held(f"{_THOUSAND:,} waiting tasks, resident memory", after - before, "MB more", _BAR),
        held("coroutines they hold", left - coroutines, "", 0),
        held("slots they hold", running, "", 0),
        f"work that came later was {view.task.status}; load {os.getloadavg()[0]:.1f}",
    ]


def _titles(task: str) -> tuple[str, ...]:
    return ("Deploy to production",) if "release" in task else ("do it",)


async def _wait_for_people(world: Engine, count: int) -> None:
    before = (await world.store.tasks.counts()).get(TaskStatus.WAITING, 0)
    for n in range(count):
        await world.add(f"Make the release {n} of {before}")
    async with asyncio.timeout(_PATIENCE):
        while (await world.store.tasks.counts()).get(TaskStatus.WAITING, 0) < before + count:
            await asyncio.sleep(0.1)
        while await world.store.journal.untold(1):
            await asyncio.sleep(0.1)


async def _still() -> tuple[float, int]:
    """Megabytes resident and tasks on the loop, with all that is free given back."""
    await asyncio.sleep(0.5)
    gc.collect()
    return resident_mib(os.getpid()) * _MB, len(asyncio.all_tasks())


if __name__ == "__main__":
    print("\n".join(asyncio.run(_measure())))
