"""Many things told, written by hand, forgotten and edited in files at once, while the program is
killed at random moments: what the same seed does again."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.fronts import Front, Name, front
from tests.chaos.memory.mind import Drawn, Mind
from tests.chaos.memory.promises import settling
from tests.chaos.memory.talking import AT_ONCE
from tests.chaos.promises import Ended, broken, repeats, shows_all, unsettled
from tests.chaos.put_aside import put_aside, says_again
from tests.chaos.store import points_of, rows
from tests.chaos.telling import Told, deadly, tracebacks
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Reply
from tests.journeys.model_world import access
from tests.journeys.program import Program

_LOOK_EVERY = 0.05
_PATIENCE = 240.0
_FOR_EACH_KILL = 45.0
_LONGEST_LIFE = 2.5
_PAUSE = 0.5
_CATCHING_UP = 15.0
_TOLD = re.compile(r"item(\d+)")
_ENDS = "<!-- shiftboss: end"
# A store that is held this instant shows nothing at all: it has to be there.
_ANSWERED = (
    "SELECT 1 FROM inbox WHERE state = 'handled' AND json_extract(incoming, '$.text') = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE state = 'new')"
)


@dataclass(slots=True)
class Boss:
    """What the Boss has done, and so wants to find in the end."""

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


def _answer(asked: Asked) -> Reply:
    numbers = dict.fromkeys(_TOLD.findall(asked.last))
    facts = [
        Drawn(cue=f"item{n} ", text=_noted(n), topic=f"item {n}", category="entities")
        for n in numbers
    ]
    return Mind(drawn=facts)(asked)


async def storm_of_memory(home: Path, load: MemoryLoad, name: Name, *, template: Path) -> Told:
    """Live through it, then let everything come to its end, and look at what is left."""
    shutil.copytree(template, home)
    told = Told(story=f"memory {load.seed}", channel=name)
    boss = Boss()
    async with front(name) as channel, Models() as models:
        models.replies(_answer)
        settings = {**access(models, "anthropic"), "SHIFTBOSS_MEMORY": AT_ONCE}
        program = deadly(home, channel, **settings)
        channel.meets(program)
        patient = asyncio.create_task(says_again(channel, home))
        try:
            try:
                async with asyncio.timeout(_PATIENCE + _FOR_EACH_KILL * load.kills):
                    await _rage(program, channel, load, boss, told)
                    await _calm_down(home, channel)
            except TimeoutError:
                left = [*unsettled(home, {}), *settling(home)]
                told.wrong.append(f"stuck: {'; '.join(left)[:600]}")
            if (status := await program.stop()) != 0:
                told.wrong.append(f"it ended with status {status}")
            told.points, told.output = points_of(home), program.text
            told.repeats = repeats(channel)
            told.put_aside = len(put_aside(home, told.points))
            told.wrong += [*broken(_ended(home, channel)), *settling(home)]
            told.wrong += [*boss.missed(home), *tracebacks(program.text)]
            told.wrong += [f"the model refused: {each.message}" for each in models.refused]
        finally:
            patient.cancel()
            await asyncio.gather(patient, return_exceptions=True)
            await program.end()
    return told


async def _rage(program: Program, channel: Front, load: MemoryLoad, boss: Boss, told: Told) -> None:
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
                await program.end()
            await program.start()
        await life
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def _live(channel: Front, home: Path, load: MemoryLoad, boss: Boss) -> None:
    chance, said = random.Random(-load.seed), ""
    for number in range(load.acts):
        match chance.randrange(6):
            case 0 | 1:
                # What is said right behind it would cut its answer short.
                while (said and not rows(home, _ANSWERED, said)) or channel.unheard():
                    await asyncio.sleep(_LOOK_EVERY)
                boss.told.add(_noted(number))
                said = f"From now on: item{number} has its own shelf{number}"
                await channel.says(said)
            case 2:
                boss.written.add(f"note {number} by hand")
                await channel.says(f"/memory add note {number} by hand")
            case 3:
                _edit_file(home, number, boss)
            case 4:
                if found := _loose(home, boss, chance):
                    boss.forgotten.add(found[1])
                    await channel.says(f"/memory forget {found[0]}")
            case _:
                if found := _loose(home, boss, chance):
                    boss.forgotten.add(found[1])
                    boss.written.add(f"note {number} is edited")
                    await channel.says(f"/memory edit {found[0]} note {number} is edited")
        await asyncio.sleep(chance.uniform(0, _PAUSE))


def _loose(home: Path, boss: Boss, chance: random.Random) -> tuple[str, str] | None:
    """Something that was written by hand and that nothing has happened to yet."""
    sql = "SELECT id, text FROM memories WHERE kind = 'longterm' AND state = 'active'"
    found = [each for each in rows(home, sql) if each[1] in boss.written - boss.touched]
    if not found:
        return None
    number, text = chance.choice(found)
    boss.touched.add(text)
    return str(number), str(text)


def _edit_file(home: Path, number: int, boss: Boss) -> None:
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


async def _calm_down(home: Path, channel: Front) -> None:
    while unsettled(home, {}) or settling(home) or channel.unheard():
        await asyncio.sleep(_LOOK_EVERY)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CATCHING_UP):
            while not shows_all(_ended(home, channel)):
                await asyncio.sleep(_LOOK_EVERY)


def _ended(home: Path, channel: Front) -> Ended:
    # kill -9 from outside leaves no line of its own.
    points = points_of(home)
    return Ended(home=home, front=channel, points=points, ends={}, files={}, troubled=True)
