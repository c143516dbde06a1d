"""kill -9 of the real program: before and after every state transition on every channel, before
and after every place of the program that commits or calls in every story, before and after every
single commit and call of some, and at hundreds of random moments under load. What was broken?"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Literal, TypeAlias

from tests.chaos.boss import Story
from tests.chaos.fronts import NAMES, Name
from tests.chaos.load import Load, storm
from tests.chaos.memory.load import MemoryLoad, storm_of_memory
from tests.chaos.store import witness_of
from tests.chaos.stories import STORIES
from tests.chaos.sweep import WHENS, Sweep, When, moments
from tests.chaos.telling import Told, fresh_home

_AT_ONCE = int(os.environ.get("CHAOS_AT_ONCE", "2"))
_KILLS = 210
_KILLS_OF_A_STORM = 10
_TASKS_OF_A_STORM = 14
_ACTS_OF_A_STORM = 20
_MINUTES = float(os.environ.get("CHAOS_MINUTES", "inf"))

Part: TypeAlias = Literal["transitions", "random", "places", "moments"]
_PARTS: Sequence[Part] = ("transitions", "random", "places", "moments")
_STEP_BY_STEP = ("two tasks", "effects", "by hand")
_STORMS = [
    each
    for each in ("tasks", "workers", "memory")
    if each in os.environ.get("CHAOS_STORMS", "tasks,workers,memory").split(",")
]
_Work: TypeAlias = Callable[[], Awaitable[None]]


async def measure() -> list[str]:
    """CHAOS_SEED repeats the random part, CHAOS_KILLS says how long it is, CHAOS_PARTS names
    what is to be done of `transitions,random,places,moments`, CHAOS_CHANNELS where, CHAOS_STORIES
    of which stories, CHAOS_STORMS of what storms are (`tasks,workers,memory`), CHAOS_AT_ONCE how
    many at a time, CHAOS_MINUTES when to begin nothing more: what is left out then is told."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(base=Path(folder), seed=seed)
        for name in run.channels:
            run.templates[name] = await fresh_home(run.base / f"template-{name}", name)
        await run.all()
        return [*run.table(), *run.summary(time.monotonic() - began)]


