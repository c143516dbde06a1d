"""How many calls the Bitable costs, and whether it is still equal after edits and deaths."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from bot.sync.service import TICK
from bot.transports.quota import QuotaLevel
from tests.bot.sync.soak import Soak
from tests.bot.sync.world import OWNER, SyncWorld, sync_world

_SEED = 18
_EDITS = 2000


async def measure_calls(scale: Scale) -> list[Measurement]:
    """People and the chat change titles, states, priorities and instructions of tasks, write rows
    and logs, and announcements come for each change in the table. Either all change at once
    and then rest, a hundred changes long, as after a meeting; or they change something every
    quarter of a second, collected for four seconds, or for ten while less than half of the month's
    calls are left. All calls that read or write rows count. What arrives within four seconds takes
    up to four calls (read what people changed, write changes, make tasks, make logs); a single
    change is one call, and cannot be less while it must be out within five seconds.
    """
    async with _open_world() as world:
        meeting = await _calls_per_hundred(world, scale.pick(10, 1), at_once=100)
        steady = await _calls_per_hundred(world, scale.pick(25, 2), at_once=round(4 * TICK))
        thin = QuotaLevel.THIN.edit_factor or TICK
        scarce = await _calls_per_hundred(
            world, scale.pick(10, 1), at_once=round(4 * thin), tick=thin
        )
    return [
        Figure("calls per 100 changes, a hundred at once", meeting, bar=at_most(12)),
        Figure("calls per 100 changes, four each second", steady),
        Figure(
            "calls per 100 changes, four each second, less than half of the calls left",
            scarce,
            bar=at_most(12),
        ),
    ]


async def measure_equality(scale: Scale) -> list[Measurement]:
    """Two thousand random edits on both sides: tasks, rows, states, titles, instructions, columns
    that nobody may change, copies, deletions, also by a stranger, some without an announcement. The
    synchronisation dies at random between any two writes, on every seventh edit on average, and
    continues with what is stored. At the end both sides come to rest, and every task, cell and log
    is compared.
    """
    async with _open_world() as world:
        soak = Soak(world, random.Random(_SEED))
        await soak.run(scale.pick(_EDITS, 20))
        found = await soak.differences()
    return [
        Figure("edits", soak.edits),
        Figure("deaths", soak.killed),
        Figure("rows written by people that became tasks", len(soak.written)),
        Figure(
            "cells, rows and tasks that differ, are lost or doubled", len(found), bar=at_most(0)
        ),
    ]


async def _calls_per_hundred(
    world: SyncWorld, rounds: int, *, at_once: int, tick: float = TICK
) -> float:
    soak = Soak(world, random.Random(_SEED), deaths=False, told=1.0)
    await world.settle()
    world.tables.calls.clear()
    for number in range(rounds):
        await soak.edit(at_once, first=number * at_once)
        # Two rounds of the loop: the orders of people are carried out in between.
        for _ in range(2 if at_once == 100 else 1):
            world.clock.moved += timedelta(seconds=tick)
            await world.sync.cycle()
            await world.handle_messages()
    for _ in range(4):
        world.clock.moved += timedelta(seconds=tick)
        await world.sync.cycle()
    return 100 * sum(world.tables.calls.values()) / (rounds * at_once)


@asynccontextmanager
async def _open_world() -> AsyncIterator[SyncWorld]:
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ.clear()
        os.environ |= {
            "PATH": before["PATH"],
            "SHIFTBOSS_HOME": str(home),
            "SHIFTBOSS_OWNERS": f"feishu:{OWNER}",
            "SHIFTBOSS_LANGUAGE": "en",
        }
        try:
            async with sync_world(home) as world:
                yield world
        finally:
            os.environ.clear()
            os.environ |= before
