"""One Shiftboss on Telegram and on Feishu at once, with an owner on each."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from tests.emulators.feishu import people as feishu_people
from tests.emulators.feishu import world as feishu_world
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.telegram import chats as telegram_chats
from tests.emulators.telegram import people as telegram_people
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import Program, program

PATIENCE = 60.0


@dataclass
class Town:
    """`boss` writes at `home` on Telegram, `chief` at `office` on Feishu; both are owners."""

    telegram: TelegramEmulator
    feishu: FeishuEmulator
    shiftboss: Program
    boss: telegram_people.User
    home: telegram_chats.Chat
    chief: feishu_people.User
    office: feishu_world.Chat

    async def up(self) -> None:
        """Until both channels hear."""
        await self.feishu.connected(timeout=PATIENCE)
        before = self.telegram.world.updates.pollers
        await self.telegram.wait_until(
            lambda: self.telegram.world.updates.pollers > before or not self.telegram.unconfirmed,
            timeout=PATIENCE,
        )

    async def ask(self, text: str, **how: Any) -> str:
        """Ask as the boss, at home or where `chat` says: the next thing said there.

        With `expects` it is the next thing said with these words in it: cards of tasks that live
        meanwhile may come first.
        """
        return await asked(self.boss, how.pop("chat", self.home), text, **how)

    async def ask_chief(self, text: str, **how: Any) -> str:
        return await asked_on_feishu(self.chief, how.pop("chat", self.office), text, **how)

    async def live(self, text: str = "/run wait 10 minutes") -> telegram_chats.Message:
        """Start a task at home: its live card, once it is no longer in line."""
        return await self._card(text, "🔄")

    async def queued(self, text: str) -> telegram_chats.Message:
        """Start a task at home that may have to wait: its live card."""
        return await self._card(text, "")

    async def _card(self, text: str, mark: str) -> telegram_chats.Message:
        before = {message.id for message in self.home.from_bot}
        await self.boss.says(self.home, text)
        return await self.home.wait_for(
            lambda m: m.id not in before and mark in m.text and bool(labels(m, "Pause")),
            timeout=PATIENCE,
        )


@asynccontextmanager
async def town(home: Path, **settings: str) -> AsyncGenerator[Town, None]:
    async with TelegramEmulator() as telegram, FeishuEmulator() as feishu:
        boss, chief = telegram.user(7, "Boss"), feishu.user("Chief")
        facts = {
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_BASE_URL": telegram.base_url,
            "FEISHU_APP_ID": feishu.app_id,
            "FEISHU_APP_SECRET": feishu.app_secret,
            "FEISHU_DOMAIN": feishu.domain,
            "SHIFTBOSS_OWNERS": f"telegram:7,feishu:{chief.open_id}",
            "SHIFTBOSS_LANGUAGE": "en",
        }
        async with program(home, **facts | settings) as shiftboss:
            made = Town(
                telegram=telegram,
                feishu=feishu,
                shiftboss=shiftboss,
                boss=boss,
                home=telegram.private_chat(boss),
                chief=chief,
                office=feishu.p2p(chief),
            )
            await made.up()
            yield made
        for secret in (telegram.token, telegram.token.partition(":")[2], feishu.app_secret):
            assert secret not in shiftboss.text, "secrets are not for logs"


async def asked(
    who: telegram_people.User,
    chat: telegram_chats.Chat,
    text: str,
    *,
    expects: str = "",
    **how: Any,
) -> str:
    known = {message.id for message in chat.from_bot}
    await who.says(chat, text, **how)
    answer = await chat.wait_for(
        lambda m: m.id not in known and expects in m.text, timeout=PATIENCE
    )
    return answer.text


async def asked_on_feishu(
    who: feishu_people.User,
    chat: feishu_world.Chat,
    text: str,
    *,
    expects: str = "",
    **how: Any,
) -> str:
    known = {message.message_id for message in chat.from_bot}

    def shown(message: feishu_world.Message) -> str:
        return f"{message.header}\n{message.text}"

    await who.says(chat, text, **how)
    answer = await chat.wait_for(
        lambda m: m.message_id not in known and expects in shown(m), timeout=PATIENCE
    )
    return shown(answer)


def labels(message: telegram_chats.Message | feishu_world.Message, word: str) -> list[str]:
    return [label for label in message.buttons if word in label]


def label(message: telegram_chats.Message | feishu_world.Message, word: str) -> str:
    return labels(message, word)[0]


def token(message: telegram_chats.Message, word: str) -> str:
    """What the button carries."""
    return str(message.button(label(message, word))["callback_data"])


def code_in(text: str) -> str:
    """The pairing code a stranger was shown."""
    found = re.search(r"\b[23456789A-Z]{8}\b", text)
    assert found, text
    return found[0]


async def over_the_socket(shiftboss: Program, *frames: str) -> list[dict[str, Any]]:
    """Say these to the web chat as a page would: an answer to each that is not a past."""
    address, _, secret = shiftboss.address.partition("/?token=")
    answers: list[dict[str, Any]] = []
    async with connect(
        f"{address.replace('http', 'ws', 1)}/ws",
        additional_headers={"Authorization": f"Bearer {secret}"},
    ) as socket:
        for frame in frames:
            await socket.send(frame)
            answers.append(await _answer(socket))
    return answers


async def _answer(socket: Any) -> dict[str, Any]:
    while True:
        frame: dict[str, Any] = json.loads(await socket.recv())
        if frame["type"] in {"stored", "refused", "toast"}:
            return frame
