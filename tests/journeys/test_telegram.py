"""The first journey on Telegram: the real program and client library, an emulated Telegram."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import (
    held_reply,
    plan_reply,
    scripted_model,
    step_reply,
    write_call,
)
from tests.journeys.program import ShiftbossProcess, running_program
from tests.thoroughness import thorough_only

HAIKU = "write a haiku about queues and save it to haiku.md"
SLOW = 'wait 2 seconds, then write "hello" to a.txt, then list the folder'


@pytest.fixture
async def telegram() -> AsyncGenerator[TelegramEmulator, None]:
    async with TelegramEmulator() as emulator:
        yield emulator


def running_on(
    telegram: TelegramEmulator, home: Path, **settings: str
) -> AbstractAsyncContextManager[ShiftbossProcess]:
    return running_program(home, **telegram.settings, **settings)


def boss_in(telegram: TelegramEmulator) -> tuple[TelegramUser, TelegramChat]:
    boss = telegram.user(7, "Boss")
    return boss, telegram.private_chat(boss)


async def wait_for_end(chat: TelegramChat, text: str = "Task finished") -> TelegramMessage:
    return await chat.wait_for(lambda m: m.from_bot and text in m.text)


async def test_an_owners_task_is_done_and_its_file_is_sent(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await boss.says(chat, f"/run {HAIKU}")
        await wait_for_end(chat)
        document = await chat.wait_for(lambda m: m.upload is not None)
        live = await chat.wait_for(lambda m: bool(m.edits) and "2/2" in m.text)

    assert document.upload is not None
    assert document.upload.name == "haiku.md"
    assert [m.id for m in chat.from_bot if m.edits] == [live.id], "one card tells it all"


async def test_plain_words_are_confirmed_before_a_task_starts(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await boss.says(chat, HAIKU.capitalize())
        proposal = await chat.wait_for(lambda m: "Start" in " ".join(m.buttons))
        assert not [m for m in chat.from_bot if "finished" in m.text]

        label = next(label for label in proposal.buttons if "Start" in label)
        await boss.presses(proposal, label)
        await wait_for_end(chat)
        again = (
            await boss.presses(proposal, label, data=None) if label in proposal.buttons else None
        )

    assert again is None or again.text
    assert sum("Task finished" in m.text for m in chat.from_bot) == 1


async def test_a_stranger_gets_only_a_pairing_code_until_the_owner_approves(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, boss_chat = boss_in(telegram)
    stranger = telegram.user(8, "Stranger")
    chat = telegram.private_chat(stranger)
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await boss.says(boss_chat, "/start")
        await boss_chat.wait_for(lambda m: m.from_bot)
        await stranger.says(chat, f"/run {HAIKU}")
        await chat.wait_for_text("Pairing code")
        request = await boss_chat.wait_for(lambda m: "Stranger" in m.text)

        await boss.presses(request, next(b for b in request.buttons if "✅" in b or "Let" in b))
        await chat.wait_for_text("You have access")
        await stranger.says(chat, f"/run {HAIKU}")
        await wait_for_end(chat)

    assert sum("Task finished" in m.text for m in chat.from_bot) == 1


async def test_pause_resume_and_stop_by_button(telegram: TelegramEmulator, tmp_path: Path) -> None:
    boss, chat = boss_in(telegram)
    go = asyncio.Event()
    async with (
        scripted_model() as (stage, access),
        running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7", **access),
    ):
        stage.script("slow-cue", "plan", plan_reply("hold on", "write it"))
        written = write_call("a.txt", "hello"), step_reply("It is written.", "a.txt")
        stage.script("slow-cue", "step", held_reply(step_reply("Held."), go), *written)
        await boss.says(chat, "/run slow-cue")
        card = await chat.wait_for(lambda m: "📍 hold on" in m.text)
        await boss.presses(card, next(b for b in card.buttons if "Pause" in b))
        go.set()
        await chat.wait_until(lambda: "Paused. Finished steps are kept" in card.text)
        await boss.presses(card, next(b for b in card.buttons if "Resume" in b))
        await wait_for_end(chat)

        stage.script("endless-cue", "plan", plan_reply("hold on"))
        stage.script("endless-cue", "step", held_reply(step_reply("Held."), asyncio.Event()))
        await boss.says(chat, "/run endless-cue")
        second = await chat.wait_for(
            lambda m: m.id > card.id and any("Stop" in b for b in m.buttons)
        )
        await boss.presses(second, next(b for b in second.buttons if "Stop" in b))
        await chat.wait_until(lambda: any("⚠️" in b for b in second.buttons))
        await boss.presses(second, next(b for b in second.buttons if "⚠️" in b))
        await chat.wait_until(lambda: any("Retry" in b for b in second.buttons))

    assert "hello" in (next((tmp_path / "work").glob("*/a.txt"))).read_text()


async def test_a_kill_during_a_task_loses_and_repeats_nothing(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7") as shiftboss:
        await boss.says(chat, f'/run write "one" to 1.txt, then {SLOW}')
        await chat.wait_for(lambda m: "✅ write" in m.text)
        await shiftboss.kill()
        await boss.says(chat, "/list")
        await shiftboss.start()
        await wait_for_end(chat)
        await chat.wait_for_text("Tasks (")

    live = [m for m in chat.from_bot if "▓" in m.text]
    assert len(live) == 1, "the same card is taken up again"
    assert sum("Task finished" in m.text for m in chat.from_bot) == 1
    assert sum("Tasks (" in m.text for m in chat.from_bot) == 1


async def test_in_a_group_the_bot_answers_only_known_people_who_mention_it(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, _ = boss_in(telegram)
    stranger = telegram.user(8, "Stranger")
    group = telegram.group("Team", forum=True)
    thread = telegram.topic(group, "Work")
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await stranger.says(group, "/run delete everything", mention=True)
        await boss.says(group, "just chatting")
        await boss.says(group, f"/run {HAIKU}", thread=thread, mention=True)
        finished = await wait_for_end(group)

    assert finished.thread == thread
    assert not [m for m in group.from_bot if "everything" in m.text]


async def test_an_administrator_who_writes_as_the_group_is_told_why_nothing_is_done(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, _ = boss_in(telegram)
    nobody = telegram.user(1087968824, "Group")
    group = telegram.group("Team")
    # Not even the operator can make it somebody: other administrators write under it too.
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7,telegram:1087968824"):
        await boss.says(group, "/status", mention=True)
        await group.wait_for(lambda m: "Shiftboss" in m.text)
        await nobody.says(group, "just chatting")
        await nobody.says(group, f"/run {HAIKU}", mention=True)
        answer = await group.wait_for(lambda m: "can't see who you are" in m.text)

    assert "Remain anonymous" in answer.text
    assert not [m for m in group.from_bot if "haiku" in m.text.lower()]


async def test_a_wrong_token_is_reported_and_everything_else_starts(tmp_path: Path) -> None:
    async with (
        TelegramEmulator() as telegram,
        running_program(
            tmp_path,
            TELEGRAM_BOT_TOKEN="1:wrong",
            TELEGRAM_BASE_URL=telegram.base_url,
        ) as shiftboss,
    ):
        await shiftboss.wait_for_output("rejected the bot token")
        status, said = await shiftboss.run_to_end("say", "/status")

    assert status == 0
    assert "Telegram" in said
    assert "1:wrong" not in shiftboss.printed + said


@thorough_only
async def test_an_owner_removed_from_the_setting_is_a_member_after_the_next_start(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    other = telegram.user(8, "Other")
    others = telegram.private_chat(other)
    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7,telegram:8"):
        await other.says(others, "/people")
        await wait_for_end(others, "People with access (3)")

    async with running_on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await other.says(others, "/people")
        await wait_for_end(others, "You can't do that")
        await boss.says(chat, "/people remove 8 yes")
        await wait_for_end(chat, "Other no longer has access")
        await other.says(others, "hello again")
        await wait_for_end(others, "Pairing code")
