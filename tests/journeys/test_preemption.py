"""Urgent work cuts in, on the real program: one slot, two tasks, two cards that tell the story."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.emulators.telegram.chats import TelegramMessage
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.model_world import (
    held_reply,
    plan_reply,
    scripted_model,
    step_reply,
    write_call,
)
from tests.journeys.program import running_program


async def test_an_urgent_task_preempts_and_the_other_continues_by_itself(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with TelegramEmulator() as telegram, scripted_model() as (stage, access):
        stage.script("slow-cue", "plan", plan_reply("hold on", "write slow.txt"))
        stage.script(
            "slow-cue",
            "step",
            held_reply(step_reply("Held."), go),
            write_call("slow.txt"),
            step_reply("Made.", "slow.txt"),
        )
        stage.script("urgent-cue", "plan", plan_reply("write urgent.txt"))
        stage.script(
            "urgent-cue", "step", write_call("urgent.txt"), step_reply("Made.", "urgent.txt")
        )
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with running_program(
            tmp_path,
            **telegram.settings,
            SHIFTBOSS_OWNERS="telegram:7",
            SHIFTBOSS_SLOTS="1",
            **access,
        ):
            await boss.says(chat, "/run -p normal slow-cue")
            slow = await chat.wait_for(lambda m: "📍 hold on" in m.text)
            await boss.says(chat, "/run -p urgent urgent-cue")
            await chat.wait_until(lambda: "can run, then resumes" in slow.text)
            go.set()
            endings = [await chat.wait_for(_ending(cue)) for cue in ("urgent-cue", "slow-cue")]
            await chat.wait_until(lambda: "can run, then resumes" not in slow.text)

    assert endings[0].id < endings[1].id
    (slow_file,) = (tmp_path / "work").glob("*/slow.txt")
    (urgent_file,) = (tmp_path / "work").glob("*/urgent.txt")
    assert urgent_file.stat().st_mtime < slow_file.stat().st_mtime


def _ending(cue: str) -> Callable[[TelegramMessage], bool]:
    def holds(message: TelegramMessage) -> bool:
        return "Task finished" in message.text and cue in message.text

    return holds
