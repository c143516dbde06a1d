"""Talk whose turn was cut off goes on from there: what it has done is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.bot.engine.agent.conversation.test_resumption import Room, room
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.permissions.builders import ScriptedWorker, reply_with_call
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.engine_harness import CHAT, ManualClock
from tests.journeys.model_world import ScriptedModel
from tests.waiting import WAIT_SECONDS

CUE = "note it down"
COMMITS = 7
"""Of a turn with one call, before its answer is stored: the session, each of two requests and
replies, the call, and its result."""
COMMITS_UNTIL_CALLED = 4


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


def calls_until_told(tool: str, *commands: str) -> Callable[[ReceivedRequest], ScriptedReply]:
    """The worker wants these calls, one after the other, and then says what the last one said."""

    def line(asked: ReceivedRequest) -> ScriptedReply:
        said = [text for name, text in asked.tool_results if name == tool]
        if len(said) < len(commands):
            return reply_with_call(tool, commands[len(said)])
        return ScriptedReply(text=f"It said: {said[-1]}")

    return line


def until_told(tool: str, *commands: str) -> ScriptedModel:
    stage = ScriptedModel()
    stage.script(CUE, "talk", calls_until_told(tool, *commands))
    return stage


async def dies(here: Room, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    death = CrashAfterCommit(nth)
    with monkeypatch.context() as patched:
        death.install(patched)
        await death.run_until_crash(here.say(CUE))


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
async def test_what_needs_no_leave_is_changed_once_whenever_death_comes(
    tmp_path: Path, models: ModelEmulator, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    hands, clock, stage = ScriptedWorker(), ManualClock(), until_told("jot", "a")
    async with room(tmp_path, models, stage, hands, clock) as here:
        await dies(here, monkeypatch, nth)
    made = list(hands.ran)
    async with room(tmp_path, models, stage, hands, clock) as here:
        answer = await here.say(CUE)

    cut_off = "Look at what it has done before you do it again" in answer.text
    assert hands.ran == ["jot a"] or (hands.ran == [] and cut_off)
    assert "it is note 1" in answer.text or cut_off
    assert not made or hands.ran == made
    assert models.refused == []


class Lost:
    """A turn whose calls have all come back, and whose death came before it was kept."""

    def __init__(self, path: Path, models: ModelEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self._path = path
        self._models = models
        self._monkeypatch = monkeypatch

    async def of(self, tool: str, *commands: str) -> ScriptedWorker:
        hands, stage, came = ScriptedWorker(), until_told(tool, *commands), asyncio.Event()

        async def never(*_args: object) -> None:
            came.set()
            await asyncio.Event().wait()

        async with room(self._path, self._models, stage, hands, self.clock) as here:
            with self._monkeypatch.context() as patched:
                patched.setattr(here.talk, "_record_answer", never)
                telling = asyncio.create_task(here.say(CUE))
                async with asyncio.timeout(WAIT_SECONDS):
                    await came.wait()
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
        return hands


@pytest.fixture
def lost(tmp_path: Path, models: ModelEmulator, monkeypatch: pytest.MonkeyPatch) -> Lost:
    return Lost(tmp_path, models, monkeypatch)


@pytest.mark.parametrize("tool", ["look", "jot"])
async def test_a_turn_that_was_complete_is_answered_without_the_model(
    tmp_path: Path, models: ModelEmulator, lost: Lost, tool: str
) -> None:
    hands = await lost.of(tool, "a", "a")
    made = list(hands.ran)
    stage = ScriptedModel()
    async with room(tmp_path, models, stage, hands, lost.clock) as here:
        answer = await here.say(CUE)

    assert hands.ran == made == [f"{tool} a"] * 2
    assert answer.text.startswith("It said: ")
    assert stage.requests == []


async def test_reading_that_was_cut_off_is_done_again(
    tmp_path: Path, models: ModelEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands, clock, stage = ScriptedWorker(), ManualClock(), until_told("look", "a")
    async with room(tmp_path, models, stage, hands, clock) as here:
        await dies(here, monkeypatch, COMMITS_UNTIL_CALLED)
    assert hands.ran == []
    async with room(tmp_path, models, stage, hands, clock) as here:
        answer = await here.say(CUE)

    assert hands.ran == ["look a"]
    assert "cut off" not in answer.text
    _, second = stage.requests
    assert [name for name, _ in second.tool_results] == ["look"]


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are not stored in part, as with a coding CLI, which keeps its turns itself."""
    monkeypatch.setattr("bot.engine.agent.conversation.service._turn_key", lambda _question: "")


