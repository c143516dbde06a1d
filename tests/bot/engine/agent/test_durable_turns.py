"""Work that dies inside a step or an answer goes on from its last stored reply or result: nothing
that was finished is called again, and every call is billed once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.api.access import ApiProvider
from storage.records.tasks import TaskStatus
from storage.usage import UsageFilter, UsageRepo
from tests.bot.engine.agent.conversation.test_resumption import room
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.permissions.builders import ScriptedWorker, permission_setup
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.engine_harness import EngineHarness, ManualClock
from tests.journeys.model_world import ScriptedModel, plan_reply, step_reply, through
from tests.thoroughness import pairs, sampled
from tests.waiting import WAIT_SECONDS


def call(tool: str, argument: str) -> ScriptedCall:
    return ScriptedCall(name=tool, arguments={"command": argument})


REPLIES = (
    (call("look", "a"),),
    (call("jot", "b"), call("jot", "c")),
    (call("look", "d"),),
)
"""The calls of each reply but the last one."""
WISHES = [f"{wish.name} {wish.arguments['command']}" for reply in REPLIES for wish in reply]
STEP_COMMITS = 30
ANSWER_COMMITS = 17
CUT_OFF = "cut off while it ran"


async def check_bills(world: EngineHarness, models: ModelEmulator, deaths: int = 1) -> None:
    """All calls are booked except the one in progress at each death."""
    booked = await UsageRepo(world.db).sum(UsageFilter())
    assert abs(booked.calls - len(models.requests)) <= deaths, (booked, len(models.requests))


def check_calls(hands: ScriptedWorker, asked: ReceivedRequest) -> None:
    """Each was made once. Of those under way at the death the worker is told that nobody knows,
    unless they only look: these are made again, if they had not begun."""
    times = Counter(hands.ran)
    unknown = sum(CUT_OFF in text for _, text in asked.tool_results)
    assert unknown <= max(map(len, REPLIES)), "only calls of one reply"
    assert all(times[wish] == 1 for wish in WISHES if wish.startswith("look")), times
    assert max(times.values()) == 1, times
    assert sum(times.values()) >= len(WISHES) - unknown, times


async def die(nth: int, monkeypatch: pytest.MonkeyPatch, life: Coroutine[Any, Any, object]) -> None:
    death = CrashAfterCommit(nth)
    with monkeypatch.context() as patched:
        death.install(patched)
        await death.run_until_crash(life)


@pytest.mark.parametrize(
    ("nth", "api"), pairs(range(1, STEP_COMMITS + 1, sampled(1, 3)), [*ApiProvider])
)
async def test_a_step_goes_on_inside_its_turn_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, api: ApiProvider
) -> None:
    hands, clock, stage = ScriptedWorker(), ManualClock(), ScriptedModel()
    stage.script("Tidy up", "plan", plan_reply("sweep"))
    stage.script("sweep", "step", through(REPLIES, step_reply("It is tidy.")))
    async with ModelEmulator() as models:

        async def live(world: EngineHarness) -> TaskStatus:
            task = await world.create_task("Tidy up", source="test:once")
            return (await world.until(task)).task.status

        async with permission_setup(tmp_path, models, stage, hands, clock=clock, api=api) as here:
            await die(nth, monkeypatch, live(here.world))
        async with permission_setup(tmp_path, models, stage, hands, clock=clock, api=api) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                ended = await live(here.world)
            await check_bills(here.world, models)

    assert ended is TaskStatus.COMPLETED
    check_calls(hands, stage.requests_for("sweep", "step")[-1])
    assert models.refused == []


def has_to_ask(home: Path) -> bool:
    """Whether nobody can know what a step that died has done: no reply of it is stored, or a call
    that changes something was under way."""
    with closing(sqlite3.connect(next(home.rglob("*.db")))) as store:
        (begun,) = store.execute(
            "SELECT count(*) FROM node_runs WHERE status = 'running' AND path NOT LIKE '@%'"
        ).fetchone()
        (open_,) = store.execute("SELECT count(*) FROM sessions WHERE open_turn != ''").fetchone()
        changing = store.execute(
            "SELECT count(*) FROM tool_calls WHERE state = 'running' AND tool = 'jot'"
        ).fetchone()[0]
    return bool(begun) and (not open_ or bool(changing))


@pytest.mark.parametrize("nth", range(1, STEP_COMMITS + 1, sampled(1, 3)))
async def test_a_step_that_must_not_be_repeated_asks_only_if_nobody_knows_what_it_has_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    hands, clock, stage = ScriptedWorker(), ManualClock(), ScriptedModel()
    stage.script("Tidy up", "plan", plan_reply("sweep", repeatable=False))
    stage.script("sweep", "step", through(REPLIES, step_reply("It is tidy.")))
    async with ModelEmulator() as models:

        async def live(world: EngineHarness) -> TaskStatus:
            task = await world.create_task("Tidy up", source="test:once")
            ended = await world.until(task, TaskStatus.COMPLETED, TaskStatus.BLOCKED)
            return ended.task.status

        async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
            await die(nth, monkeypatch, live(here.world))
        asks = has_to_ask(tmp_path)
        async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                ended = await live(here.world)

    assert ended is (TaskStatus.BLOCKED if asks else TaskStatus.COMPLETED)
    assert max(Counter(hands.ran).values(), default=1) == 1
    if not asks:
        check_calls(hands, stage.requests_for("sweep", "step")[-1])


@pytest.mark.parametrize(
    ("nth", "api"), pairs(range(1, ANSWER_COMMITS + 1, sampled(1, 2)), [*ApiProvider])
)
async def test_an_answer_goes_on_inside_its_turn_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, api: ApiProvider
) -> None:
    hands, clock, stage = ScriptedWorker(), ManualClock(), ScriptedModel()
    stage.script(
        "Sweep", "talk", through(REPLIES, lambda _asked: ScriptedReply(text="It is tidy."))
    )
    async with ModelEmulator() as models:
        async with room(tmp_path, models, stage, hands, clock, api=api) as here:
            await die(nth, monkeypatch, here.say("Sweep"))
        async with room(tmp_path, models, stage, hands, clock, api=api) as here:
            async with here.here.world.db.write() as tx:
                # As the dispatcher does when it starts.
                await UsageRepo(here.here.world.db).book_lost_calls(tx, now=clock())
            answer = await here.say("Sweep")
            await check_bills(here.here.world, models)

    assert answer.text == "It is tidy."
    check_calls(hands, stage.requests[-1])
    assert models.refused == []


async def test_a_step_that_answered_in_words_goes_on_with_a_message(tmp_path: Path) -> None:
    """Services refuse a transcript that ends in a reply."""
    hands, clock, stage = ScriptedWorker(), ManualClock(), ScriptedModel()
    away = ScriptedReply(failure=ScriptedFailure(status=529, message="Overloaded."))
    stage.script("Tidy up", "plan", plan_reply("sweep"))
    words = ScriptedReply(text="I have swept the floor.")
    stage.script("sweep", "step", words, away, step_reply("It is tidy."))
    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, stage, hands, clock=clock) as here,
    ):
        task = await here.world.create_task("Tidy up")
        async with asyncio.timeout(WAIT_SECONDS):
            ended = (await here.world.until(task)).task.status

    assert ended is TaskStatus.COMPLETED
    assert models.refused == []
    last = stage.requests_for("sweep", "step")[-1]
    assert "required form" in last.last_text
    assert "I have swept the floor." in str(last.body)
