"""Several people at once, work that cuts in, a platform that is tired, and a program that is
killed at random moments: what the same seed does again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from storage.records.tasks import TaskPriority
from tests.chaos.channels import ChannelClient, ChannelName, open_channel
from tests.chaos.inspection import read_points, rows
from tests.chaos.invariants import (
    FinishedRun,
    chats_caught_up,
    count_repeats,
    unsettled,
    violations,
)
from tests.chaos.skipped_messages import resend_skipped, rightly_skipped
from tests.chaos.story_run import StoryResult, crashing_program, tracebacks
from tests.chaos.workers.random_load import ASKED, allow_all, is_helped, task_of, text_of, work_of
from tests.emulators.models.emulator import ModelEmulator
from tests.journeys.model_world import model_settings
from tests.journeys.program import ShiftbossProcess
from tests.journeys.program_store import copy_home

_LOOK_EVERY = 0.05
_PATIENCE = 240.0
_FOR_EACH_KILL = 45.0
_LONGEST_LIFE = 1.2
_PAUSE = 0.4
_CATCHING_UP = 60.0
_SLOTS = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomLoad:
    """`tasks` orders by chance, while the program is killed `kills` times; `mischief` lets the
    platform break connections, ask for patience, and deliver again. With `workers` the tasks are
    done by a model that calls tools, some with leave, and sends off helpers."""

    seed: int
    tasks: int
    kills: int
    mischief: bool = True
    workers: bool = False


async def run_random_load(
    home: Path, load: RandomLoad, name: ChannelName, *, template: Path | None = None
) -> StoryResult:
    """Live through it, then let everything come to its end, and look at what is left."""
    if template is not None:
        copy_home(template, home)
    told = StoryResult(story=f"load {load.seed}", channel=name)
    async with (
        open_channel(name) as channel,
        ModelEmulator() as models,
        _helpful_users(home, channel, load),
    ):
        models.replies(work_of(load.seed))
        settings = {**model_settings(models, "anthropic"), **ASKED} if load.workers else {}
        program = crashing_program(home, channel, SHIFTBOSS_SLOTS=_SLOTS, **settings)
        channel.attach(program)
        ended = _ended(home, channel, load)
        try:
            try:
                async with asyncio.timeout(_PATIENCE + _FOR_EACH_KILL * load.kills):
                    await _crash_repeatedly(program, channel, load, told)
                    await _wait_until_settled(home, channel, ended)
            except TimeoutError:
                told.violations.append(f"stuck: {'; '.join(unsettled(home, ended.ends))[:600]}")
            if (status := await program.stop()) != 0:
                told.violations.append(f"it ended with status {status}")
            told.points, told.output = read_points(home), program.printed
            told.repeats = count_repeats(channel)
            told.skipped = len(rightly_skipped(home, told.points))
            told.violations += [
                *violations(_ended(home, channel, load)),
                *tracebacks(program.printed),
            ]
            told.violations += [f"the model refused: {each.message}" for each in models.refused]
        finally:
            await program.kill_if_running()
    return told


@asynccontextmanager
async def _helpful_users(
    home: Path, channel: ChannelClient, load: RandomLoad
) -> AsyncGenerator[None, None]:
    """Somebody who says again what was given up, and allows whatever is asked."""
    works = [resend_skipped(channel, home), *([allow_all(home, channel)] if load.workers else [])]
    clerks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for clerk in clerks:
            clerk.cancel()
        await asyncio.gather(*clerks, return_exceptions=True)


async def _crash_repeatedly(
    program: ShiftbossProcess, channel: ChannelClient, load: RandomLoad, told: StoryResult
) -> None:
    await program.start()
    people = asyncio.create_task(_send_orders(channel, program.home, load))
    fate = random.Random(load.seed)
    try:
        while told.deaths < load.kills or not people.done():
            if told.deaths >= load.kills:
                await people
                break
            await asyncio.sleep(fate.uniform(0, _LONGEST_LIFE))
            await program.kill()
            told.deaths += 1
            if fate.randrange(5):
                await program.start()
            else:
                # The next death may come in the middle of the start.
                starting = asyncio.create_task(program.start())
                await asyncio.sleep(fate.uniform(0, 1))
                await program.kill()
                told.deaths += 1
                with suppress(AssertionError):
                    await starting
                # It may not even have been there to be killed.
                await program.kill()
                await program.start()
    finally:
        people.cancel()
        await asyncio.gather(people, return_exceptions=True)


async def _send_orders(channel: ChannelClient, home: Path, load: RandomLoad) -> None:
    chance = random.Random(-load.seed)
    for number in range(load.tasks):
        if load.workers:
            await channel.send_message(task_of(number, chance))
        else:
            await channel.send_message(_task(number, chance), room=chance.randrange(channel.rooms))
        await asyncio.sleep(chance.uniform(0, _PAUSE))
        if number % 3 == 2:
            await _send_control_command(channel, home, chance)
        if load.mischief and number % 2:
            channel.misbehave(chance.randrange)


async def _send_control_command(channel: ChannelClient, home: Path, chance: random.Random) -> None:
    tasks = [task_id for (task_id,) in rows(home, "SELECT id FROM tasks ORDER BY created_at")]
    if not tasks:
        return
    task_id, priority = chance.choice(tasks), chance.choice(list(TaskPriority))
    order = chance.choice((f"/pause {task_id}", f"/priority {task_id} {priority}", "/list"))
    await channel.send_message(order)


def _task(number: int, chance: random.Random) -> str:
    steps = [f'write "{number}" to {_file(number)}', "wait 0.3 seconds", "wait 0.2 seconds"]
    chance.shuffle(steps)
    return f"/run -p {chance.choice(list(TaskPriority))} {', then '.join(steps)}"


async def _wait_until_settled(home: Path, channel: ChannelClient, ended: FinishedRun) -> None:
    """Who was paused is resumed, once each time; then everything ends by itself."""
    resumed: set[tuple[str, int]] = set()
    while unsettled(home, ended.ends) or channel.count_unacknowledged():
        for task_id, epoch in rows(home, "SELECT id, epoch FROM tasks WHERE status = 'paused'"):
            if (task_id, epoch) not in resumed:
                resumed.add((task_id, epoch))
                await channel.send_message(f"/resume {task_id}")
        await asyncio.sleep(_LOOK_EVERY)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CATCHING_UP):
            while not chats_caught_up(ended):
                await asyncio.sleep(_LOOK_EVERY)


def _ended(home: Path, channel: ChannelClient, load: RandomLoad) -> FinishedRun:
    text = text_of if load.workers else str
    helped = [number for number in range(load.tasks) if load.workers and is_helped(number)]
    return FinishedRun(
        home=home,
        front=channel,
        points=read_points(home),
        ends={f" {_file(number)}": ("completed",) for number in range(load.tasks)},
        unsure=frozenset(_file(number) for number in helped),
        files={_file(number): text(number) for number in range(load.tasks)},
        # kill -9 from outside leaves no line of its own.
        troubled=True,
    )


def _file(number: int) -> str:
    return f"file-{number}.txt"
