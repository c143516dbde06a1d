"""The first journey on Feishu: the real program on an emulated open platform."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.emulators.feishu.people import User
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat, Message
from tests.journeys.program import Program, program

HAIKU = "write a haiku about queues and save it to haiku.md"
SLOW = 'wait 2 seconds, then write "hello" to a.txt, then list the folder'


@pytest.fixture
async def feishu() -> AsyncGenerator[FeishuEmulator, None]:
    async with FeishuEmulator() as emulator:
        yield emulator


def on(feishu: FeishuEmulator, home: Path, boss: User) -> AbstractAsyncContextManager[Program]:
    return program(
        home,
        FEISHU_APP_ID=feishu.app_id,
        FEISHU_APP_SECRET=feishu.app_secret,
        FEISHU_DOMAIN=feishu.domain,
        SHIFTBOSS_OWNERS=f"feishu:{boss.open_id}",
    )


def shows(message: Message, *parts: str) -> bool:
    whole = f"{message.header} {message.text}"
    return all(part in whole for part in parts)


async def ended(chat: Chat) -> Message:
    return await chat.wait_for(lambda m: shows(m, "Task finished"), timeout=40)


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
        file = await chat.wait_for(lambda m: m.msg_type == "file", timeout=20)
        await chat.wait_for(lambda m: "✅" in m.header and "haiku" in m.header, timeout=20)

    key = json.loads(file.content)["file_key"]
    assert feishu.world.files[key].name == "haiku.md"
    live = [m for m in chat.from_bot if m.msg_type == "interactive" and "haiku" in m.header]
    assert len(live) == 1


async def test_buttons_pause_resume_and_stop_with_an_answer_in_time(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.p2p(boss)
    async with on(feishu, tmp_path, boss):
        await feishu.connected()
        await boss.says(chat, f"/run {SLOW}")
        card = await chat.wait_for(lambda m: any("Pause" in b for b in m.buttons), timeout=20)
        answer = await boss.presses(card, button(card, "Pause"))
        assert answer.toast
        await feishu.until(lambda: any("Resume" in b for b in card.buttons), timeout=30)
        await boss.presses(card, button(card, "Resume"))
        await ended(chat)


async def test_opening_the_chat_gets_a_welcome_once_and_the_menu_sends_commands(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    async with on(feishu, tmp_path, boss):
        await feishu.connected()
        chat = await boss.opens_chat()
        await chat.wait_for(lambda m: shows(m, "/run write a haiku"), timeout=20)
        await boss.opens_chat()
        await boss.uses_menu("status")
        await chat.wait_for(lambda m: shows(m, "Shiftboss status"), timeout=20)

    assert sum(shows(m, "/run write a haiku") for m in chat.from_bot) == 1


async def test_a_redelivered_event_and_a_kill_change_nothing_twice(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    chat = feishu.p2p(boss)
    async with on(feishu, tmp_path, boss) as shiftboss:
        await feishu.connected()
        await boss.says(chat, f'/run write "one" to 1.txt, then {SLOW}')
        await chat.wait_for(lambda m: shows(m, "✅", "write"), timeout=30)
        await shiftboss.kill()
        await shiftboss.start()
        await feishu.connected(timeout=30)
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
