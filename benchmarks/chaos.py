"""kill -9 of the real program at every transition, every place and random moments."""

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

from benchmarks.figures import Figure, LeftOut, Measurement, Scale, at_most
from tests.chaos.channels import CHANNEL_NAMES, ChannelName
from tests.chaos.crash_sweep import WHENS, CrashSweep, When, all_moments
from tests.chaos.inspection import witness_file
from tests.chaos.memory.random_load import MemoryLoad, run_memory_load
from tests.chaos.random_load import RandomLoad, run_random_load
from tests.chaos.stories import STORIES
from tests.chaos.story import CrashStory
from tests.chaos.story_run import StoryResult, started_home
from tests.journeys.program import ShiftbossProcess

_AT_ONCE = int(os.environ.get("CHAOS_AT_ONCE", "2"))
_KILLS = 210
_KILLS_PER_STORM = 10
_TASKS_PER_STORM = 14
_ACTS_PER_STORM = 20

Part: TypeAlias = Literal["transitions", "random", "places", "moments"]
_PARTS: Sequence[Part] = ("transitions", "random", "places", "moments")
_STEP_BY_STEP = ("two tasks", "effects", "turns", "by hand")
_STORMS = [
    each
    for each in ("tasks", "workers", "memory")
    if each in os.environ.get("CHAOS_STORMS", "tasks,workers,memory").split(",")
]
_SMALL_CHANNEL: ChannelName = "web"
_SMALL_POINT = "commit:before:20"
_Work: TypeAlias = Callable[[], Awaitable[None]]


async def measure(scale: Scale) -> list[Measurement]:
    """The real program dies by SIGKILL and is started again: before and after every state
    transition on every channel, before and after every place of the program that commits or calls,
    before and after each single commit and call of some stories, and at random moments under load.
    A promise is broken where a finished step runs again, a task is lost, an approval is asked twice
    or a message is neither answered nor put aside with an apology. A repeat is a message that the
    platform shows twice. Environment variables choose a part of it: see [chaos.md](chaos.md)."""
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
    print(f"CHAOS_SEED={seed}", flush=True)
    # Loading the modules is most of what a life costs: forks die three times as often in an hour.
    # A small run is part of the tests, which say for themselves how theirs begin.
    if scale is Scale.FULL:
        ShiftbossProcess.use_fork_server = "CHAOS_FORKS" in os.environ
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(base=Path(folder), seed=seed)
        for name in scale.pick(run.channels, (_SMALL_CHANNEL,)):
            run.templates[name] = await started_home(run.base / f"template-{name}", name)
        await scale.pick(run.all, run.one_death)()
        return [Figure("seed", seed), *run.figures(), *run.left_out_parts()]


