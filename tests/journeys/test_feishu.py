"""The first journey on Feishu: the real program on an emulated open platform."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.tenant import FeishuChat, FeishuMessage
from tests.emulators.feishu.users import FeishuUser
from tests.journeys.model_world import held_reply, plan_reply, scripted_model, step_reply
from tests.journeys.platform_world import feishu_press_outcome
from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.program_store import open_store
from tests.thoroughness import thorough_only

HAIKU = "write a haiku about queues and save it to haiku.md"
SLOW = 'wait 2 seconds, then write "hello" to a.txt, then list the folder'


@pytest.fixture
async def feishu() -> AsyncGenerator[FeishuEmulator, None]:
    async with FeishuEmulator() as emulator:
        yield emulator


def running_on(
    feishu: FeishuEmulator, home: Path, boss: FeishuUser, **settings: str
) -> AbstractAsyncContextManager[ShiftbossProcess]:
    return running_program(
        home,
        **feishu.settings,
        SHIFTBOSS_OWNERS=f"feishu:{boss.open_id}",
        **settings,
    )


def shows(message: FeishuMessage, *parts: str) -> bool:
    whole = f"{message.header} {message.text}"
    return all(part in whole for part in parts)


async def wait_for_end(chat: FeishuChat) -> FeishuMessage:
    return await chat.wait_for(lambda m: shows(m, "Task finished"))


def button(message: FeishuMessage, word: str) -> str:
    return next(label for label in message.buttons if word in label)


async def test_a_task_is_shown_on_one_card_and_its_file_is_sent(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.private_chat(boss)
    async with running_on(feishu, tmp_path, boss):
        await feishu.wait_for_connections()
        await boss.says(chat, f"/run {HAIKU}")
        await wait_for_end(chat)
        file = await chat.wait_for(lambda m: m.msg_type == "file")
        await chat.wait_for(lambda m: "✅" in m.header and "haiku" in m.header)

    key = json.loads(file.content)["file_key"]
    assert feishu.world.files[key].name == "haiku.md"
    live = [m for m in chat.from_bot if m.msg_type == "interactive" and "haiku" in m.header]
    assert len(live) == 1


async def test_buttons_pause_resume_and_stop_with_an_answer_in_time(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.private_chat(boss)
    go = asyncio.Event()
    async with scripted_model() as (stage, access), running_on(feishu, tmp_path, boss, **access):
        stage.script("slow-cue", "plan", plan_reply("hold on", "do it"))
        stage.script(
            "slow-cue", "step", held_reply(step_reply("Held."), go), step_reply("It is done.")
        )
        await feishu.wait_for_connections()
        await boss.says(chat, "/run slow-cue")
        card = await chat.wait_for(lambda m: "📍 hold on" in m.text)
        outcome = await feishu_press_outcome(
            card, boss.presses(card, button(card, "Pause")), "Pausing"
        )
        assert "Pausing" in outcome
        go.set()
        await feishu.wait_until(lambda: "Paused. Finished steps are kept" in card.text)
        await boss.presses(card, button(card, "Resume"))
        await wait_for_end(chat)


async def test_opening_the_chat_gets_a_welcome_once_and_the_menu_sends_commands(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    async with running_on(feishu, tmp_path, boss):
        await feishu.wait_for_connections()
        chat = await boss.opens_chat()
        await chat.wait_for(lambda m: shows(m, "/run write a haiku"))
        await boss.opens_chat()
        await boss.uses_menu("status")
        await chat.wait_for(lambda m: shows(m, "Shiftboss status"))

    assert sum(shows(m, "/run write a haiku") for m in chat.from_bot) == 1


@thorough_only
async def test_a_redelivered_event_and_a_kill_change_nothing_twice(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.private_chat(boss)
    async with running_on(feishu, tmp_path, boss) as shiftboss:
        await feishu.wait_for_connections()
        await boss.says(chat, f'/run write "one" to 1.txt, then {SLOW}')
        await chat.wait_for(lambda m: shows(m, "✅", "write"))
        await shiftboss.kill()
        await shiftboss.start()
        await feishu.wait_for_connections()
        for push in list(feishu.pushes):
            feishu.push(push.body)
        await wait_for_end(chat)

    endings = [m for m in chat.from_bot if shows(m, "Task finished")]
    live = [m for m in chat.from_bot if m.buttons and shows(m, "1.txt") and m not in endings]
    assert (len(endings), len(live)) == (1, 1)


async def test_a_wrong_secret_is_reported_and_everything_else_starts(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    settings = feishu.settings | {"FEISHU_APP_SECRET": "not-the-secret"}
    async with running_program(tmp_path, **settings) as shiftboss:
        await shiftboss.wait_for_output("FEISHU_APP_SECRET")
        status, said = await shiftboss.run_to_end("say", "/status")

    assert status == 0
    assert "not-the-secret" not in shiftboss.printed + said


async def test_an_owner_who_has_never_written_is_asked_and_answers_in_the_same_chat(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss, kim = feishu.user("Boss"), feishu.user("Kim")
    hers = feishu.private_chat(boss)
    async with running_on(feishu, tmp_path, boss):
        await kim.says(feishu.private_chat(kim), "let me in")
        request = await hers.wait_for(lambda m: shows(m, "Kim") and bool(m.buttons))
        await boss.presses(request, button(request, "Approve"))
        await hers.wait_for(lambda m: m is request and "Approved" in m.text + m.header)
        await boss.says(hers, "/list")
        await hers.wait_for(lambda m: shows(m, "Tasks (0)"))
        await feishu.user("Zoe").says(feishu.private_chat(feishu.user("Zoe")), "me too")
        await hers.wait_for(lambda m: shows(m, "Zoe") and bool(m.buttons))
    asked = [m for m in hers.from_bot if m.buttons and "Zoe" in m.text]

    with open_store(tmp_path) as store:
        chats = store.execute("SELECT external_id FROM chats WHERE channel = 'feishu'").fetchall()
    assert (hers.chat_id,) in chats
    assert not [each for (each,) in chats if each.startswith("ou_")]
    assert len(asked) == 1


async def test_an_owner_who_could_not_be_reached_is_asked_when_they_write(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss, kim = feishu.user("Boss"), feishu.user("Kim")
    hers = feishu.private_chat(boss)
    feishu.world.out_of_scope.add(boss.open_id)
    async with running_on(feishu, tmp_path, boss):
        await kim.says(feishu.private_chat(kim), "let me in")
        told = await feishu.private_chat(kim).wait_for(lambda m: "code" in m.text)
        assert "may not reach them" in told.text
        await feishu.wait_until(lambda: any(r.code == 230013 for r in feishu.requests))
        feishu.world.out_of_scope.clear()
        await boss.says(hers, "hello")
        await hers.wait_for(lambda m: shows(m, "Kim") and bool(m.buttons))
