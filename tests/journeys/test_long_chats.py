"""A chat that outgrows what a model can be told goes on answering, over a sudden death too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.emulators.models.script import Asked, Reply
from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.people import User
from tests.journeys.model_world import PATIENCE, Stage, staged
from tests.journeys.program import program

SMALL = json.dumps({"context_tokens": 2000, "tail_messages": 4})
SUMMARISE = "Summarise this part of a conversation"
FIRST = "我们的花园叫绿禾公园，钥匙在豆豆那里"
FILLER = "and so on and on, " * 30
MOST = 40
"""Turns; far fewer are needed."""


def heard(asked: Asked) -> Reply:
    return Reply(text=f"heard {asked.last.strip().split()[1]}")


async def says(boss: User, chat: Chat, n: int) -> None:
    await boss.says(chat, f"line {n}: {FILLER}")

    def answers(message: Message) -> bool:
        return message.from_bot and f"heard {n}:" in message.text

    await chat.wait_for(answers, PATIENCE)


def told(stage: Stage) -> str:
    """What the model was told for the last answer."""
    lines = [asked for asked in stage.asked if asked.last.strip().startswith("line")]
    return json.dumps(lines[-1].body["messages"], ensure_ascii=False) if lines else ""


async def test_a_chat_goes_on_while_it_is_made_shorter_and_nothing_of_it_is_lost(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    async with TelegramEmulator() as telegram, staged() as (stage, access):
        stage.on(SUMMARISE, "talk", lambda _: Reply(text="They talked of a garden.", hold=go))
        stage.on("Join these summaries", "talk", lambda _: Reply(text="They talked."))
        stage.on("line ", "talk", heard)
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with program(
            tmp_path,
            TELEGRAM_BOT_TOKEN=telegram.token,
            TELEGRAM_BASE_URL=telegram.base_url,
            SHIFTBOSS_OWNERS="telegram:7",
            SHIFTBOSS_MEMORY=SMALL,
            **access,
        ) as shiftboss:
            await boss.says(chat, f"line 0: {FIRST}")
            await chat.wait_for(lambda m: m.from_bot and "heard 0:" in m.text, PATIENCE)
            turn = 0
            while not stage.heard(SUMMARISE) and turn < MOST:
                turn += 1
                await says(boss, chat, turn)
            await stage.under_way(SUMMARISE, "talk")
            turn += 1
            await says(boss, chat, turn)
            assert "<summary" not in told(stage), "the answer did not wait for the summary"

            await shiftboss.kill()
            go.set()
            await shiftboss.start()
            while "<summary" not in told(stage) and turn < MOST:
                turn += 1
                await says(boss, chat, turn)
            assert "They talked of a garden." in told(stage)
            assert FIRST not in told(stage)

            await boss.says(chat, "/history search 绿禾 豆豆")
            await chat.wait_for(lambda m: m.from_bot and FIRST in m.text, PATIENCE)
            await boss.says(chat, "/new")
            await chat.wait_for(lambda m: m.from_bot and "已开始新对话" in m.text, PATIENCE)
            await says(boss, chat, MOST + 1)
            new = json.dumps(stage.heard(f"line {MOST + 1}")[0].body, ensure_ascii=False)
            assert "The last lines of the conversation before this one" in new
            assert f"you: heard {turn}" in new

            await boss.says(chat, "/cost")
            await chat.wait_for(lambda m: m.from_bot and "整理对话摘要" in m.text, PATIENCE)
