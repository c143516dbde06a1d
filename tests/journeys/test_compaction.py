"""A chat that outgrows what a model can be told goes on answering, over a sudden death too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import ScriptedModel, scripted_model
from tests.journeys.program import running_program

SMALL = json.dumps({"context_tokens": 2000, "tail_messages": 4})
SUMMARISE = "Summarise this part of a conversation"
FIRST = "我们的花园叫绿禾公园，钥匙在豆豆那里"
FILLER = "and so on and on, " * 30
MOST = 40
"""Turns; far fewer are needed."""


def echo_line(asked: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(text=f"heard {asked.last_text.strip().split()[1]}")


async def say_line(boss: TelegramUser, chat: TelegramChat, n: int) -> None:
    await boss.says(chat, f"line {n}: {FILLER}")

    def answers(message: TelegramMessage) -> bool:
        return message.from_bot and f"heard {n}:" in message.text

    await chat.wait_for(answers)


def last_prompt(stage: ScriptedModel) -> str:
    """The model's input for the last answer."""
    lines = [asked for asked in stage.requests if asked.last_text.strip().startswith("line")]
    return json.dumps(lines[-1].body["messages"], ensure_ascii=False) if lines else ""


async def test_a_chat_continues_while_it_is_compacted_and_loses_nothing(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    async with TelegramEmulator() as telegram, scripted_model() as (stage, access):
        stage.script(
            SUMMARISE, "talk", lambda _: ScriptedReply(text="They talked of a garden.", hold=go)
        )
        stage.script("Join these summaries", "talk", lambda _: ScriptedReply(text="They talked."))
        stage.script("line ", "talk", echo_line)
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with running_program(
            tmp_path,
            **telegram.settings,
            SHIFTBOSS_OWNERS="telegram:7",
            SHIFTBOSS_MEMORY=SMALL,
            **access,
        ) as shiftboss:
            await boss.says(chat, f"line 0: {FIRST}")
            await chat.wait_for(lambda m: m.from_bot and "heard 0:" in m.text)
            turn = 0
            while not stage.requests_for(SUMMARISE) and turn < MOST:
                turn += 1
                await say_line(boss, chat, turn)
            await stage.wait_for_request(SUMMARISE, "talk")
            turn += 1
            await say_line(boss, chat, turn)
            assert "<summary" not in last_prompt(stage), "the answer did not wait for the summary"

            await shiftboss.kill()
            go.set()
            await shiftboss.start()
            while "<summary" not in last_prompt(stage) and turn < MOST:
                turn += 1
                await say_line(boss, chat, turn)
            assert "They talked of a garden." in last_prompt(stage)
            assert FIRST not in last_prompt(stage)

            await boss.says(chat, "/history search 绿禾 豆豆")
            await chat.wait_for(lambda m: m.from_bot and FIRST in m.text)
            await boss.says(chat, "/new")
            await chat.wait_for(lambda m: m.from_bot and "已开始新对话" in m.text)
            await say_line(boss, chat, MOST + 1)
            new = json.dumps(stage.requests_for(f"line {MOST + 1}")[0].body, ensure_ascii=False)
            assert "The last lines of the conversation before this one" in new
            assert f"you: heard {turn}" in new

            await boss.says(chat, "/cost")
            await chat.wait_for(lambda m: m.from_bot and "整理对话摘要" in m.text)
