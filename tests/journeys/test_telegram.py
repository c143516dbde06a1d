"""The first journey on Telegram: the real program and client library, an emulated Telegram."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.people import User
from tests.journeys.model_world import done, held, staged, steps, writes
from tests.journeys.program import Program, program
from tests.thorough import long

HAIKU = "write a haiku about queues and save it to haiku.md"
SLOW = 'wait 2 seconds, then write "hello" to a.txt, then list the folder'


@pytest.fixture
async def telegram() -> AsyncGenerator[TelegramEmulator, None]:
    async with TelegramEmulator() as emulator:
        yield emulator


def on(
    telegram: TelegramEmulator, home: Path, **settings: str
) -> AbstractAsyncContextManager[Program]:
    base = {"TELEGRAM_BOT_TOKEN": telegram.token, "TELEGRAM_BASE_URL": telegram.base_url}
    return program(home, **base, **settings)


def boss_in(telegram: TelegramEmulator) -> tuple[User, Chat]:
    boss = telegram.user(7, "Boss")
    return boss, telegram.private_chat(boss)


async def ended(chat: Chat, text: str = "Task finished") -> Message:
    return await chat.wait_for(lambda m: m.from_bot and text in m.text)


async def test_a_task_typed_by_the_owner_is_done_and_brings_its_file(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await boss.says(chat, f"/run {HAIKU}")
        await ended(chat)
        document = await chat.wait_for(lambda m: m.upload is not None)
        live = await chat.wait_for(lambda m: bool(m.edits) and "2/2" in m.text)

    assert document.upload is not None
    assert document.upload.name == "haiku.md"
    assert [m.id for m in chat.from_bot if m.edits] == [live.id], "one card tells it all"


async def test_plain_words_are_asked_about_before_anything_starts(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await boss.says(chat, HAIKU.capitalize())
        proposal = await chat.wait_for(lambda m: "Start" in " ".join(m.buttons))
        assert not [m for m in chat.from_bot if "finished" in m.text]

        label = next(label for label in proposal.buttons if "Start" in label)
        await boss.presses(proposal, label)
        await ended(chat)
        again = (
            await boss.presses(proposal, label, data=None) if label in proposal.buttons else None
        )

    assert again is None or again.text
    assert sum("Task finished" in m.text for m in chat.from_bot) == 1


async def test_a_stranger_gets_a_code_and_nothing_else_until_the_owner_approves(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, boss_chat = boss_in(telegram)
    stranger = telegram.user(8, "Stranger")
    chat = telegram.private_chat(stranger)
    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await boss.says(boss_chat, "/start")
        await boss_chat.wait_for(lambda m: m.from_bot)
        await stranger.says(chat, f"/run {HAIKU}")
        await chat.wait_for_text("Pairing code")
        request = await boss_chat.wait_for(lambda m: "Stranger" in m.text)

        await boss.presses(request, next(b for b in request.buttons if "✅" in b or "Let" in b))
        await chat.wait_for_text("You are in")
        await stranger.says(chat, f"/run {HAIKU}")
        await ended(chat)

    assert sum("Task finished" in m.text for m in chat.from_bot) == 1


async def test_pause_resume_and_stop_by_button(telegram: TelegramEmulator, tmp_path: Path) -> None:
    boss, chat = boss_in(telegram)
    go = asyncio.Event()
    async with (
        staged() as (stage, access),
        on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7", **access),
    ):
        stage.on("slow-cue", "plan", steps("hold on", "write it"))
        written = writes("a.txt", "hello"), done("It is written.", "a.txt")
        stage.on("slow-cue", "step", held(done("Held."), go), *written)
        await boss.says(chat, "/run slow-cue")
        card = await chat.wait_for(lambda m: "📍 hold on" in m.text)
        await boss.presses(card, next(b for b in card.buttons if "Pause" in b))
        go.set()
        await chat.wait_until(lambda: "Paused. Finished steps are kept" in card.text)
        await boss.presses(card, next(b for b in card.buttons if "Resume" in b))
        await ended(chat)

        stage.on("endless-cue", "plan", steps("hold on"))
        stage.on("endless-cue", "step", held(done("Held."), asyncio.Event()))
        await boss.says(chat, "/run endless-cue")
        second = await chat.wait_for(
            lambda m: m.id > card.id and any("Stop" in b for b in m.buttons), timeout=20
        )
        await boss.presses(second, next(b for b in second.buttons if "Stop" in b))
        await chat.wait_until(lambda: any("⚠️" in b for b in second.buttons))
        await boss.presses(second, next(b for b in second.buttons if "⚠️" in b))
        await chat.wait_until(lambda: any("Retry" in b for b in second.buttons))

    assert "hello" in (next((tmp_path / "work").glob("*/a.txt"))).read_text()


async def test_a_kill_in_the_middle_loses_and_repeats_nothing(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7") as shiftboss:
        await boss.says(chat, f'/run write "one" to 1.txt, then {SLOW}')
        await chat.wait_for(lambda m: "✅ write" in m.text)
        await shiftboss.kill()
        await boss.says(chat, "/list")
        await shiftboss.start()
        await ended(chat)
        await chat.wait_for_text("Tasks (")

    live = [m for m in chat.from_bot if "▓" in m.text]
    assert len(live) == 1, "the same card is taken up again"
    assert sum("Task finished" in m.text for m in chat.from_bot) == 1
    assert sum("Tasks (" in m.text for m in chat.from_bot) == 1


async def test_in_a_group_it_listens_only_when_addressed_and_only_to_people_it_knows(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, _ = boss_in(telegram)
    stranger = telegram.user(8, "Stranger")
    group = telegram.group("Team", forum=True)
    thread = telegram.topic(group, "Work")
    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await stranger.says(group, "/run delete everything", mention=True)
        await boss.says(group, "just chatting")
        await boss.says(group, f"/run {HAIKU}", thread=thread, mention=True)
        finished = await ended(group)

    assert finished.thread == thread
    assert not [m for m in group.from_bot if "everything" in m.text]


async def test_a_wrong_token_is_told_and_everything_else_starts(tmp_path: Path) -> None:
    async with (
        TelegramEmulator() as telegram,
        program(
            tmp_path,
            TELEGRAM_BOT_TOKEN="1:wrong",
            TELEGRAM_BASE_URL=telegram.base_url,
        ) as shiftboss,
    ):
        await shiftboss.says("TELEGRAM_BOT_TOKEN")
        status, said = await shiftboss.run_to_end("say", "/status")

    assert status == 0
    assert "Telegram" in said
    assert "1:wrong" not in shiftboss.text + said


@long
async def test_who_is_taken_out_of_the_setting_is_a_member_after_the_next_start(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    other = telegram.user(8, "Other")
    others = telegram.private_chat(other)
    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7,telegram:8"):
        await other.says(others, "/people")
        await ended(others, "Who is let in (3)")

    async with on(telegram, tmp_path, SHIFTBOSS_OWNERS="telegram:7"):
        await other.says(others, "/people")
        await ended(others, "You may not do that")
        await boss.says(chat, "/people remove 8 yes")
        await ended(chat, "Other is removed")
        await other.says(others, "hello again")
        await ended(others, "Pairing code")
