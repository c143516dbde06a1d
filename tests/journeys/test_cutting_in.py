"""Urgent work cuts in, on the real program: one slot, two tasks, two cards that tell the story."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.emulators.telegram.chats import Message
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.model_world import done, held, staged, steps, writes
from tests.journeys.program import program


async def test_an_urgent_task_cuts_in_and_the_other_goes_on_by_itself(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with TelegramEmulator() as telegram, staged() as (stage, access):
        stage.on("slow-cue", "plan", steps("hold on", "write slow.txt"))
        stage.on(
            "slow-cue",
            "step",
            held(done("Held."), go),
            writes("slow.txt"),
            done("Made.", "slow.txt"),
        )
        stage.on("urgent-cue", "plan", steps("write urgent.txt"))
        stage.on("urgent-cue", "step", writes("urgent.txt"), done("Made.", "urgent.txt"))
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with program(
            tmp_path,
            TELEGRAM_BOT_TOKEN=telegram.token,
            TELEGRAM_BASE_URL=telegram.base_url,
            SHIFTBOSS_OWNERS="telegram:7",
            SHIFTBOSS_SLOTS="1",
            **access,
        ):
            await boss.says(chat, "/run -p normal slow-cue")
            slow = await chat.wait_for(lambda m: "📍 hold on" in m.text)
            await boss.says(chat, "/run -p urgent urgent-cue")
            await chat.wait_until(lambda: "Makes room" in slow.text)
            go.set()
            endings = [await chat.wait_for(_ending(cue)) for cue in ("urgent-cue", "slow-cue")]
            await chat.wait_until(lambda: "Makes room" not in slow.text)

    assert endings[0].id < endings[1].id
    (slow_file,) = (tmp_path / "work").glob("*/slow.txt")
    (urgent_file,) = (tmp_path / "work").glob("*/urgent.txt")
    assert urgent_file.stat().st_mtime < slow_file.stat().st_mtime


def _ending(cue: str) -> Callable[[Message], bool]:
    def holds(message: Message) -> bool:
        return "Task finished" in message.text and cue in message.text

    return holds
