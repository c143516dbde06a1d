"""Workers that send off helpers: told once, over a death, and the chat answers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.chaos.store import rows
from tests.emulators.models.script import Asked, Call, Failure, Reply
from tests.journeys.model_world import World, done, label_with, steps, told, world
from tests.thorough import long

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGIN = "Your helpers report"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    async with world(tmp_path_factory.mktemp("home"), "anthropic", SHIFTBOSS_LANGUAGE="en") as made:
        yield made


def sends(*tasks: str) -> Reply:
    calls = [
        Call(name="sessions_spawn", arguments={"task": each, "label": f"label {each}"})
        for each in tasks
    ]
    return Reply(calls=calls)


def states(place: World) -> list[str]:
    return sorted(row[0] for row in rows(place.shiftboss.home, "SELECT status FROM helpers"))


def waits(place: World) -> bool:
    """A task has nothing left to do but to hear of its helpers."""
    query = "SELECT id FROM tasks WHERE status_reason = 'helpers.waits'"
    return bool(rows(place.shiftboss.home, query))


def told_in(place: World, cue: str) -> list[Asked]:
    """The requests that began with what helpers report."""
    return [asked for asked in place.stage.heard(cue) if BEGIN in asked.last]


@long
async def test_a_task_with_two_helpers_over_a_death_is_told_each_result_once(
    place: World,
) -> None:
    boss, chat = place.boss()
    held = asyncio.Event()
    place.stage.on("task-pair", "plan", steps("step-pair"))
    place.stage.on(
        "step-pair",
        "step",
        sends("help-good", "help-bad"),
        done("Sent two off."),
        done("Put together."),
    )
    place.stage.on(
        "help-good", "talk", Reply(text="never seen", hold=held), Reply(text="The sea is blue.")
    )
    place.stage.on("help-bad", "talk", *[Reply(failure=Failure(status=400)) for _ in range(3)])
    await boss.says(chat, "/run task-pair")
    await place.until(lambda: states(place) == ["failed", "running"] and waits(place))

    await place.shiftboss.kill()
    held.set()
    await place.shiftboss.start()

    await told(chat, "Task finished", "Put together.")
    (end,) = told_in(place, "step-pair")
    assert "The sea is blue." in end.last
    assert end.last.count("The sea is blue.") == 1
    assert "label help-bad” has failed" in end.last


async def test_a_chat_goes_on_by_itself_when_its_helper_has_reported(place: World) -> None:
    boss, chat = place.boss()
    held = asyncio.Event()
    place.stage.on("chat-ask", "talk", sends("chat-help"), Reply(text="Somebody is looking."))
    place.stage.on(
        "chat-help",
        "talk",
        Reply(text="Clouds. " * 200, hold=held),
        Reply(text="The answer is clouds."),
    )
    await boss.says(chat, "chat-ask")
    await told(chat, "Somebody is looking.")
    held.set()

    await told(chat, "The answer is clouds.")
    (asked,) = told_in(place, "chat-help")
    assert "the whole of it, 1599 characters" in asked.last
    kept = list((place.shiftboss.home / "workspaces").rglob(".shiftboss/helpers/*.md"))
    assert [len(path.read_text(encoding="utf-8")) for path in kept] == [1599]


async def test_helpers_of_helpers_report_upwards_and_those_send_off_nobody(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("task-deep", "plan", steps("step-deep"))
    place.stage.on("step-deep", "step", sends("deep-one"), done("Sent one."), done("All told."))
    place.stage.on("deep-one", "talk", sends("deep-two"), Reply(text="Two is at it."))
    place.stage.on(
        "deep-two",
        "talk",
        sends("deep-three"),
        Reply(text="Two did it alone."),
        Reply(text="One says: two did it."),
    )
    await boss.says(chat, "/run task-deep")

    await told(chat, "Task finished", "All told.")
    results = [text for asked in place.stage.heard("deep-two") for _, text in asked.results]
    assert [text for text in results if "accepted" not in text] == [
        "Error: a helper's helper cannot send off another: do it yourself"
    ]
    (end,) = told_in(place, "step-deep")
    assert "One says: two did it." in end.last
    assert "Two did it alone." not in end.last


async def test_a_helper_waits_for_leave_and_goes_on_with_it(place: World) -> None:
    boss, chat = place.boss()
    wish = Call(name="write", arguments={"path": "AGENTS.md", "content": "kept by a helper"})
    place.stage.on("task-leave", "plan", steps("step-leave"))
    place.stage.on("step-leave", "step", sends("help-leave"), done("Sent it."), done("All told."))
    place.stage.on("help-leave", "talk", Reply(calls=[wish]), Reply(text="It is written."))
    await boss.says(chat, "/run task-leave")

    asked = await told(chat, "kept by a helper", "AGENTS.md")
    await boss.presses(asked, label_with(asked.buttons, "Once"))

    await told(chat, "Task finished", "All told.")
    (end,) = told_in(place, "step-leave")
    assert "It is written." in end.last
    written = list((place.shiftboss.home / "work").rglob("AGENTS.md"))
    assert [path.read_text(encoding="utf-8") for path in written] == ["kept by a helper"]
