"""The first journey on Feishu: the real program on an emulated open platform."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.emulators.feishu.people import User
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat, Message
from tests.journeys.model_world import done, held, staged, steps
from tests.journeys.program import Program, program
from tests.thorough import long

HAIKU = "write a haiku about queues and save it to haiku.md"
SLOW = 'wait 2 seconds, then write "hello" to a.txt, then list the folder'


@pytest.fixture
async def feishu() -> AsyncGenerator[FeishuEmulator, None]:
    async with FeishuEmulator() as emulator:
        yield emulator


def on(
    feishu: FeishuEmulator, home: Path, boss: User, **settings: str
) -> AbstractAsyncContextManager[Program]:
    return program(
        home,
        FEISHU_APP_ID=feishu.app_id,
        FEISHU_APP_SECRET=feishu.app_secret,
        FEISHU_DOMAIN=feishu.domain,
        SHIFTBOSS_OWNERS=f"feishu:{boss.open_id}",
        **settings,
    )


def shows(message: Message, *parts: str) -> bool:
    whole = f"{message.header} {message.text}"
    return all(part in whole for part in parts)


async def ended(chat: Chat) -> Message:
    return await chat.wait_for(lambda m: shows(m, "Task finished"))


def button(message: Message, word: str) -> str:
    return next(label for label in message.buttons if word in label)


async def test_a_task_is_done_on_one_card_and_brings_its_file(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.p2p(boss)
    async with on(feishu, tmp_path, boss):
        await feishu.connected()
        await boss.says(chat, f"/run {HAIKU}")
        await ended(chat)
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
    chat = feishu.p2p(boss)
    go = asyncio.Event()
    async with staged() as (stage, access), on(feishu, tmp_path, boss, **access):
        stage.on("slow-cue", "plan", steps("hold on", "do it"))
        stage.on("slow-cue", "step", held(done("Held."), go), done("It is done."))
        await feishu.connected()
        await boss.says(chat, "/run slow-cue")
        card = await chat.wait_for(lambda m: "📍 hold on" in m.text)
        answer = await boss.presses(card, button(card, "Pause"))
        assert "Pausing" in answer.toast
        go.set()
        await feishu.until(lambda: "Paused. Finished steps are kept" in card.text)
        await boss.presses(card, button(card, "Resume"))
        await ended(chat)


async def test_opening_the_chat_gets_a_welcome_once_and_the_menu_sends_commands(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    async with on(feishu, tmp_path, boss):
        await feishu.connected()
        chat = await boss.opens_chat()
        await chat.wait_for(lambda m: shows(m, "/run write a haiku"))
        await boss.opens_chat()
        await boss.uses_menu("status")
        await chat.wait_for(lambda m: shows(m, "Shiftboss status"))

    assert sum(shows(m, "/run write a haiku") for m in chat.from_bot) == 1


@long
async def test_a_redelivered_event_and_a_kill_change_nothing_twice(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.p2p(boss)
    async with on(feishu, tmp_path, boss) as shiftboss:
        await feishu.connected()
        await boss.says(chat, f'/run write "one" to 1.txt, then {SLOW}')
        await chat.wait_for(lambda m: shows(m, "✅", "write"))
        await shiftboss.kill()
        await shiftboss.start()
        await feishu.connected()
        for push in list(feishu.pushes):
            feishu.push(push.body)
        await ended(chat)

    endings = [m for m in chat.from_bot if shows(m, "Task finished")]
    live = [m for m in chat.from_bot if m.buttons and shows(m, "1.txt") and m not in endings]
    assert (len(endings), len(live)) == (1, 1)


async def test_a_wrong_secret_is_told_and_everything_else_starts(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    settings = {
        "FEISHU_APP_ID": feishu.app_id,
        "FEISHU_APP_SECRET": "not-the-secret",
        "FEISHU_DOMAIN": feishu.domain,
    }
    async with program(tmp_path, **settings) as shiftboss:
        await shiftboss.says("FEISHU_APP_SECRET")
        status, said = await shiftboss.run_to_end("say", "/status")

    assert status == 0
    assert "not-the-secret" not in shiftboss.text + said
