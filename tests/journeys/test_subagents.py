"""Workers that send off helpers: told once, over a death, and the chat answers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.chaos.inspection import rows
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.journeys.model_world import (
    ModelWorld,
    label_with,
    model_world,
    plan_reply,
    step_reply,
    wait_for_message,
)
from tests.thoroughness import thorough_only

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGIN = "Your helpers report"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(
        tmp_path_factory.mktemp("home"), "anthropic", SHIFTBOSS_LANGUAGE="en"
    ) as made:
        yield made


def sends(*tasks: str) -> ScriptedReply:
    calls = [
        ScriptedCall(name="sessions_spawn", arguments={"task": each, "label": f"label {each}"})
        for each in tasks
    ]
    return ScriptedReply(calls=calls)


def states(world: ModelWorld) -> list[str]:
    return sorted(row[0] for row in rows(world.program.home, "SELECT status FROM helpers"))


def waits(world: ModelWorld) -> bool:
    """A task has nothing left to do but to hear of its helpers."""
    query = "SELECT id FROM tasks WHERE status_reason = 'helpers.waits'"
    return bool(rows(world.program.home, query))


def told_in(world: ModelWorld, cue: str) -> list[ReceivedRequest]:
    """The requests that began with what helpers report."""
    return [asked for asked in world.script.requests_for(cue) if BEGIN in asked.last_text]


@thorough_only
async def test_a_task_with_two_helpers_over_a_death_is_told_each_result_once(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    held = asyncio.Event()
    world.script.script("task-pair", "plan", plan_reply("step-pair"))
    world.script.script(
        "step-pair",
        "step",
        sends("help-good", "help-bad"),
        step_reply("Sent two off."),
        step_reply("Put together."),
    )
    world.script.script(
        "help-good",
        "talk",
        ScriptedReply(text="never seen", hold=held),
        ScriptedReply(text="The sea is blue."),
    )
    world.script.script(
        "help-bad", "talk", *[ScriptedReply(failure=ScriptedFailure(status=400)) for _ in range(3)]
    )
    await boss.says(chat, "/run task-pair")
    await world.wait_until(lambda: states(world) == ["failed", "running"] and waits(world))

    await world.program.kill()
    held.set()
    await world.program.start()

    await wait_for_message(chat, "Task finished", "Put together.")
    (end,) = told_in(world, "step-pair")
    assert "The sea is blue." in end.last_text
    assert end.last_text.count("The sea is blue.") == 1
    assert "label help-bad” has failed" in end.last_text


async def test_a_chat_goes_on_by_itself_when_its_helper_has_reported(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    held = asyncio.Event()
    world.script.script(
        "chat-ask", "talk", sends("chat-help"), ScriptedReply(text="Somebody is looking.")
    )
    world.script.script(
        "chat-help",
        "talk",
        ScriptedReply(text="Clouds. " * 200, hold=held),
        ScriptedReply(text="The answer is clouds."),
    )
    await boss.says(chat, "chat-ask")
    await wait_for_message(chat, "Somebody is looking.")
    held.set()

    await wait_for_message(chat, "The answer is clouds.")
    (asked,) = told_in(world, "chat-help")
    assert "the whole of it, 1599 characters" in asked.last_text
    kept = list((world.program.home / "workspaces").rglob(".shiftboss/helpers/*.md"))
    assert [len(path.read_text(encoding="utf-8")) for path in kept] == [1599]


async def test_helpers_of_helpers_report_upwards_and_those_send_off_nobody(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    world.script.script("task-deep", "plan", plan_reply("step-deep"))
    world.script.script(
        "step-deep", "step", sends("deep-one"), step_reply("Sent one."), step_reply("All told.")
    )
    note = ScriptedCall(name="memory_propose", arguments={"text": "The lamp is always green"})
    world.script.script(
        "deep-one",
        "talk",
        ScriptedReply(calls=[note]),
        sends("deep-two"),
        ScriptedReply(text="Two is at it."),
    )
    world.script.script(
        "deep-two",
        "talk",
        sends("deep-three"),
        ScriptedReply(text="Two did it alone."),
        ScriptedReply(text="One says: two did it."),
    )
    await boss.says(chat, "/run task-deep")

    await wait_for_message(chat, "Task finished", "All told.")
    results = [
        text for asked in world.script.requests_for("deep-two") for _, text in asked.tool_results
    ]
    assert [text for text in results if "accepted" not in text] == [
        "Error: a helper's helper cannot start another: do it yourself"
    ]
    helper = world.script.requests_for("deep-one")[0]
    assert {"memory_propose", "page_edit"} & set(helper.tools) == {"memory_propose"}
    proposed = "SELECT state FROM memories WHERE text = 'The lamp is always green'"
    assert rows(world.program.home, proposed) == [("candidate",)]
    (end,) = told_in(world, "step-deep")
    assert "One says: two did it." in end.last_text
    assert "Two did it alone." not in end.last_text


async def test_a_helper_waits_for_leave_and_goes_on_with_it(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    wish = ScriptedCall(
        name="write", arguments={"path": "AGENTS.md", "content": "kept by a helper"}
    )
    world.script.script("task-leave", "plan", plan_reply("step-leave"))
    world.script.script(
        "step-leave", "step", sends("help-leave"), step_reply("Sent it."), step_reply("All told.")
    )
    world.script.script(
        "help-leave", "talk", ScriptedReply(calls=[wish]), ScriptedReply(text="It is written.")
    )
    await boss.says(chat, "/run task-leave")

    asked = await wait_for_message(chat, "kept by a helper", "AGENTS.md")
    await boss.presses(asked, label_with(asked.buttons, "Once"))

    await wait_for_message(chat, "Task finished", "All told.")
    (end,) = told_in(world, "step-leave")
    assert "It is written." in end.last_text
    written = list((world.program.home / "work").rglob("AGENTS.md"))
    assert [path.read_text(encoding="utf-8") for path in written] == ["kept by a helper"]
