"""What models do wrong, and what the Boss sees of it: one clear message, never a false success."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio

from tests.emulators.models.script import Asked, Call, Failure, Reply
from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.people import User
from tests.journeys.model_world import (
    Line,
    Scene,
    World,
    done,
    fill,
    label_with,
    shows,
    steps,
    told,
    world,
    writes,
)
from tests.thorough import THOROUGH, long

# Whichever test comes first waits for everything that was begun at once.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
CROWDED = 240.0

Script: TypeAlias = Mapping[Scene, tuple[Line, ...]]

GOOD = done("all is well")
BAD_ANSWER = "empty, cut off, refused or not in the asked form"


def always(reply: Reply) -> Callable[[Asked], Reply]:
    return lambda _asked: reply


def once(reply: Reply) -> Script:
    return {"step": (reply, GOOD)}


def fails(status: int, **more: str) -> Reply:
    return Reply(failure=Failure(status=status, **more))


PASSING: Mapping[str, Script] = {
    "rate-limit": once(fails(429, retry_after="1")),
    "overload": once(fails(529, retry_after="2")),
    "server-error": {"plan": (fails(500), steps("one")), "step": (GOOD,)},
    "dropped-midway": once(Reply(text="I begin to work on it", drop_after=4)),
    "failed-midway": once(
        Reply(text="I begin to work on it", failure=Failure(status=503), fail_after=4)
    ),
    "no-form-at-first": {"plan": (Reply(text="A fine plan."), steps("one")), "step": (GOOD,)},
    "wrong-arguments": once(Reply(calls=[Call(name="write", arguments={"path": 5})])),
    "broken-arguments": once(Reply(calls=[Call(name="write", raw='{"path": "a.md", "co')])),
    "unknown-tool": once(Reply(calls=[Call(name="rm_rf", arguments={})])),
    "outside-the-folder": once(writes("../../outside.md")),
    "ghost-at-first": {"step": (done("made it", "ghost.md"), writes("real.md"), GOOD)},
}

FAILING: Mapping[str, tuple[Script, str]] = {
    "empty": ({"step": (always(Reply()),)}, BAD_ANSWER),
    "cut": ({"step": (always(Reply(text="I was about to", stop="cut")),)}, BAD_ANSWER),
    "refused": ({"step": (always(Reply(text="I cannot.", stop="refused")),)}, BAD_ANSWER),
    "garbage": ({"plan": (always(Reply(garbage="<html>504</html>")),)}, BAD_ANSWER),
    "never-a-form": ({"plan": (always(Reply(text="A fine plan.")),)}, BAD_ANSWER),
    "not-the-form": ({"plan": (fill(plan="x", steps="none"),)}, BAD_ANSWER),
    "ghost": ({"step": (done("made it", "ghost.md"),)}, "ghost.md"),
    "endless": ({"step": (always(Reply(calls=[Call(name="list")])),)}, "limit for one run"),
    "gives-up": ({"step": (fill(status="error", summary="no luck here"),)}, "no luck here"),
}

# What the worker itself could not do, even by another plan, is given back to the Boss.
GIVEN_BACK = {"ghost", "gives-up"}


TALK_PASSING: Mapping[str, Reply] = {
    "talk-overload": fails(529),
    "talk-rate-limit": fails(429, retry_after="1"),
    "talk-dropped": Reply(text="half of an answer that", drop_after=6),
}
TALK_FAILING: Mapping[str, tuple[Reply, str]] = {
    "talk-empty": (Reply(), BAD_ANSWER),
    "talk-refused": (Reply(text="", stop="refused"), BAD_ANSWER),
    "talk-garbage": (Reply(garbage="<html>504</html>"), BAD_ANSWER),
    "talk-away": (fails(429, retry_after="3600"), "cannot be reached or is overloaded"),
    "talk-too-poor": (fails(402), "credit"),
}


@dataclass
class Place:
    """A program on which everything troubled has been begun at once, each in a chat of its own."""

    world: World
    bosses: dict[str, User] = field(default_factory=dict)
    chats: dict[str, Chat] = field(default_factory=dict)

    async def begin(self, cue: str, script: Script) -> None:
        if "plan" not in script:
            self.world.stage.on(cue, "plan", steps("one"))
        for scene, lines in script.items():
            self.world.stage.on(cue, scene, *lines)
        await self.say(cue, f"/run the case of {cue}!")

    async def talk(self, cue: str, *lines: Line) -> None:
        self.world.stage.on(cue, "talk", *lines)
        await self.say(cue, f"hello {cue}")

    async def say(self, cue: str, text: str) -> None:
        self.bosses[cue], self.chats[cue] = self.world.boss()
        await self.bosses[cue].says(self.chats[cue], text)

    async def ended(self, cue: str) -> Message:
        return await self.chats[cue].wait_for(is_ending, timeout=CROWDED)


def is_ending(message: Message) -> bool:
    return any(shows(message, f"Task {word}") for word in ("finished", "failed", "is stuck"))


# Both wire formats meet each trouble in the tests of their backends; here one of them is enough.
APIS = ["anthropic", "openai"] if THOROUGH else ["anthropic"]


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=APIS)
async def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Place, None]:
    async with world(tmp_path_factory.mktemp("home"), request.param) as made:
        place = Place(made)
        for cue, script in PASSING.items():
            await place.begin(cue, script)
        for cue, (script, _) in FAILING.items():
            await place.begin(cue, script)
        for cue, reply in TALK_PASSING.items():
            await place.talk(cue, reply, Reply(text="the whole answer"))
        for cue, (reply, _) in TALK_FAILING.items():
            await place.talk(cue, always(reply))
        yield place


@pytest.mark.parametrize("cue", list(PASSING))
async def test_what_passes_is_passed_over_in_silence(place: Place, cue: str) -> None:
    ending = await place.ended(cue)

    assert "Task finished" in ending.text
    assert [m for m in place.chats[cue].from_bot if is_ending(m)] == [ending]
    assert not (place.world.shiftboss.home.parent / "outside.md").exists()


@pytest.mark.parametrize("cue", list(FAILING))
async def test_what_does_not_pass_is_told_once_and_never_called_a_success(
    place: Place, cue: str
) -> None:
    ending = await place.ended(cue)
    chat = place.chats[cue]

    assert ("Task is stuck" if cue in GIVEN_BACK else "Task failed") in ending.text
    assert FAILING[cue][1] in ending.text
    assert [m for m in chat.from_bot if is_ending(m)] == [ending]
    assert len(chat.from_bot) == 2, "the live card, and the message that tells the end"
    assert not any(m.upload for m in chat.from_bot)
    if place.world.api == "anthropic" and cue != "garbage":
        assert re.search(r"💰 \$0\.\d{4}", ending.text), "what failed was paid for too"


async def test_an_endless_loop_ends_at_the_limit(place: Place) -> None:
    await place.ended("endless")

    assert len(place.world.stage.heard("endless!", "step")) <= 2 * 20


async def test_a_slow_answer_is_waited_for_while_other_things_go_on(place: Place) -> None:
    go = asyncio.Event()
    script: Script = {"step": (Reply(hold=go), GOOD)}
    await place.begin("slow", script)
    await place.world.until(lambda: place.world.stage.heard("slow!", "step"))
    await place.begin("beside-it", {"step": (GOOD,)})
    assert "Task finished" in (await place.ended("beside-it")).text
    assert not any(is_ending(m) for m in place.chats["slow"].from_bot)
    go.set()
    # Held back and then empty: the step is tried again.
    assert "Task finished" in (await place.ended("slow")).text


@pytest.mark.parametrize("cue", list(TALK_PASSING))
async def test_talk_waits_a_moment_for_a_service_that_comes_back(place: Place, cue: str) -> None:
    answer = await told(place.chats[cue], "the whole answer", timeout=CROWDED)

    assert answer.text.split("\n")[0] == "the whole answer"
    assert place.chats[cue].from_bot == [answer]


@pytest.mark.parametrize("cue", list(TALK_FAILING))
async def test_talk_that_fails_says_so_and_the_next_question_is_answered(
    place: Place, cue: str
) -> None:
    chat = place.chats[cue]
    failure = await told(chat, "could not answer", TALK_FAILING[cue][1], timeout=CROWDED)
    await place.bosses[cue].says(chat, "and now?")
    answer = await told(chat, "and now?")

    assert chat.from_bot == [failure, answer]


async def test_a_wrong_key_blocks_what_needs_it_until_it_is_put_right(tmp_path: Path) -> None:
    async with world(tmp_path, "openai", OPENAI_API_KEY="sk-wrong-and-secret") as place:
        boss, chat = place.boss()
        other, elsewhere = place.boss()
        await boss.says(chat, "hello")
        await told(chat, "refused the key", "API_KEY")
        place.stage.on("keyed", "plan", steps("write keyed.md"))
        await boss.says(chat, "/run the keyed work")
        stuck = await told(chat, "Task is stuck", "refused the key")
        await other.says(elsewhere, "/run wait: the keyed work too")
        second = await told(elsewhere, "Task is stuck")
        await place.restarted(OPENAI_API_KEY=place.models.key)
        await boss.presses(stuck, label_with(stuck.buttons, "Resume"))
        await told(chat, "Task finished")
        await other.says(elsewhere, f"/retry {second.marked('code')[-1]}")
        await told(elsewhere, "Task finished")

        assert len(place.stage.heard("keyed", "plan")) == 2
        assert "sk-wrong-and-secret" not in place.shiftboss.text
        logs = "".join(path.read_text() for path in (tmp_path / "logs").glob("*"))
        assert "sk-wrong-and-secret" not in logs


@long
async def test_a_kill_in_the_middle_of_a_step_pays_no_finished_step_again(tmp_path: Path) -> None:
    async with world(tmp_path, "anthropic") as place:
        boss, chat = place.boss()
        titles = ("write k1.md", "write k2.md", "write k3.md")
        place.stage.on("killed", "plan", steps(*titles))
        place.stage.on(
            "killed", "step",
            writes("k1.md"), done("first done", "k1.md"), Reply(hold=asyncio.Event()),
            writes("k2.md"), done("second done", "k2.md"),
            writes("k3.md"), done("third done", "k3.md"),
        )  # fmt: skip
        other, elsewhere = place.boss()
        place.stage.on("harmful", "plan", steps("send the letter", repeatable=False))
        place.stage.on("harmful", "step", Reply(hold=asyncio.Event()), done("sent"))
        talker, talk = place.boss()
        held = Reply(text="I was just going to", hold=asyncio.Event(), hold_after=4)
        place.stage.on("talked", "talk", held, Reply(text="an answer after all"))
        await talker.says(talk, "hello talked")
        await boss.says(chat, "/run the killed work")
        await other.says(elsewhere, "/run the harmful work")
        await place.until(lambda: len(place.stage.heard("killed", "step")) == 3)
        await place.until(lambda: place.stage.heard("harmful", "step"))
        await place.until(lambda: place.stage.heard("talked"))
        await place.shiftboss.kill()
        await place.shiftboss.start()
        await told(chat, "Task finished", "third done", "3/3")
        stuck = await told(elsewhere, "Task is stuck", "send the letter")

        answer = await told(talk, "an answer after all")
        assert talk.from_bot == [answer]
        asked = place.stage.heard("killed")
        ends = [str(one.body["messages"][-1]) for one in asked]
        begun = [sum(f"Your step now: {title}" in end for end in ends) for title in titles]
        assert begun == [1, 2, 1]
        assert len(place.stage.heard("killed", "plan")) == 1
        assert "first done" in str(asked[-1].body["messages"]), "the session is the same"
        assert len(place.stage.heard("harmful", "step")) == 1, "not done twice unasked"
        await other.presses(stuck, label_with(stuck.buttons, "Resume"))
        await told(elsewhere, "Task finished")
