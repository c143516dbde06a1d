"""Reminders and jobs on the real program, over deaths and outages, on all channels."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.telegram.chats import TelegramMessage
from tests.emulators.telegram.faults import HoldFault
from tests.journeys.platform_world import PlatformWorld, platform_world
from tests.journeys.program_store import open_store
from tests.journeys.web_page import open_web_page

TIME = r"\d\d-\d\d \d\d:\d\d"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[PlatformWorld, None]:
    async with platform_world(tmp_path_factory.mktemp("home")) as made:
        yield made


def make_due(home: Path, title: str, delay: timedelta) -> None:
    """Move the due time instead of waiting for it; the program must not run."""
    due = datetime.now(UTC) + delay
    with open_store(home) as store:
        ((schedule, timing),) = store.execute(
            "SELECT id, timing FROM schedules WHERE state = 'active' AND title LIKE ?",
            (f"%{title}%",),
        )
        changed = {
            name: due.isoformat() if name == "at" else value
            for name, value in json.loads(timing).items()
        }
        store.execute(
            "UPDATE schedules SET next_due = ?, timing = ? WHERE id = ?",
            (round(due.timestamp() * 1_000_000), json.dumps(changed), schedule),
        )


def shows(message: TelegramMessage | FeishuMessage, *parts: str) -> bool:
    return all(part in message.text for part in parts)


async def test_a_reminder_rings_once_in_its_chat_although_the_program_died(
    world: PlatformWorld,
) -> None:
    boss, chat = world.telegram_owner, world.telegram_chat
    await boss.says(chat, "remind me tomorrow at 9 to call Ann")
    asked = await chat.wait_for(lambda m: shows(m, "Set this reminder?", "call Ann", "09:00"))
    await boss.presses(asked, "Confirm")
    await chat.wait_for(lambda m: m.id == asked.id and shows(m, "Scheduled"))

    await world.program.kill()
    make_due(world.program.home, "call Ann", timedelta(seconds=1))
    dying, sending = HoldFault(), HoldFault()
    world.telegram.inject_fault("sendMessage", dying)
    await world.program.start()
    rung = await chat.wait_for(lambda m: shows(m, "Reminder", "call Ann") and bool(m.buttons))
    await dying.entered.wait()
    await world.program.kill()
    dying.release()
    # The death left a message that the store does not know, and the next life sends a second one.
    world.telegram.inject_fault("sendMessage", sending)
    await world.program.start()
    await sending.entered.wait()
    await boss.presses(rung, "Done")
    sending.release()

    await chat.wait_for(lambda m: shows(m, "✅ Done", "call Ann"))
    await chat.wait_until(lambda: not any(shows(m, "Reminder", "call Ann") for m in chat.from_bot))
    assert sum(shows(m, "✅ Done", "call Ann") for m in chat.from_bot) == 1
    assert "Nothing is scheduled" in await world.ask("/schedule")


async def test_a_job_on_feishu_brings_its_result_to_the_chat_that_asked(
    world: PlatformWorld,
) -> None:
    chief, chat = world.feishu_owner, world.feishu_chat
    await chief.says(chat, "/schedule every day at 7:00 write a haiku about Monday")
    asked = await chat.wait_for(lambda m: shows(m, "Schedule this job?", "haiku about Monday"))
    await chief.presses(asked, "Confirm")
    await chat.wait_for(lambda m: shows(m, "Scheduled", "haiku"))

    await world.program.kill()
    make_due(world.program.home, "haiku about Monday", timedelta(seconds=1))
    await world.program.start()

    await chat.wait_for(lambda m: shows(m, "Task finished", "haiku about Monday"))
    listed = await world.ask_on_feishu("/schedule", expects="haiku about Monday")
    assert "07:00" in listed


async def test_the_buttons_of_a_reminder_on_feishu(world: PlatformWorld) -> None:
    chief, chat = world.feishu_owner, world.feishu_chat
    await chief.says(chat, "/remind every day at 8 air the rooms")
    asked = await chat.wait_for(lambda m: shows(m, "Set this reminder?", "air the rooms"))
    _, second, third = re.findall(TIME, asked.text)
    await chief.presses(asked, "Confirm")
    planned = await chat.wait_for(lambda m: shows(m, "Scheduled", "air the rooms"))

    await chief.presses(planned, "Run now")
    rung = await chat.wait_for(lambda m: "air the rooms" in m.text and "Done" in m.buttons)
    await chief.presses(rung, "Skip next")
    skipped = await chat.wait_for(lambda m: shows(m, "is skipped", "air the rooms"))
    assert re.findall(TIME, skipped.text)[:2] == [second, third]
    await chief.presses(rung, "Done")
    await chat.wait_for(lambda m: m.message_id == rung.message_id and shows(m, "✅ Done"))
    await chief.presses(planned, "Run now")
    again = await chat.wait_for(lambda m: "air the rooms" in m.text and "Done" in m.buttons)
    await chief.presses(again, "Pause")
    await chat.wait_for(lambda m: shows(m, "⏸ Paused", "air the rooms"))
    await chief.presses(again, "Tomorrow")
    await chat.wait_for(lambda m: m.message_id == again.message_id and shows(m, "💤"))

    listed = await world.ask_on_feishu("/schedule", expects="Paused")
    assert listed.count("**air the rooms**") == 2, "the paused one, and the snoozed one"


async def test_the_buttons_of_a_reminder_in_the_web_chat(world: PlatformWorld) -> None:
    async with open_web_page(world.program) as page:
        await page.send_message("/remind every day at 8 water the ferns")
        asked = (await page.next_frame("", "Set this reminder?"))["html"]
        _, second, third = re.findall(TIME, asked)
        await page.press(asked, "Confirm")
        planned = (await page.next_frame("", "Run now"))["html"]

        await page.press(planned, "Run now")
        rung = (await page.next_frame("", "In 10 min"))["html"]
        await page.press(rung, "Skip next")
        skipped = (await page.next_frame("", "is skipped"))["html"]
        assert re.findall(TIME, skipped)[:2] == [second, third]
        await page.press(rung, "Done")
        done = (await page.next_frame("", "✅ Done"))["html"]
        await page.press(planned, "Run now")
        again = (await page.next_frame("", "In 10 min"))["html"]
        await page.press(again, "Pause")
        await page.next_frame("", "⏸ Paused")
        await page.press(again, "In 10 min")
        snoozed = (await page.next_frame("", "💤"))["html"]
        assert "data-token" not in done + snoozed, "nothing is left to press"

        await page.send_message("/schedule")
        listed = (await page.next_frame("", "schedules"))["html"]
        assert listed.count("<strong>water the ferns</strong>") == 2, "the paused and the snoozed"


async def test_what_was_missed_over_days_is_told_on_one_card(world: PlatformWorld) -> None:
    boss, chat = world.telegram_owner, world.telegram_chat
    words = ("stretch", "drink")
    for word in words:
        await boss.says(chat, f"/remind every day at 8 {word}")
        asked = await chat.wait_for(lambda m, w=word: shows(m, "Set this reminder?", w))  # type: ignore[misc]
        await boss.presses(asked, "Confirm")
        await chat.wait_for(lambda m, a=asked: m.id == a.id and shows(m, "Scheduled"))  # type: ignore[misc]

    await world.program.kill()
    make_due(world.program.home, "stretch", timedelta(days=-3))
    make_due(world.program.home, "drink", timedelta(days=-2))
    await world.program.start()

    told = await chat.wait_for(lambda m: shows(m, "Due while I was off"))
    assert shows(told, "stretch", "drink", "the last of")
    assert sum(shows(m, "Due while I was off") for m in chat.from_bot) == 1
    assert not any(shows(m, "⏰ Reminder", each) for each in words for m in chat.from_bot)


async def test_a_schedule_is_nobody_elses_business(world: PlatformWorld) -> None:
    stranger = world.telegram.user(99, "Eve")
    chat = world.telegram.private_chat(stranger)
    await stranger.says(chat, "remind me in 20 minutes to steal the plans")
    await chat.wait_for(lambda m: "code" in m.text.lower())
    assert not any("Set this reminder" in m.text for m in chat.from_bot)
