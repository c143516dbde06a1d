"""kill -9 of the real program: before and after every state transition on every channel, before
and after every commit and every call of a story, and at hundreds of random moments under load.
What was broken?"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from tests.chaos.fronts import NAMES, Name
from tests.chaos.load import Load, storm
from tests.chaos.stories import STORIES, Story
from tests.chaos.sweep import WHENS, Sweep, When, moments
from tests.chaos.telling import Told, fresh_home, witness_of

_AT_ONCE = 2
_KILLS = 210
_KILLS_OF_A_STORM = 10
_TASKS_OF_A_STORM = 14

Part: TypeAlias = Literal["transitions", "moments", "random"]
_PARTS: Sequence[Part] = ("transitions", "moments", "random")
_Work: TypeAlias = Callable[[], Awaitable[None]]


async def measure() -> list[str]:
    """CHAOS_SEED repeats the random part, CHAOS_KILLS says how long it is, CHAOS_PARTS names
    what is to be done of `transitions,moments,random`, CHAOS_CHANNELS where."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(base=Path(folder), seed=seed)
        for name in run.channels:
            run.templates[name] = await fresh_home(run.base / f"template-{name}", name)
        await _at_once(run.works())
        return [*run.table(), *run.summary(time.monotonic() - began)]


@dataclass(kw_only=True)
class _Run:
    """One measurement: its homes are in `base`, deleted where nothing was broken."""

    base: Path
    seed: int
    templates: dict[Name, Path] = field(default_factory=dict)
    told: dict[tuple[Part, Name], list[Told]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def channels(self) -> Sequence[Name]:
        wanted = os.environ.get("CHAOS_CHANNELS", ",".join(NAMES)).split(",")
        return [name for name in NAMES if name in wanted]

    def works(self) -> Iterator[_Work]:
        wanted = os.environ.get("CHAOS_PARTS", ",".join(_PARTS)).split(",")
        if "transitions" in wanted:
            for name in self.channels:
                for story in STORIES:
                    yield from (partial(self.transitions, name, story, when) for when in WHENS)
        if "moments" in wanted:
            yield partial(self.moments, self.channels[0])
        if "random" in wanted:
            storms = -(-int(os.environ.get("CHAOS_KILLS", _KILLS)) // _KILLS_OF_A_STORM)
            for number in range(storms):
                yield partial(self.storm, self.channels[number % len(self.channels)], number)

    async def transitions(self, name: Name, story: Story, when: When) -> None:
        for told in await self.sweep(name).chain(story, name, when):
            self.note("transitions", told)

    async def moments(self, name: Name) -> None:
        """One telling for each moment: so many that they are done at once among themselves."""
        calm = await self.sweep(name).once(STORIES[0], name, ())
        self.note("moments", calm)

        async def one(point: str) -> None:
            self.note("moments", await self.sweep(name).once(STORIES[0], name, [point]))

        await _at_once(partial(one, point) for point in moments(calm))

    async def storm(self, name: Name, number: int) -> None:
        load = Load(seed=self.seed + number, tasks=_TASKS_OF_A_STORM, kills=_KILLS_OF_A_STORM)
        home = self.base / f"storm{number}"
        told = await storm(home, load, name, template=self.templates[name])
        self.note("random", told)
        shutil.rmtree(home)
        witness_of(home).unlink()

    def sweep(self, name: Name) -> Sweep:
        return Sweep(folder=self.base, template=self.templates[name])

    def note(self, part: Part, told: Told) -> None:
        self.told.setdefault((part, told.channel), []).append(told)
        if told.wrong:
            where = f"{part} {told.channel} {told.story} {' '.join(told.died)}"
            self.broken.append(f"BROKEN {where}: {'; '.join(told.wrong)}")

    def table(self) -> Iterator[str]:
        yield f"{'deaths at':12} {'channel':9} tellings  deaths  repeats  broken"
        for (part, name), told in sorted(self.told.items()):
            deaths, repeats = sum(t.deaths for t in told), sum(t.repeats for t in told)
            broken = sum(bool(t.wrong) for t in told)
            yield f"{part:12} {name:9} {len(told):8} {deaths:7} {repeats:8} {broken:7}"
        yield from self.broken

    def summary(self, took: float) -> Iterator[str]:
        every = [told for group in self.told.values() for told in group]
        verdict = "MISSED" if self.broken else "kept"
        died = {point for told in every for point in told.died}
        yield f"seed {self.seed}, {took:.0f} s, {len(died)} points died at by name"
        deaths = sum(told.deaths for told in every)
        yield f"{deaths} deaths, broken promises: {len(self.broken)} (bar 0: {verdict})"


async def _at_once(works: Iterator[_Work]) -> None:
    async def work() -> None:
        for each in works:
            await each()

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())
