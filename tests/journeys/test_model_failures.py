"""Failures of models: the Boss gets one clear message, never a false success."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio

from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import (
    ModelWorld,
    Scene,
    ScriptLine,
    fill_form,
    label_with,
    model_world,
    plan_reply,
    shows,
    step_reply,
    wait_for_message,
    write_call,
)
from tests.thoroughness import THOROUGH, thorough_only

pytestmark = pytest.mark.asyncio(loop_scope="module")

Script: TypeAlias = Mapping[Scene, tuple[ScriptLine, ...]]

GOOD = step_reply("all is well")
BAD_ANSWER = "empty, cut off, refused or in the wrong format"


def always(reply: ScriptedReply) -> Callable[[ReceivedRequest], ScriptedReply]:
    return lambda _asked: reply


def once(reply: ScriptedReply) -> Script:
    return {"step": (reply, GOOD)}


def failure_reply(status: int, **more: str) -> ScriptedReply:
    return ScriptedReply(failure=ScriptedFailure(status=status, **more))


PASSING: Mapping[str, Script] = {
    "rate-limit": once(failure_reply(429, retry_after="1")),
    "overload": once(failure_reply(529, retry_after="2")),
    "server-error": {"plan": (failure_reply(500), plan_reply("one")), "step": (GOOD,)},
    "dropped-midway": once(ScriptedReply(text="I begin to work on it", drop_after=4)),
    "failed-midway": once(
        ScriptedReply(
            text="I begin to work on it", failure=ScriptedFailure(status=503), fail_after=4
        )
    ),
    "no-form-at-first": {
        "plan": (ScriptedReply(text="A fine plan."), plan_reply("one")),
        "step": (GOOD,),
    },
    "wrong-arguments": once(
        ScriptedReply(calls=[ScriptedCall(name="write", arguments={"path": 5})])
    ),
    "broken-arguments": once(
        ScriptedReply(calls=[ScriptedCall(name="write", raw='{"path": "a.md", "co')])
    ),
    "unknown-tool": once(ScriptedReply(calls=[ScriptedCall(name="rm_rf", arguments={})])),
    "outside-the-folder": once(write_call("../../outside.md")),
    "ghost-at-first": {"step": (step_reply("made it", "ghost.md"), write_call("real.md"), GOOD)},
}

# A model that gives no plan does the task in one step.
NO_PLAN: Mapping[str, Script] = {
    "never-a-form": {"plan": (always(ScriptedReply(text="A fine plan.")),), "step": (GOOD,)},
    "not-the-form": {"plan": (fill_form(plan="x", steps="none"),), "step": (GOOD,)},
}
GARBAGE = always(ScriptedReply(garbage="<html>504</html>"))
FAILING: Mapping[str, tuple[Script, str]] = {
    "empty": ({"step": (always(ScriptedReply()),)}, BAD_ANSWER),
    "cut": ({"step": (always(ScriptedReply(text="I was about to", stop="cut")),)}, BAD_ANSWER),
    "refused": ({"step": (always(ScriptedReply(text="I cannot.", stop="refused")),)}, BAD_ANSWER),
    "garbage": ({"plan": (GARBAGE,), "step": (GARBAGE,)}, BAD_ANSWER),
    "ghost": ({"step": (step_reply("made it", "ghost.md"),)}, "ghost.md"),
    "endless": (
        {"step": (always(ScriptedReply(calls=[ScriptedCall(name="list")])),)},
        "The model kept making the same tool call",
    ),
    "gives-up": ({"step": (fill_form(status="error", summary="no luck here"),)}, "no luck here"),
}

# What the worker itself could not do, even by another plan, is given back to the Boss.
GIVEN_BACK = {"ghost", "gives-up"}


TALK_PASSING: Mapping[str, ScriptedReply] = {
    "talk-overload": failure_reply(529),
    "talk-rate-limit": failure_reply(429, retry_after="1"),
    "talk-dropped": ScriptedReply(text="half of an answer that", drop_after=6),
}
TALK_FAILING: Mapping[str, tuple[ScriptedReply, str]] = {
    "talk-empty": (ScriptedReply(), BAD_ANSWER),
    "talk-refused": (ScriptedReply(text="", stop="refused"), BAD_ANSWER),
    "talk-garbage": (ScriptedReply(garbage="<html>504</html>"), BAD_ANSWER),
    "talk-away": (failure_reply(429, retry_after="3600"), "is unreachable or overloaded"),
    "talk-too-poor": (failure_reply(402), "credit"),
}


@dataclass
class FailureWorld:
    """A program on which everything troubled has been begun at once, each in a chat of its own."""

    world: ModelWorld
    bosses: dict[str, TelegramUser] = field(default_factory=dict)
    chats: dict[str, TelegramChat] = field(default_factory=dict)

    async def begin(self, cue: str, script: Script) -> None:
        if "plan" not in script:
            self.world.script.script(cue, "plan", plan_reply("one"))
        for scene, lines in script.items():
            self.world.script.script(cue, scene, *lines)
        await self.say(cue, f"/run the case of {cue}!")

    async def talk(self, cue: str, *lines: ScriptLine) -> None:
        self.world.script.script(cue, "talk", *lines)
        await self.say(cue, f"hello {cue}")

    async def say(self, cue: str, text: str) -> None:
        self.bosses[cue], self.chats[cue] = self.world.new_owner()
        await self.bosses[cue].says(self.chats[cue], text)

    async def wait_for_end(self, cue: str) -> TelegramMessage:
        return await self.chats[cue].wait_for(is_ending)


def is_ending(message: TelegramMessage) -> bool:
    return any(shows(message, f"Task {word}") for word in ("finished", "failed", "blocked"))


# Both wire formats meet each trouble in the tests of their backends; here one of them is enough.
APIS = ["anthropic", "openai"] if THOROUGH else ["anthropic"]


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=APIS)
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[FailureWorld, None]:
    async with model_world(tmp_path_factory.mktemp("home"), request.param) as made:
        world = FailureWorld(made)
        for cue, script in (*PASSING.items(), *NO_PLAN.items()):
            await world.begin(cue, script)
        for cue, (script, _) in FAILING.items():
            await world.begin(cue, script)
        for cue, reply in TALK_PASSING.items():
            await world.talk(cue, reply, ScriptedReply(text="the whole answer"))
        for cue, (reply, _) in TALK_FAILING.items():
            await world.talk(cue, always(reply))
        yield world


@pytest.mark.parametrize("cue", list(PASSING))
async def test_a_temporary_failure_is_retried_without_a_message(
    world: FailureWorld, cue: str
) -> None:
    ending = await world.wait_for_end(cue)

    assert "Task finished" in ending.text
    assert [m for m in world.chats[cue].from_bot if is_ending(m)] == [ending]
    assert not (world.world.program.home.parent / "outside.md").exists()


@pytest.mark.parametrize("cue", list(NO_PLAN))
async def test_a_task_without_a_plan_is_done_in_one_step_and_says_so(
    world: FailureWorld, cue: str
) -> None:
    ending = await world.wait_for_end(cue)

    assert "Task finished" in ending.text
    assert len(world.world.script.requests_for(f"{cue}!", "plan")) == 2, "asked once more"
    assert any(shows(m, "runs as one step") for m in world.chats[cue].from_bot)


@pytest.mark.parametrize("cue", list(FAILING))
async def test_a_permanent_failure_is_reported_once_and_never_as_success(
    world: FailureWorld, cue: str
) -> None:
    ending = await world.wait_for_end(cue)
    chat = world.chats[cue]

    assert ("Task blocked" if cue in GIVEN_BACK else "Task failed") in ending.text
    assert FAILING[cue][1] in ending.text
    assert [m for m in chat.from_bot if is_ending(m)] == [ending]
    assert len(chat.from_bot) == 2, "the live card, and the message that tells the end"
    assert not any(m.upload for m in chat.from_bot)
    if world.world.api == "anthropic" and cue != "garbage":
        assert re.search(r"💰 \$0\.\d{4}", ending.text), "what failed was paid for too"


async def test_an_endless_loop_ends_at_the_limit(world: FailureWorld) -> None:
    await world.wait_for_end("endless")

    assert len(world.world.script.requests_for("endless!", "step")) <= 2 * 20


async def test_a_slow_answer_does_not_hold_up_other_tasks(world: FailureWorld) -> None:
    go = asyncio.Event()
    script: Script = {"step": (ScriptedReply(hold=go), GOOD)}
    await world.begin("slow", script)
    await world.world.wait_until(lambda: world.world.script.requests_for("slow!", "step"))
    await world.begin("beside-it", {"step": (GOOD,)})
    assert "Task finished" in (await world.wait_for_end("beside-it")).text
    assert not any(is_ending(m) for m in world.chats["slow"].from_bot)
    go.set()
    # Held back and then empty: the step is tried again.
    assert "Task finished" in (await world.wait_for_end("slow")).text


@pytest.mark.parametrize("cue", list(TALK_PASSING))
async def test_chat_retries_a_temporary_failure(world: FailureWorld, cue: str) -> None:
    answer = await wait_for_message(world.chats[cue], "the whole answer")

    assert answer.text.split("\n")[0] == "the whole answer"
    assert world.chats[cue].from_bot == [answer]


@pytest.mark.parametrize("cue", list(TALK_FAILING))
async def test_chat_that_fails_says_so_and_the_next_question_is_answered(
    world: FailureWorld, cue: str
) -> None:
    chat = world.chats[cue]
    failure = await wait_for_message(chat, "couldn't answer", TALK_FAILING[cue][1])
    await world.bosses[cue].says(chat, "and now?")
    answer = await wait_for_message(chat, "and now?")

    assert chat.from_bot == [failure, answer]


async def test_a_wrong_key_blocks_tasks_until_it_is_corrected(tmp_path: Path) -> None:
    async with model_world(tmp_path, "openai", OPENAI_API_KEY="sk-wrong-and-secret") as world:
        boss, chat = world.new_owner()
        other, elsewhere = world.new_owner()
        await boss.says(chat, "hello")
        await wait_for_message(chat, "rejected the key", "shiftboss init")
        world.script.script("keyed", "plan", plan_reply("write keyed.md"))
        await boss.says(chat, "/run the keyed work")
        stuck = await wait_for_message(chat, "Task blocked", "rejected the key")
        await other.says(elsewhere, "/run wait: the keyed work too")
        second = await wait_for_message(elsewhere, "Task blocked")
        await world.restart(OPENAI_API_KEY=world.models.key)
        await boss.presses(stuck, label_with(stuck.buttons, "Resume"))
        await wait_for_message(chat, "Task finished")
        await other.says(elsewhere, f"/retry {second.texts_of_entity('code')[-1]}")
        await wait_for_message(elsewhere, "Task finished")

        assert len(world.script.requests_for("keyed", "plan")) == 2
        assert "sk-wrong-and-secret" not in world.program.printed
        logs = "".join(path.read_text() for path in (tmp_path / "logs").glob("*"))
        assert "sk-wrong-and-secret" not in logs


@thorough_only
async def test_finished_steps_are_not_repeated_after_a_kill(tmp_path: Path) -> None:
    async with model_world(tmp_path, "anthropic") as world:
        boss, chat = world.new_owner()
        titles = ("write k1.md", "write k2.md", "write k3.md")
        world.script.script("killed", "plan", plan_reply(*titles))
        world.script.script(
            "killed",
            "step",
            write_call("k1.md"),
            step_reply("first done", "k1.md"),
            ScriptedReply(hold=asyncio.Event()),
            write_call("k2.md"),
            step_reply("second done", "k2.md"),
            write_call("k3.md"),
            step_reply("third done", "k3.md"),
        )
        other, elsewhere = world.new_owner()
        world.script.script("harmful", "plan", plan_reply("send the letter", repeatable=False))
        world.script.script(
            "harmful", "step", ScriptedReply(hold=asyncio.Event()), step_reply("sent")
        )
        talker, talk = world.new_owner()
        held = ScriptedReply(text="I was just going to", hold=asyncio.Event(), hold_after=4)
        world.script.script("talked", "talk", held, ScriptedReply(text="an answer after all"))
        await talker.says(talk, "hello talked")
        await boss.says(chat, "/run the killed work")
        await other.says(elsewhere, "/run the harmful work")
        await world.wait_until(lambda: len(world.script.requests_for("killed", "step")) == 3)
        await world.wait_until(lambda: world.script.requests_for("harmful", "step"))
        await world.wait_until(lambda: world.script.requests_for("talked"))
        await world.program.kill()
        await world.program.start()
        await wait_for_message(chat, "Task finished", "third done", "3/3")
        stuck = await wait_for_message(elsewhere, "Task blocked", "send the letter")

        answer = await wait_for_message(talk, "an answer after all")
        assert talk.from_bot == [answer]
        asked = world.script.requests_for("killed")
        ends = [str(one.body["messages"][-1]) for one in asked]
        begun = [sum(f"Your step now: {title}" in end for end in ends) for title in titles]
        assert begun == [1, 2, 1]
        assert len(world.script.requests_for("killed", "plan")) == 1
        assert "first done" in str(asked[-1].body["messages"]), "the session is the same"
        assert len(world.script.requests_for("harmful", "step")) == 1, "not done twice unasked"
        await other.presses(stuck, label_with(stuck.buttons, "Resume"))
        await wait_for_message(elsewhere, "Task finished")
