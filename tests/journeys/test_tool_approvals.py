"""Workers that want something risky, or to know something: by card, and over a death."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.journeys.model_world import (
    ModelWorld,
    label_with,
    model_world,
    script_task,
    wait_for_message,
)
from tests.journeys.platform_world import press_outcome
from tests.thoroughness import thorough_only

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTES = "AGENTS.md"
"""Writing a control file needs approval."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(
        tmp_path_factory.mktemp("home"), "anthropic", SHIFTBOSS_LANGUAGE="en"
    ) as made:
        yield made


def writes(content: str, path: str = NOTES) -> ScriptedReply:
    return ScriptedReply(
        calls=[ScriptedCall(name="write", arguments={"path": path, "content": content})]
    )


def asks(question: str, *options: str) -> ScriptedReply:
    arguments = {"question": question, "options": list(options)}
    return ScriptedReply(calls=[ScriptedCall(name="ask_user", arguments=arguments)])


def written(world: ModelWorld, content: str) -> list[Any]:
    found = (world.program.home / "work").rglob(NOTES)
    return [path for path in found if content in path.read_text(encoding="utf-8")]


def is_open(message: TelegramMessage | FeishuMessage, *parts: str) -> bool:
    shown = any("Once" in label for label in message.buttons)
    return shown and all(part in message.text for part in parts)


async def request_in(chat: TelegramChat, *parts: str) -> TelegramMessage:
    return await chat.wait_for(lambda m: m.from_bot and is_open(m, *parts))


async def test_an_approval_shows_the_exact_call_which_runs_once_across_a_crash(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, script_task(world.script, "kill", writes("deadly notes")))
    asked = await request_in(chat, "deadly notes", NOTES)
    assert not written(world, "deadly notes")
    once = str(asked.button(label_with(asked.buttons, "Once"))["callback_data"])

    await world.program.kill()
    press = boss.press(asked, "", once)
    await world.program.start()

    assert "Approved" in await press_outcome(press, "Approved")
    await wait_for_message(chat, "Task finished", "It is done: kill.")
    assert len(written(world, "deadly notes")) == 1
    await wait_for_message(chat, "Approved", NOTES, "Boss")
    results = [
        one.tool_results for one in world.script.requests_for("step-kill") if one.tool_results
    ]
    assert len(results) == 2, "the call's result, and the report's"


async def test_a_rejection_on_feishu_reaches_the_worker_and_the_task_continues(
    world: ModelWorld,
) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    await boss.says(chat, script_task(world.script, "no", writes("never notes")))
    asked = await chat.wait_for(lambda m: is_open(m, "never notes"))

    await boss.presses(asked, label_with(asked.buttons, "❌"))

    await chat.wait_for(lambda m: "It is done: no." in m.text)
    assert not written(world, "never notes")
    assert any("said no" in str(one.tool_results) for one in world.script.requests_for("step-no"))


async def test_approval_for_this_task_covers_the_same_call_only_in_that_task(
    world: ModelWorld,
) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    await boss.says(
        chat, script_task(world.script, "more", writes("first notes"), writes("second notes"))
    )
    asked = await chat.wait_for(lambda m: is_open(m, "first notes"))
    await boss.presses(asked, label_with(asked.buttons, "this task"))
    await chat.wait_for(lambda m: "It is done: more." in m.text)
    assert written(world, "second notes")

    await boss.says(chat, script_task(world.script, "other", writes("third notes")))
    again = await chat.wait_for(lambda m: is_open(m, "third notes"))
    await boss.presses(again, label_with(again.buttons, "❌"))
    await chat.wait_for(lambda m: "It is done: other." in m.text)


async def test_a_standing_permission_is_listed_with_its_grantor_and_can_be_revoked(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, script_task(world.script, "ever", writes("x", ".envrc")))
    asked = await request_in(chat, ".envrc")
    await boss.presses(asked, label_with(asked.buttons, "Always"))
    await wait_for_message(chat, "It is done: ever.")
    await boss.says(chat, script_task(world.script, "anew", writes("y", ".envrc")))
    await wait_for_message(chat, "It is done: anew.")

    await boss.says(chat, "/tools")
    listed = await wait_for_message(chat, "Standing permissions", "always", ".envrc", "Boss")
    number = re.search(r"(\d+) · always", listed.text)
    assert number
    await boss.says(chat, f"/tools revoke {number[1]}")
    await wait_for_message(chat, "Revoked")

    await boss.says(chat, script_task(world.script, "back", writes("z", ".envrc")))
    again = await request_in(chat, ".envrc", "task-back")
    await boss.presses(again, label_with(again.buttons, "❌"))
    await wait_for_message(chat, "It is done: back.")


