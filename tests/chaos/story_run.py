"""One story, told to a program that dies on the way: what the Boss must find at the end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.channels import ChannelClient, ChannelName, open_channel
from tests.chaos.inspection import read_points, rows, witness_file
from tests.chaos.invariants import (
    FinishedRun,
    chats_caught_up,
    count_repeats,
    unsettled,
    violations,
)
from tests.chaos.memory.invariants import unsettled_memory
from tests.chaos.skipped_messages import resend_skipped, rightly_skipped
from tests.chaos.story import CrashStory, ScriptedUser, clock_file
from tests.emulators.models.emulator import ModelEmulator
from tests.journeys.model_world import model_settings
from tests.journeys.program import ShiftbossProcess
from tests.journeys.program_store import copy_home

LAUNCHER = (sys.executable, str(Path(__file__).parent / "crash_launcher.py"))
_PATIENCE = 180.0
_FOR_EACH_DEATH = 45.0
_LOOK_EVERY = 0.05
_CATCHING_UP = 60.0
_LIVES_AFTER = 3
_KILLED = -9


@dataclass(kw_only=True)
class StoryResult:
    """How one telling went. `wrong` lists every promise that was broken; `points` is what the
    lives passed through; `died` where they ended; `repeats` counts messages sent twice and
    marked so, `put_aside` messages that died too often and were apologised for."""

    story: str
    channel: ChannelName
    violations: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    deaths: int = 0
    repeats: int = 0
    skipped: int = 0
    output: str = ""

    @property
    def died(self) -> list[str]:
        return [line.removeprefix("died ") for line in self.points if line.startswith("died ")]

    @property
    def transitions(self) -> set[str]:
        """The transitions it made."""
        return {line.split(" ", 2)[1] for line in self.points if line.startswith("moved ")}


async def started_home(folder: Path, name: ChannelName) -> Path:
    """A home that the program has started on once: where most deaths happen."""
    async with open_channel(name) as channel:
        program = crashing_program(folder, channel)
        try:
            await program.start()
            await program.stop()
        finally:
            await program.kill_if_running()
    witness_file(folder).unlink()
    return folder


async def run_story(
    home: Path,
    story: CrashStory,
    name: ChannelName,
    deaths: Sequence[str] = (),
    *,
    in_order: bool = False,
    template: Path | None = None,
) -> StoryResult:
    """Tell the story, dying once at each of these points, as they come or in this order."""
    if template is not None:
        copy_home(template, home)
    if story.prepare is not None:
        story.prepare(home)
    told = StoryResult(story=story.name, channel=name)
    async with open_channel(name) as channel, ModelEmulator() as models, _service(story) as served:
        if story.model is not None:
            models.replies(deepcopy(story.model))
        program = crashing_program(home, channel, **_access(story, models, home), **served)
        channel.attach(program)
        keeper = asyncio.create_task(_keep_alive(program, deaths, told, in_order=in_order))
        patient = asyncio.create_task(resend_skipped(channel, home))
        try:
            try:
                async with asyncio.timeout(_PATIENCE + _FOR_EACH_DEATH * len(deaths)):
                    await _live_through(ScriptedUser(channel=channel, home=home), story)
            except TimeoutError:
                left = "; ".join(_left(home, story))[:400]
                told.violations.append(
                    f"stuck: {left}; {[s.text[:60] for s in channel.list_messages()]}"
                )
            keeper.cancel()
            patient.cancel()
            await asyncio.gather(keeper, patient, return_exceptions=True)
            await _end_politely(program, told, story)
            _inspect(told, home, channel, story, program)
            told.violations += [f"the model refused: {each.message}" for each in models.refused]
            if story.every_call_is_billed:
                told.violations += _wrong_bills(home, len(models.requests), told.deaths)
        finally:
            keeper.cancel()
            patient.cancel()
            await program.kill_if_running()
    return told


def _wrong_bills(home: Path, served: int, deaths: int) -> Iterator[str]:
    """All served calls are booked except the one in progress at each death."""
    ((booked,),) = rows(home, "SELECT COALESCE(sum(requests), 0) FROM usage")
    if abs(booked - served) > deaths:
        yield f"{served} calls were served and {booked} booked over {deaths} deaths"


def crashing_program(home: Path, channel: ChannelClient, **settings: str) -> ShiftbossProcess:
    witness = {"DEADLY_WITNESS": str(witness_file(home))}
    return ShiftbossProcess(
        home=home, settings={**channel.settings, **witness, **settings}, command=LAUNCHER
    )


def _service(story: CrashStory) -> AbstractAsyncContextManager[Mapping[str, str]]:
    return nullcontext({}) if story.service is None else story.service()


def _access(story: CrashStory, models: ModelEmulator, home: Path) -> Mapping[str, str]:
    known = {} if story.model is None else model_settings(models, "anthropic")
    moves = story.moves_clock or story.check_memory is not None
    time = {"DEADLY_CLOCK_FILE": str(clock_file(home))} if moves else {}
    return {**known, **time, **story.settings}


def _left(home: Path, story: CrashStory) -> list[str]:
    left = unsettled(home, story.final_statuses)
    return left or ([] if story.check_memory is None else unsettled_memory(home))


async def _live_through(boss: ScriptedUser, story: CrashStory) -> None:
    await story.act(boss)
    while _left(boss.home, story) or boss.channel.count_unacknowledged():
        await asyncio.sleep(_LOOK_EVERY)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CATCHING_UP):
            while not chats_caught_up(_ended(boss.home, boss.channel, story)):
                await asyncio.sleep(_LOOK_EVERY)


async def _keep_alive(
    program: ShiftbossProcess, deaths: Sequence[str], told: StoryResult, *, in_order: bool
) -> None:
    """A service manager: start again at once whatever has died."""
    base = dict(program.settings)
    while True:
        died = [line for line in read_points(program.home) if line.startswith("died ")]
        left = [point for point in deaths if f"died {point}" not in died]
        due = left[:1] if in_order else left
        program.settings = {**base, "DEADLY_POINTS": " ".join(due)}
        # A death before it says where its web chat is ends the wait for that.
        with suppress(AssertionError):
            await program.start()
        status = await program.wait_for_exit()
        if status != _KILLED:
            told.violations.append(f"it ended by itself with status {status}")
            await asyncio.sleep(1)
        told.deaths += 1


async def _end_politely(program: ShiftbossProcess, told: StoryResult, story: CrashStory) -> None:
    status = await program.stop()
    for _ in range(_LIVES_AFTER):
        was_cut_short = status in {_KILLED, -signal.SIGTERM}
        if not was_cut_short and (status != 0 or not _left(program.home, story)):
            break
        # What writes by itself, as the self-check does, may do so as it is told to stop, and the
        # story's last point may lie there, too: the next life sends it.
        told.deaths += status == _KILLED
        program.settings = {**program.settings, "DEADLY_POINTS": ""}
        await program.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while _left(program.home, story):
                    await asyncio.sleep(_LOOK_EVERY)
        status = await program.stop()
    if status != 0:
        told.violations.append(f"it ended with status {status}")


def _inspect(
    told: StoryResult,
    home: Path,
    channel: ChannelClient,
    story: CrashStory,
    program: ShiftbossProcess,
) -> None:
    told.points = read_points(home)
    told.output = program.printed
    told.repeats = count_repeats(channel)
    told.skipped = len(rightly_skipped(home, told.points))
    told.violations += violations(_ended(home, channel, story))
    if story.check_memory is not None:
        told.violations += [*unsettled_memory(home, stopped=True), *story.check_memory(home)]
    if channel.count_unacknowledged():
        told.violations.append(f"{channel.count_unacknowledged()} messages unheard")
    told.violations += tracebacks(told.output)


def _ended(home: Path, channel: ChannelClient, story: CrashStory) -> FinishedRun:
    return FinishedRun(
        home=home,
        front=channel,
        points=read_points(home),
        ends=story.final_statuses,
        files=story.files,
        unsure=story.optional_files,
    )


def tracebacks(output: str) -> list[str]:
    """The line that each traceback in the log ends with."""
    found = []
    for part in output.split("Traceback (most recent call last):")[1:]:
        ends = (line for line in part.splitlines()[1:] if line and not line.startswith(" "))
        found.append(f"a traceback in the log: {next(ends, '')[:300]}")
    return found