@dataclass(kw_only=True)
class _Run:
    """One measurement. Its homes are in `base`; one in which nothing was broken is deleted."""

    base: Path
    seed: int
    templates: dict[ChannelName, Path] = field(default_factory=dict)
    told: dict[tuple[Part, ChannelName], list[StoryResult]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    left_out: Counter[Part] = field(default_factory=Counter)
    until: float = field(
        default_factory=lambda: (
            time.monotonic() + 60 * float(os.environ.get("CHAOS_MINUTES", "inf"))
        )
    )

    @property
    def channels(self) -> Sequence[ChannelName]:
        wanted = os.environ.get("CHAOS_CHANNELS", ",".join(CHANNEL_NAMES)).split(",")
        return [name for name in CHANNEL_NAMES if name in wanted]

    @property
    def stories(self) -> Sequence[CrashStory]:
        wanted = os.environ.get("CHAOS_STORIES", "").split(",")
        return [story for story in STORIES if wanted == [""] or story.name in wanted]

    async def all(self) -> None:
        await self.at_once(self.works())

    async def one_death(self) -> None:
        story = STORIES[0]
        told = await self.sweep(_SMALL_CHANNEL).run_once(story, _SMALL_CHANNEL, [_SMALL_POINT])
        self.note("moments", told)

    def works(self) -> Iterator[tuple[Part, _Work]]:
        """The work of all parts in turn, single moments last: time may run out."""
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
        storms = -(-int(os.environ.get("CHAOS_KILLS", _KILLS)) // _KILLS_PER_STORM)
        for number in range(storms):
            # Every kind of storm comes to every channel.
            where = self.channel(number + number // max(1, len(_STORMS)))
            yield partial(self.storm, where, number)

    def of_places(self) -> Iterator[_Work]:
        for number, story in enumerate(reversed(self.stories)):
            yield partial(self.places, self.channel(number + 1), story)

    def of_moments(self) -> Iterator[_Work]:
        for story in self.stories:
            if story.name in _STEP_BY_STEP:
                for name in self.channels:
                    yield partial(self.moments, name, story)

    def channel(self, number: int) -> ChannelName:
        return self.channels[number % len(self.channels)]

    async def transitions(self, name: ChannelName, story: CrashStory, when: When) -> None:
        for told in await self.sweep(name).crash_at_transitions(story, name, when):
            self.note("transitions", told)

    async def places(self, name: ChannelName, story: CrashStory) -> None:
        calm = await self.sweep(name).run_once(story, name, ())
        self.note("places", calm)
        for when in WHENS:
            for told in await self.sweep(name).crash_at_places(story, name, when, calm):
                self.note("places", told)

    async def moments(self, name: ChannelName, story: CrashStory) -> None:
        """One run for each moment; there are so many that they run at the same time."""
        calm = await self.sweep(name).run_once(story, name, ())
        self.note("moments", calm)

        async def one(point: str) -> None:
            self.note("moments", await self.sweep(name).run_once(story, name, [point]))

        await self.at_once(("moments", partial(one, point)) for point in all_moments(calm))

    async def storm(self, name: ChannelName, number: int) -> None:
        """One storm of tasks, of workers or of memory, in turn."""
        seed, home = self.seed + number, self.base / f"storm{number}"
        template, kills = self.templates[name], _KILLS_PER_STORM
        if (kind := _STORMS[number % len(_STORMS)]) == "memory":
            load = MemoryLoad(seed=seed, acts=_ACTS_PER_STORM, kills=kills)
            told = await run_memory_load(home, load, name, template=template)
        else:
            tasks = RandomLoad(
                seed=seed, tasks=_TASKS_PER_STORM, kills=kills, workers=kind == "workers"
            )
            told = await run_random_load(home, tasks, name, template=template)
        self.note("random", told)
        shutil.rmtree(home)
        witness_file(home).unlink()

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

    def sweep(self, name: ChannelName) -> CrashSweep:
        return CrashSweep(folder=self.base, template=self.templates[name])

    def note(self, part: Part, told: StoryResult) -> None:
        self.told.setdefault((part, told.channel), []).append(told)
        if told.violations:
            where = f"{part} {told.channel} {told.story} {' '.join(told.died)}"
            self.broken.append(f"BROKEN {where}: {'; '.join(told.violations)}")
        deaths, wrong = told.deaths, "; ".join(told.violations) or "kept"
        if told.skipped:
            wrong += f" ({told.skipped} messages died six times and were put aside)"
        print(f"{part} {told.channel} {told.story}: {deaths} deaths, {wrong}", flush=True)

    def figures(self) -> Iterator[Figure]:
        for (part, name), told in sorted(self.told.items()):
            where = f"{part}, {name}"
            yield Figure(f"{where}: runs", len(told))
            yield Figure(f"{where}: deaths", sum(each.deaths for each in told))
            yield Figure(f"{where}: repeats", sum(each.repeats for each in told))
        every = [told for group in self.told.values() for told in group]
        yield Figure(
            "points died at, by name", len({point for told in every for point in told.died})
        )
        yield Figure("deaths", sum(told.deaths for told in every))
        yield Figure("broken promises", len(self.broken), "", at_most(0))

    def left_out_parts(self) -> Iterator[LeftOut]:
        for part, times in self.left_out.items():
            yield LeftOut(f"{times} runs of {part}", "CHAOS_MINUTES were over")
