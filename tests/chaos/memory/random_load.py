"""Many things told, written by hand, forgotten and edited in files at once, while the program is
killed at random moments: what the same seed does again."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.channels import ChannelClient, ChannelName, open_channel
from tests.chaos.inspection import read_points, rows
from tests.chaos.invariants import (
    FinishedRun,
    chats_caught_up,
    count_repeats,
    unsettled,
    violations,
)
from tests.chaos.memory.ingestion_stories import AT_ONCE
from tests.chaos.memory.invariants import unsettled_memory
from tests.chaos.memory.scripted_model import ExtractedFact, ScriptedMemoryModel
from tests.chaos.skipped_messages import resend_skipped, rightly_skipped
from tests.chaos.story_run import StoryResult, crashing_program, tracebacks
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.journeys.model_world import model_settings
from tests.journeys.program import ShiftbossProcess
from tests.journeys.program_store import copy_home

_LOOK_EVERY = 0.05
_PATIENCE = 240.0
_FOR_EACH_KILL = 45.0
_LONGEST_LIFE = 2.5
_PAUSE = 0.5
_CATCHING_UP = 60.0
_TOLD = re.compile(r"item(\d+)")
_ENDS = "<!-- shiftboss: end"
# A store that is held this instant shows nothing at all: it has to be there.
_ANSWERED = (
    "SELECT 1 FROM inbox WHERE state = 'handled' AND json_extract(incoming, '$.text') = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE state = 'new')"
)


@dataclass(slots=True)
class MemoryActs:
    """The Boss's actions, whose results must exist in the end."""

    told: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)

    def missed(self, home: Path) -> Iterator[str]:
        there = rows(home, "SELECT text, kind FROM memories WHERE state = 'active'")
        texts = [text for text, kind in there if kind != "cell"]
        for text in (self.told | self.written) - self.forgotten:
            if (n := texts.count(text)) != 1:
                yield f"{text!r} is there {n} times"
        for text in self.forgotten:
            if any(text == each for each, _ in there):
                yield f"{text!r} was forgotten and is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLoad:
    """`acts` by chance, while the program is killed `kills` times."""

    seed: int
    acts: int
    kills: int


def _noted(number: object) -> str:
    return f"item{number} has shelf{number} of hall{number}"


def _answer(asked: ReceivedRequest) -> ScriptedReply:
    numbers = dict.fromkeys(_TOLD.findall(asked.last_text))
    facts = [
        ExtractedFact(cue=f"item{n} ", text=_noted(n), topic=f"item {n}", category="entities")
        for n in numbers
    ]
    return ScriptedMemoryModel(drawn=facts)(asked)


async def run_memory_load(
    home: Path, load: MemoryLoad, name: ChannelName, *, template: Path
) -> StoryResult:
    """Live through it, then let everything come to its end, and look at what is left."""
    copy_home(template, home)
    told = StoryResult(story=f"memory {load.seed}", channel=name)
    boss = MemoryActs()
    async with open_channel(name) as channel, ModelEmulator() as models:
        models.replies(_answer)
        settings = {**model_settings(models, "anthropic"), "SHIFTBOSS_MEMORY": AT_ONCE}
        program = crashing_program(home, channel, **settings)
        channel.attach(program)
        patient = asyncio.create_task(resend_skipped(channel, home))
        try:
            try:
                async with asyncio.timeout(_PATIENCE + _FOR_EACH_KILL * load.kills):
                    await _rage(program, channel, load, boss, told)
                    await _calm_down(home, channel)
            except TimeoutError:
                left = [*unsettled(home, {}), *unsettled_memory(home)]
                told.violations.append(f"stuck: {'; '.join(left)[:600]}")
            if (status := await program.stop()) != 0:
                told.violations.append(f"it ended with status {status}")
            told.points, told.output = read_points(home), program.printed
            told.repeats = count_repeats(channel)
            told.skipped = len(rightly_skipped(home, told.points))
            told.violations += [*violations(_ended(home, channel)), *unsettled_memory(home)]
            told.violations += [*boss.missed(home), *tracebacks(program.printed)]
            told.violations += [f"the model refused: {each.message}" for each in models.refused]
        finally:
            patient.cancel()
            await asyncio.gather(patient, return_exceptions=True)
            await program.kill_if_running()
    return told