@pytest.mark.usefixtures("forgetful")
async def test_a_session_that_has_forgotten_its_turn_makes_nothing_again(
    tmp_path: Path, models: ModelEmulator, lost: Lost
) -> None:
    hands = await lost.of("jot", "a", "a")
    assert hands.ran == ["jot a", "jot a"]
    stage = until_told("jot", "a", "a", "a")
    async with room(tmp_path, models, stage, hands, lost.clock) as here:
        answer = await here.say(CUE)

    assert hands.ran == ["jot a"] * 3
    told = [text for asked in stage.requests for _, text in asked.tool_results]
    assert [word for word in ("note 1", "note 2", "note 3") if any(word in t for t in told)] == [
        "note 1",
        "note 2",
        "note 3",
    ]
    assert "made already" not in answer.text


@pytest.mark.usefixtures("forgetful")
async def test_a_session_that_has_forgotten_its_turn_is_told_of_its_calls_beforehand(
    tmp_path: Path, models: ModelEmulator, lost: Lost
) -> None:
    hands = await lost.of("jot", "a")
    stage = ScriptedModel()
    stage.script(CUE, "talk", ScriptedReply(text="It was done."))
    stage.script("thanks", "talk", ScriptedReply(text="Welcome."))
    async with room(tmp_path, models, stage, hands, lost.clock) as here:
        await here.say(CUE)
        await here.say("thanks", "inbox:2")

    first, second = stage.requests
    assert "jot a (done)" in first.last_text
    assert "jot a" not in second.last_text, "once it is in the transcript it is said no more"


async def test_another_try_goes_on_after_the_calls_of_the_first(
    tmp_path: Path, models: ModelEmulator
) -> None:
    away = ScriptedReply(failure=ScriptedFailure(status=500, message="Away."))
    hands, stage = ScriptedWorker(), ScriptedModel()
    stage.script(CUE, "talk", reply_with_call("jot", "a"), away, calls_until_told("jot", "a"))
    async with room(tmp_path, models, stage, hands) as here:
        answer = await here.say(CUE)

    assert hands.ran == ["jot a"]
    assert answer.text == "It said: it is note 1"
    assert len(stage.requests) == 3


async def test_a_later_turn_may_well_do_the_same_again(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hands, stage = ScriptedWorker(), until_told("jot", "a")
    async with room(tmp_path, models, stage, hands) as here:
        await here.say(CUE)
        await here.say(CUE)

    assert hands.ran == ["jot a", "jot a"]


async def test_an_answer_that_somebody_cut_short_is_remembered_alike(
    tmp_path: Path, models: ModelEmulator
) -> None:
    hold = asyncio.Event()
    hands, stage = ScriptedWorker(), ScriptedModel()
    calls = [ScriptedCall(name="jot", arguments={"command": "a"})]
    stage.script(CUE, "talk", ScriptedReply(calls=calls), ScriptedReply(text="Well", hold=hold))
    stage.script("really", "talk", calls_until_told("jot", "a"))
    async with room(tmp_path, models, stage, hands) as here:
        telling = asyncio.create_task(here.say(CUE))
        await stage.wait_for_request(CUE, "talk", 2)
        here.talk.interrupt(CHAT.id)
        await telling
        answer = await here.say("really, do it", "inbox:2")

    assert hands.ran == ["jot a"]
    assert "it is note 1" in answer.text
