"""Messages that wait for the program, too many or too late: each one ends in an answer, a task, a
decision or a refusal that quotes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.invariants import unanswered_messages
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program_store import open_store
from tests.journeys.test_telegram import boss_in, running_on
from tests.thoroughness import sampled

OWNER = {"SHIFTBOSS_OWNERS": "telegram:7", "SHIFTBOSS_LANGUAGE": "en"}
HOUR = 3600.0
WAITING = sampled(500, 70)
"""More than come through at once; the thorough run takes as long as their pace, some eight minutes.
"""


@pytest.fixture
async def telegram() -> AsyncGenerator[TelegramEmulator, None]:
    async with TelegramEmulator() as emulator:
        yield emulator


def query(home: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(home) as store:
        return list(store.execute(sql))


def inbox_states(home: Path) -> dict[str, int]:
    return dict(query(home, "SELECT state, count(*) FROM inbox GROUP BY state"))


def set_back(telegram: TelegramEmulator, seconds: float) -> None:
    """Have people send from now on as if it were that long ago."""
    telegram.world.clock = lambda: time.time() - seconds


@pytest.mark.parametrize("sent", ["over hours", "at once"])
async def test_every_message_that_waited_for_the_start_is_handled(
    telegram: TelegramEmulator, tmp_path: Path, sent: str
) -> None:
    boss, chat = boss_in(telegram)
    for number in range(WAITING):
        set_back(telegram, (WAITING + 10 - number) * 60.0 if sent == "over hours" else 0.0)
        text = f"/run write {number} to f{number}.txt" if number % 10 == 0 else f"/help {number}"
        await boss.says(chat, text)
    set_back(telegram, 0.0)

    async with running_on(telegram, tmp_path, **OWNER):
        await telegram.wait_until(lambda: not telegram.unconfirmed)
        while inbox_states(tmp_path) != {"handled": WAITING}:
            await asyncio.sleep(0.1)

    assert list(unanswered_messages(lambda sql: query(tmp_path, sql))) == []
    assert query(tmp_path, "SELECT count(*) FROM tasks") == [(WAITING // 10,)]
    handled = query(tmp_path, "SELECT id FROM inbox ORDER BY handled_at, id")
    tasks = query(tmp_path, "SELECT instruction FROM tasks ORDER BY created_at, id")
    assert len(handled) == WAITING
    assert [words for (words,) in tasks] == [
        f"write {number} to f{number}.txt" for number in range(0, WAITING, 10)
    ]


async def test_late_messages_are_offered_on_one_card_and_handled_in_order(
    telegram: TelegramEmulator, tmp_path: Path
) -> None:
    boss, chat = boss_in(telegram)
    set_back(telegram, 13 * HOUR)
    for number in range(3):
        await boss.says(chat, f"/run write {number} to late{number}.txt")
    set_back(telegram, 0.0)

    async with running_on(telegram, tmp_path, **OWNER):
        offer = await chat.wait_for(lambda m: m.from_bot and "3 messages are waiting" in m.text)
        assert "write 1 to late1.txt" in offer.text
        assert query(tmp_path, "SELECT count(*) FROM tasks") == [(0,)]

    async with running_on(telegram, tmp_path, **OWNER):
        await boss.presses(offer, next(b for b in offer.buttons if "Handle" in b))
        await telegram.wait_until(lambda: "On it: 3 messages" in offer.text)
        while len(query(tmp_path, "SELECT id FROM tasks")) < 3:
            await telegram.wait_until(lambda: True)

    offers = [m for m in chat.from_bot if "your decision" in "".join(v.text for v in m.history)]
    assert [m.id for m in offers] == [offer.id]
    assert list(unanswered_messages(lambda sql: query(tmp_path, sql))) == []


async def test_late_messages_can_be_left(telegram: TelegramEmulator, tmp_path: Path) -> None:
    boss, chat = boss_in(telegram)
    set_back(telegram, 13 * HOUR)
    await boss.says(chat, "/run write x to late.txt")
    set_back(telegram, 0.0)

    async with running_on(telegram, tmp_path, **OWNER):
        offer = await chat.wait_for(
            lambda m: m.from_bot and "is waiting for your decision" in m.text
        )
        await boss.presses(offer, next(b for b in offer.buttons if "Ignore" in b))
        await telegram.wait_until(lambda: "Ignored: 1" in offer.text)
        await boss.says(chat, "/queue handle")
        await chat.wait_for_text("No messages are waiting for a decision here")

    assert query(tmp_path, "SELECT count(*) FROM tasks") == [(0,)]
    assert query(tmp_path, "SELECT outcome FROM inbox ORDER BY id LIMIT 1") == [("dropped",)]
