"""One story, told to a program that dies on the way: what the Boss must find at the end."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.boss import Boss, Story, clock_of
from tests.chaos.fronts import Front, Name, front
from tests.chaos.memory.promises import settling
from tests.chaos.promises import Ended, broken, repeats, shows_all, unsettled
from tests.chaos.put_aside import put_aside, says_again
from tests.chaos.store import points_of, witness_of
from tests.emulators.models.emulator import Models
from tests.journeys.model_world import access
from tests.journeys.program import Program

LAUNCHER = (sys.executable, str(Path(__file__).parent / "deadly.py"))
_PATIENCE = 180.0
_FOR_EACH_DEATH = 45.0
_LOOK_EVERY = 0.05
_CATCHING_UP = 3.0
_KILLED = -9


@dataclass(kw_only=True)
class Told:
    """How one telling went. `wrong` lists every promise that was broken; `points` is what the
    lives passed through; `died` where they ended; `repeats` counts messages sent twice and
    marked so, `put_aside` messages that died too often and were apologised for."""

    story: str
    channel: Name
    wrong: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    deaths: int = 0
    repeats: int = 0
    put_aside: int = 0
    output: str = ""

    @property
    def died(self) -> list[str]:
        return [line.removeprefix("died ") for line in self.points if line.startswith("died ")]

    @property
    def moved(self) -> set[str]:
        """The transitions it made."""
        return {line.split(" ", 2)[1] for line in self.points if line.startswith("moved ")}


async def fresh_home(folder: Path, name: Name) -> Path:
    """A home that the program has started on once: where most deaths happen."""
    async with front(name) as channel:
        program = deadly(folder, channel)
        try:
            await program.start()
            await program.stop()
        finally:
            await program.end()
    witness_of(folder).unlink()
    return folder


async def tell(
    home: Path,
    story: Story,
    name: Name,
    deaths: Sequence[str] = (),
    *,
    in_order: bool = False,
    template: Path | None = None,
) -> Told:
    """Tell the story, dying once at each of these points, as they come or in this order."""
    if template is not None:
        shutil.copytree(template, home)
    if story.begun is not None:
        story.begun(home)
    told = Told(story=story.name, channel=name)
    async with front(name) as channel, Models() as models, _service(story) as served:
        if story.mind is not None:
            models.replies(deepcopy(story.mind))
        program = deadly(home, channel, **_access(story, models, home), **served)
        channel.meets(program)
        keeper = asyncio.create_task(_keep_alive(program, deaths, told, in_order=in_order))
        patient = asyncio.create_task(says_again(channel, home))
        try:
            try:
                async with asyncio.timeout(_PATIENCE + _FOR_EACH_DEATH * len(deaths)):
                    await _live_through(Boss(front=channel, home=home), story)
            except TimeoutError:
                left = "; ".join(_left(home, story))[:400]
                told.wrong.append(f"stuck: {left}; {[s.text[:60] for s in channel.shown()]}")
            keeper.cancel()
            patient.cancel()
            await asyncio.gather(keeper, patient, return_exceptions=True)
            await _end_politely(program, told)
            _look(told, home, channel, story, program)
            told.wrong += [f"the model refused: {each.message}" for each in models.refused]
        finally:
            keeper.cancel()
            patient.cancel()
            await program.end()
    return told


def deadly(home: Path, channel: Front, **settings: str) -> Program:
    witness = {"DEADLY_WITNESS": str(witness_of(home))}
    return Program(
        home=home, settings={**channel.settings, **witness, **settings}, command=LAUNCHER
    )


def _service(story: Story) -> AbstractAsyncContextManager[Mapping[str, str]]:
    return nullcontext({}) if story.service is None else story.service()


def _access(story: Story, models: Models, home: Path) -> Mapping[str, str]:
    known = {} if story.mind is None else access(models, "anthropic")
    time = {} if story.remembered is None else {"DEADLY_CLOCK_FILE": str(clock_of(home))}
    return {**known, **time, **story.settings}


def _left(home: Path, story: Story) -> list[str]:
    left = unsettled(home, story.ends)
    return left or ([] if story.remembered is None else settling(home))


async def _live_through(boss: Boss, story: Story) -> None:
    await story.live(boss)
    while _left(boss.home, story) or boss.front.unheard():
        await asyncio.sleep(_LOOK_EVERY)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CATCHING_UP):
            while not shows_all(_ended(boss.home, boss.front, story)):
                await asyncio.sleep(_LOOK_EVERY)


async def _keep_alive(
    program: Program, deaths: Sequence[str], told: Told, *, in_order: bool
) -> None:
    """A service manager: start again at once whatever has died."""
    base = dict(program.settings)
    while True:
        died = [line for line in points_of(program.home) if line.startswith("died ")]
        left = [point for point in deaths if f"died {point}" not in died]
        due = left[:1] if in_order else left
        program.settings = {**base, "DEADLY_POINTS": " ".join(due)}
        # A death before it says where its web chat is ends the wait for that.
        with suppress(AssertionError):
            await program.start()
        status = await program.dies()
        if status != _KILLED:
            told.wrong.append(f"it ended by itself with status {status}")
            await asyncio.sleep(1)
        told.deaths += 1


async def _end_politely(program: Program, told: Told) -> None:
    status = await program.stop()
    if status in {_KILLED, -signal.SIGTERM}:
        # The last point was the story's very end, and the next life was only just beginning: one
        # more must find nothing to do.
        told.deaths += status == _KILLED
        program.settings = {**program.settings, "DEADLY_POINTS": ""}
        await program.start()
        status = await program.stop()
    if status != 0:
        told.wrong.append(f"it ended with status {status}")


def _look(told: Told, home: Path, channel: Front, story: Story, program: Program) -> None:
    told.points = points_of(home)
    told.output = program.text
    told.repeats = repeats(channel)
    told.put_aside = len(put_aside(home, told.points))
    told.wrong += broken(_ended(home, channel, story))
    if story.remembered is not None:
        told.wrong += [*settling(home), *story.remembered(home)]
    if channel.unheard():
        told.wrong.append(f"{channel.unheard()} messages unheard")
    told.wrong += tracebacks(told.output)


def _ended(home: Path, channel: Front, story: Story) -> Ended:
    return Ended(
        home=home,
        front=channel,
        points=points_of(home),
        ends=story.ends,
        files=story.files,
        unsure=story.unsure,
    )


def tracebacks(output: str) -> list[str]:
    """The line that each traceback in the log ends with."""
    found = []
    for part in output.split("Traceback (most recent call last):")[1:]:
        ends = (line for line in part.splitlines()[1:] if line and not line.startswith(" "))
        found.append(f"a traceback in the log: {next(ends, '')[:300]}")
    return found