async def _rage(
    program: ShiftbossProcess,
    channel: ChannelClient,
    load: MemoryLoad,
    boss: MemoryActs,
    told: StoryResult,
) -> None:
    await program.start()
    life = asyncio.create_task(_live(channel, program.home, load, boss))
    fate = random.Random(load.seed)
    try:
        while told.deaths < load.kills:
            await asyncio.sleep(fate.uniform(0, _LONGEST_LIFE))
            await program.kill()
            told.deaths += 1
            if fate.randrange(5) == 0:
                # The next death comes in the middle of the start.
                starting = asyncio.create_task(program.start())
                await asyncio.sleep(fate.uniform(0.2, 1.2))
                with suppress(AssertionError):
                    await program.kill()
                    told.deaths += 1
                    await starting
                await program.kill_if_running()
            await program.start()
        await life
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def _live(channel: ChannelClient, home: Path, load: MemoryLoad, boss: MemoryActs) -> None:
    chance, said = random.Random(-load.seed), ""
    for number in range(load.acts):
        match chance.randrange(6):
            case 0 | 1:
                # What is said right behind it would cut its answer short.
                while (said and not rows(home, _ANSWERED, said)) or channel.count_unacknowledged():
                    await asyncio.sleep(_LOOK_EVERY)
                boss.told.add(_noted(number))
                said = f"From now on: {_noted(number)}"
                await channel.send_message(said)
            case 2:
                boss.written.add(f"note {number} by hand")
                await channel.send_message(f"/memory add note {number} by hand")
            case 3:
                _edit_file(home, number, boss)
            case 4:
                if found := _loose(home, boss, chance):
                    boss.forgotten.add(found[1])
                    await channel.send_message(f"/memory forget {found[0]}")
            case _:
                if found := _loose(home, boss, chance):
                    boss.forgotten.add(found[1])
                    boss.written.add(f"note {number} is edited")
                    await channel.send_message(f"/memory edit {found[0]} note {number} is edited")
        await asyncio.sleep(chance.uniform(0, _PAUSE))


def _loose(home: Path, boss: MemoryActs, chance: random.Random) -> tuple[str, str] | None:
    """Something that was written by hand and that nothing has happened to yet."""
    sql = "SELECT id, text FROM memories WHERE kind = 'longterm' AND state = 'active'"
    found = [each for each in rows(home, sql) if each[1] in boss.written - boss.touched]
    if not found:
        return None
    number, text = chance.choice(found)
    boss.touched.add(text)
    return str(number), str(text)


def _edit_file(home: Path, number: int, boss: MemoryActs) -> None:
    """An editor opens the file of what everybody is told, adds a line, and saves at once."""
    path, text = home / "MEMORY.md", f"line {number} of the file"
    try:
        body = path.read_text()
    except FileNotFoundError:
        return
    beside = path.with_name("editor~")
    beside.write_text(body.replace(_ENDS, f"- {text}\n{_ENDS}"))
    beside.replace(path)
    boss.written.add(text)
    boss.touched.add(text)


async def _calm_down(home: Path, channel: ChannelClient) -> None:
    while unsettled(home, {}) or unsettled_memory(home) or channel.count_unacknowledged():
        await asyncio.sleep(_LOOK_EVERY)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CATCHING_UP):
            while not chats_caught_up(_ended(home, channel)):
                await asyncio.sleep(_LOOK_EVERY)


def _ended(home: Path, channel: ChannelClient) -> FinishedRun:
    # kill -9 from outside leaves no line of its own.
    points = read_points(home)
    return FinishedRun(home=home, front=channel, points=points, ends={}, files={}, troubled=True)