@dataclass(kw_only=True)
class _Run:
    """One measurement: its homes are in `base`, deleted where nothing was broken."""

    base: Path
    seed: int
    templates: dict[Name, Path] = field(default_factory=dict)
    told: dict[tuple[Part, Name], list[Told]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    left_out: Counter[Part] = field(default_factory=Counter)
    until: float = field(
        default_factory=lambda: (
            time.monotonic() + 60 * float(os.environ.get("CHAOS_MINUTES", "inf"))
        )
    )

    @property
    def channels(self) -> Sequence[Name]:
        wanted = os.environ.get("CHAOS_CHANNELS", ",".join(NAMES)).split(",")
        return [name for name in NAMES if name in wanted]

    @property
    def stories(self) -> Sequence[Story]:
        wanted = os.environ.get("CHAOS_STORIES", "").split(",")
        return [story for story in STORIES if wanted == [""] or story.name in wanted]

    async def all(self) -> None:
        await self.at_once(self.works())

    def works(self) -> Iterator[tuple[Part, _Work]]:
        """A little of everything in turn, and what is most alike last: time may run out."""
        wanted = os.environ.get("CHAOS_PARTS", ",".join(_PARTS)).split(",")
        makers: Mapping[Part, Callable[[], Iterator[_Work]]] = {
            "transitions": self.of_transitions,
            "random": self.of_random,
            "places": self.of_places,
        }
        of_parts = [[(p, work) for work in make()] for p, make in makers.items() if p in wanted]
        for row in zip_longest(*of_parts):
            yield from (work for work in row if work is not None)
        if "moments" in wanted:
            yield from (("moments", work) for work in self.of_moments())

    def of_transitions(self) -> Iterator[_Work]:
        for shift, when in product(range(len(self.channels)), WHENS):
            for number, story in enumerate(reversed(self.stories)):
                yield partial(self.transitions, self.channel(number + shift), story, when)

    def of_random(self) -> Iterator[_Work]:
        storms = -(-int(os.environ.get("CHAOS_KILLS", _KILLS)) // _KILLS_OF_A_STORM)
        for number in range(storms):
            # Of each kind on each channel.
            where = self.channel(number + number // max(1, len(_STORMS)))
            yield partial(self.storm, where, number)

    def of_places(self) -> Iterator[_Work]:
        for number, story in enumerate(reversed(self.stories)):
            yield partial(self.places, self.channel(number + 1), story)

    def of_moments(self) -> Iterator[_Work]:
        for story in self.stories:
            if story.name in _STEP_BY_STEP:
                yield partial(self.moments, self.channels[0], story)

    def channel(self, number: int) -> Name:
        return self.channels[number % len(self.channels)]

    async def transitions(self, name: Name, story: Story, when: When) -> None:
        for told in await self.sweep(name).chain(story, name, when):
            self.note("transitions", told)

    async def places(self, name: Name, story: Story) -> None:
        calm = await self.sweep(name).once(story, name, ())
        self.note("places", calm)
        for when in WHENS:
            for told in await self.sweep(name).places(story, name, when, calm):
                self.note("places", told)

    async def moments(self, name: Name, story: Story) -> None:
        """One telling for each moment: so many that they are done at once among themselves."""
        calm = await self.sweep(name).once(story, name, ())
        self.note("moments", calm)

        async def one(point: str) -> None:
            self.note("moments", await self.sweep(name).once(story, name, [point]))

        await self.at_once(("moments", partial(one, point)) for point in moments(calm))

    async def storm(self, name: Name, number: int) -> None:
        """Of tasks, of workers and of memory in turn."""
        seed, home = self.seed + number, self.base / f"storm{number}"
        template, kills = self.templates[name], _KILLS_OF_A_STORM
        if (kind := _STORMS[number % len(_STORMS)]) == "memory":
            load = MemoryLoad(seed=seed, acts=_ACTS_OF_A_STORM, kills=kills)
            told = await storm_of_memory(home, load, name, template=template)
        else:
            tasks = Load(seed=seed, tasks=_TASKS_OF_A_STORM, kills=kills, workers=kind == "workers")
            told = await storm(home, tasks, name, template=template)
        self.note("random", told)
        shutil.rmtree(home)
        witness_of(home).unlink()

    async def at_once(self, works: Iterator[tuple[Part, _Work]]) -> None:
        async def work() -> None:
            for part, each in works:
                if time.monotonic() >= self.until:
                    self.left_out[part] += 1
                    continue
                try:
                    await each()
                except (AssertionError, TimeoutError, OSError) as error:
                    self.broken.append(f"BROKEN OFF {part}: {str(error)[:2000]}")
                    print(self.broken[-1], flush=True)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())

    def sweep(self, name: Name) -> Sweep:
        return Sweep(folder=self.base, template=self.templates[name])

    def note(self, part: Part, told: Told) -> None:
        self.told.setdefault((part, told.channel), []).append(told)
        if told.wrong:
            where = f"{part} {told.channel} {told.story} {' '.join(told.died)}"
            self.broken.append(f"BROKEN {where}: {'; '.join(told.wrong)}")
        deaths, wrong = told.deaths, "; ".join(told.wrong) or "kept"
        if told.put_aside:
            wrong += f" ({told.put_aside} messages died six times and were put aside)"
        print(f"{part} {told.channel} {told.story}: {deaths} deaths, {wrong}", flush=True)

    def table(self) -> Iterator[str]:
        yield f"{'deaths at':12} {'channel':9} tellings  deaths  repeats  broken"
        for (part, name), told in sorted(self.told.items()):
            deaths, repeats = sum(t.deaths for t in told), sum(t.repeats for t in told)
            broken = sum(bool(t.wrong) for t in told)
            yield f"{part:12} {name:9} {len(told):8} {deaths:7} {repeats:8} {broken:7}"
        yield from self.broken
        for part, times in self.left_out.items():
            yield f"left out for want of time: {times} of {part}"

    def summary(self, took: float) -> Iterator[str]:
        every = [told for group in self.told.values() for told in group]
        verdict = "MISSED" if self.broken else "kept"
        died = {point for told in every for point in told.died}
        yield f"seed {self.seed}, {took:.0f} s, {len(died)} points died at by name"
        deaths = sum(told.deaths for told in every)
        yield f"{deaths} deaths, broken promises: {len(self.broken)} (bar 0: {verdict})"
