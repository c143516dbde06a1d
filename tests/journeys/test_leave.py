"""Workers that want something risky, or to know something: by card, and over a death."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.feishu.world import Message as FeishuMessage
from tests.emulators.models.script import Call, Reply
from tests.emulators.telegram.chats import Chat, Message
from tests.journeys.model_world import PATIENCE, World, done, label_with, steps, told, world
from tests.thorough import long

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTES = "AGENTS.md"
"""What agents obey: to write it takes leave."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    async with world(tmp_path_factory.mktemp("home"), "anthropic", SHIFTBOSS_LANGUAGE="en") as made:
        yield made


def writes(content: str, path: str = NOTES) -> Reply:
    return Reply(calls=[Call(name="write", arguments={"path": path, "content": content})])


def asks(question: str, *options: str) -> Reply:
    arguments = {"question": question, "options": list(options)}
    return Reply(calls=[Call(name="ask_user", arguments=arguments)])


def staged(place: World, cue: str, *lines: Reply) -> str:
    """A task of one step, and what its worker says before it is done."""
    place.stage.on(f"task-{cue}", "plan", steps(f"step-{cue}"))
    place.stage.on(f"step-{cue}", "step", *lines, done(f"It is done: {cue}."))
    return f"/run task-{cue}"


def written(place: World, content: str) -> list[Any]:
    found = (place.shiftboss.home / "work").rglob(NOTES)
    return [path for path in found if content in path.read_text(encoding="utf-8")]


def is_open(message: Message | FeishuMessage, *parts: str) -> bool:
    shown = any("Once" in label for label in message.buttons)
    return shown and all(part in message.text for part in parts)


async def request_in(chat: Chat, *parts: str) -> Message:
    return await chat.wait_for(lambda m: m.from_bot and is_open(m, *parts), timeout=PATIENCE)


async def test_a_risky_call_is_asked_with_its_exact_words_and_made_once_over_a_death(
    place: World,
) -> None:
    boss, chat = place.boss()
    await boss.says(chat, staged(place, "kill", writes("deadly notes")))
    asked = await request_in(chat, "deadly notes", NOTES)
    assert not written(place, "deadly notes")
    once = str(asked.button(label_with(asked.buttons, "Once"))["callback_data"])

    await place.shiftboss.kill()
    press = boss.press(asked, "", once)
    await place.shiftboss.start()
    answer = await press.answer(PATIENCE)

    assert "Approved" in answer.text
    await told(chat, "Task finished", "It is done: kill.")
    assert len(written(place, "deadly notes")) == 1
    await told(chat, "Approved", NOTES, "Boss")
    results = [one.results for one in place.stage.heard("step-kill") if one.results]
    assert len(results) == 2, "the call's result, and the report's"


async def test_a_no_on_feishu_reaches_the_worker_and_the_task_goes_on(place: World) -> None:
    chat, boss = place.feishu_chat, place.feishu_boss
    await boss.says(chat, staged(place, "no", writes("never notes")))
    asked = await chat.wait_for(lambda m: is_open(m, "never notes"), timeout=PATIENCE)

    await boss.presses(asked, label_with(asked.buttons, "❌"))

    await chat.wait_for(lambda m: "It is done: no." in m.text, timeout=PATIENCE)
    assert not written(place, "never notes")
    assert any("said no" in str(one.results) for one in place.stage.heard("step-no"))


async def test_for_this_task_covers_the_same_again_and_only_there(place: World) -> None:
    chat, boss = place.feishu_chat, place.feishu_boss
    await boss.says(chat, staged(place, "more", writes("first notes"), writes("second notes")))
    asked = await chat.wait_for(lambda m: is_open(m, "first notes"), timeout=PATIENCE)
    await boss.presses(asked, label_with(asked.buttons, "this task"))
    await chat.wait_for(lambda m: "It is done: more." in m.text, timeout=PATIENCE)
    assert written(place, "second notes")

    await boss.says(chat, staged(place, "other", writes("third notes")))
    again = await chat.wait_for(lambda m: is_open(m, "third notes"), timeout=PATIENCE)
    await boss.presses(again, label_with(again.buttons, "❌"))
    await chat.wait_for(lambda m: "It is done: other." in m.text, timeout=PATIENCE)