async def test_a_question_is_answered_by_a_button_and_by_a_reply(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    colour, size = asks("Which colour?", "red", "blue"), asks("Which size?", "small", "large")
    await boss.says(chat, script_task(world.script, "ask", colour, size))
    first = await wait_for_message(chat, "Which colour?", "1. red")
    await boss.presses(first, label_with(first.buttons, "blue"))
    second = await wait_for_message(chat, "Which size?", "2. large")
    # Nobody replies before the program knows that its question is there; this answer comes after.
    await boss.says(chat, "/list")
    await wait_for_message(chat, "Tasks (")
    await boss.says(chat, "2", reply_to=second)

    await wait_for_message(chat, "It is done: ask.")
    results = [one.tool_results for one in world.script.requests_for("step-ask")]
    assert ("ask_user", "blue") in results[-2]
    assert ("ask_user", "large") in results[-1]


async def test_a_question_on_feishu_is_answered_in_its_form(world: ModelWorld) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    await boss.says(chat, script_task(world.script, "form", asks("Which name?")))
    asked = await chat.wait_for(
        lambda m: "Which name?" in m.text and any("Send" in label for label in m.buttons),
    )
    await boss.presses(asked, label_with(asked.buttons, "Send"), text="Nora")

    await chat.wait_for(lambda m: "It is done: form." in m.text)
    assert ("ask_user", "Nora") in world.script.requests_for("step-form")[-1].tool_results


@thorough_only
async def test_chat_waits_for_approval_across_a_crash_and_continues_by_itself(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    world.script.script(
        "chat-cue", "talk", writes("talked notes"), ScriptedReply(text="They are there now.")
    )
    await boss.says(chat, "please do chat-cue")
    asked = await request_in(chat, "talked notes", NOTES)
    await wait_for_message(chat, "Waiting for approval")

    await world.program.kill()
    press = boss.press(asked, label_with(asked.buttons, "Once"))
    await world.program.start()

    assert "Approved" in (await press.answer()).text
    await wait_for_message(chat, "They are there now.")


async def test_chat_on_feishu_waits_for_approval_and_a_new_message_withdraws_it(
    world: ModelWorld,
) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    world.script.script("lark-cue", "talk", writes("lark notes"))
    world.script.script("something else", "talk", ScriptedReply(text="Of course."))
    await boss.says(chat, "please do lark-cue")
    asked = await chat.wait_for(lambda m: is_open(m, "lark notes"))
    await boss.says(chat, "something else")

    await chat.wait_for(lambda m: "Of course." in m.text)
    await chat.wait_for(lambda m: m is asked and "has already continued" in m.text)


@thorough_only
async def test_chat_continues_across_a_crash_when_its_approval_expires(
    tmp_path: Path,
) -> None:
    async with model_world(tmp_path, "anthropic", SHIFTBOSS_APPROVAL_HOURS="0.0005") as world:
        boss, chat = world.new_owner()
        lark, chief = world.feishu_chat, world.feishu_owner
        for cue in ("late-cue", "晚了的事"):
            world.script.script(
                cue, "talk", writes(f"{cue} notes"), ScriptedReply(text=f"Not now, {cue}.")
            )
        await boss.says(chat, "please do late-cue")
        await chief.says(lark, "请做晚了的事")
        await wait_for_message(chat, "late-cue notes")
        await world.program.kill()
        await world.program.start()

        await wait_for_message(chat, "Not now, late-cue.")
        await lark.wait_for(lambda m: "Not now, 晚了的事." in m.text)
        await wait_for_message(chat, "Expired", NOTES)
        assert "in time" in str(world.script.requests_for("late-cue")[-1].tool_results)
        assert not list((world.program.home / "workspaces").rglob(NOTES))
