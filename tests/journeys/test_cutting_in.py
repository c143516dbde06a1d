"""Urgent work cuts in, on the real program: one slot, two tasks, two cards that tell the story."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.emulators.telegram.chats import Message
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import program


async def test_an_urgent_task_cuts_in_and_the_other_goes_on_by_itself(tmp_path: Path) -> None:
    async with TelegramEmulator() as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with program(
            tmp_path,
            TELEGRAM_BOT_TOKEN=telegram.token,
            TELEGRAM_BASE_URL=telegram.base_url,
            SHIFTBOSS_OWNERS="telegram:7",
            SHIFTBOSS_SLOTS="1",
        ):
            await boss.says(chat, '/run -p normal wait 4 seconds, then write "slow" to slow.txt')
            slow = await chat.wait_for(lambda m: "📍 wait" in m.text, timeout=20)
            await boss.says(chat, '/run -p urgent write "now" to urgent.txt')
            await chat.wait_until(lambda: "Makes room" in slow.text, timeout=20)
            endings = [
                await chat.wait_for(_ending("urgent.txt"), timeout=40),
                await chat.wait_for(_ending("slow.txt"), timeout=40),
            ]
            await chat.wait_until(lambda: "Makes room" not in slow.text, timeout=20)

    assert endings[0].id < endings[1].id
    (slow_file,) = (tmp_path / "work").glob("*/slow.txt")
    (urgent_file,) = (tmp_path / "work").glob("*/urgent.txt")
    assert urgent_file.stat().st_mtime < slow_file.stat().st_mtime


def _ending(name: str) -> Callable[[Message], bool]:
    def holds(message: Message) -> bool:
        return "Task finished" in message.text and name in message.text

    return holds