async def test_always_is_listed_with_who_gave_it_and_taken_back(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, staged(place, "ever", writes("x", ".envrc")))
    asked = await request_in(chat, ".envrc")
    await boss.presses(asked, label_with(asked.buttons, "Always"))
    await told(chat, "It is done: ever.")
    await boss.says(chat, staged(place, "anew", writes("y", ".envrc")))
    await told(chat, "It is done: anew.")

    await boss.says(chat, "/tools")
    listed = await told(chat, "What workers may do", "always", ".envrc", "Boss")
    number = re.search(r"(\d+) · always", listed.text)
    assert number
    await boss.says(chat, f"/tools revoke {number[1]}")
    await told(chat, "Taken back")

    await boss.says(chat, staged(place, "back", writes("z", ".envrc")))
    again = await request_in(chat, ".envrc", "task-back")
    await boss.presses(again, label_with(again.buttons, "❌"))
    await told(chat, "It is done: back.")


async def test_a_question_is_answered_by_a_button_and_by_a_reply(place: World) -> None:
    boss, chat = place.boss()
    colour, size = asks("Which colour?", "red", "blue"), asks("Which size?", "small", "large")
    await boss.says(chat, staged(place, "ask", colour, size))
    first = await told(chat, "Which colour?", "1. red")
    await boss.presses(first, label_with(first.buttons, "blue"))
    second = await told(chat, "Which size?", "2. large")
    await boss.says(chat, "2", reply_to=second)

    await told(chat, "It is done: ask.")
    results = [one.results for one in place.stage.heard("step-ask")]
    assert ("ask_user", "blue") in results[-2]
    assert ("ask_user", "large") in results[-1]


async def test_a_question_on_feishu_is_answered_in_its_form(place: World) -> None:
    chat, boss = place.feishu_chat, place.feishu_boss
    await boss.says(chat, staged(place, "form", asks("Which name?")))
    asked = await chat.wait_for(
        lambda m: "Which name?" in m.text and any("Send" in label for label in m.buttons),
        timeout=PATIENCE,
    )
    await boss.presses(asked, label_with(asked.buttons, "Send"), text="Nora")

    await chat.wait_for(lambda m: "It is done: form." in m.text, timeout=PATIENCE)
    assert ("ask_user", "Nora") in place.stage.heard("step-form")[-1].results


@long
async def test_talk_waits_for_leave_over_a_death_and_goes_on_by_itself(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("chat-cue", "talk", writes("talked notes"), Reply(text="They are there now."))
    await boss.says(chat, "please do chat-cue")
    asked = await request_in(chat, "talked notes", NOTES)
    await told(chat, "I need your leave first")

    await place.shiftboss.kill()
    press = boss.press(asked, label_with(asked.buttons, "Once"))
    await place.shiftboss.start()

    assert "Approved" in (await press.answer(PATIENCE)).text
    await told(chat, "They are there now.")


async def test_talk_on_feishu_waits_for_leave_and_a_new_word_takes_it_back(place: World) -> None:
    chat, boss = place.feishu_chat, place.feishu_boss
    place.stage.on("lark-cue", "talk", writes("lark notes"))
    place.stage.on("something else", "talk", Reply(text="Of course."))
    await boss.says(chat, "please do lark-cue")
    asked = await chat.wait_for(lambda m: is_open(m, "lark notes"), timeout=PATIENCE)
    await boss.says(chat, "something else")

    await chat.wait_for(lambda m: "Of course." in m.text, timeout=PATIENCE)
    await chat.wait_for(lambda m: m is asked and "has gone on without" in m.text, timeout=PATIENCE)


@long
async def test_talk_that_nobody_decides_about_in_time_goes_on_by_itself_also_over_a_death(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "anthropic", SHIFTBOSS_APPROVAL_HOURS="0.0005") as place:
        boss, chat = place.boss()
        lark, chief = place.feishu_chat, place.feishu_boss
        for cue in ("late-cue", "晚了的事"):
            place.stage.on(cue, "talk", writes(f"{cue} notes"), Reply(text=f"Not now, {cue}."))
        await boss.says(chat, "please do late-cue")
        await chief.says(lark, "请做晚了的事")
        await told(chat, "late-cue notes")
        await place.shiftboss.kill()
        await place.shiftboss.start()

        await told(chat, "Not now, late-cue.")
        await lark.wait_for(lambda m: "Not now, 晚了的事." in m.text, timeout=PATIENCE)
        await told(chat, "Expired", NOTES)
        assert "in time" in str(place.stage.heard("late-cue")[-1].results)
        assert not list((place.shiftboss.home / "workspaces").rglob(NOTES))
