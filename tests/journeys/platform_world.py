"""One Shiftboss on Telegram and on Feishu at once, with an owner on each."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.emulators.feishu import tenant as feishu_world
from tests.emulators.feishu import users as feishu_people
from tests.emulators.feishu.callbacks import CallbackAnswer
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.telegram import chats as telegram_chats
from tests.emulators.telegram import users as telegram_people
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import ShiftbossProcess, running_program


@dataclass
class PlatformWorld:
    """A program, its emulated platforms, and an owner with a private chat on each."""

    telegram: TelegramEmulator
    feishu: FeishuEmulator
    program: ShiftbossProcess
    telegram_owner: telegram_people.TelegramUser
    telegram_chat: telegram_chats.TelegramChat
    feishu_owner: feishu_people.FeishuUser
    feishu_chat: feishu_world.FeishuChat

    async def wait_until_connected(self) -> None:
        """Until both channels hear."""
        await self.feishu.wait_for_connections()
        before = self.telegram.world.updates.pollers
        await self.telegram.wait_until(
            lambda: self.telegram.world.updates.pollers > before or not self.telegram.unconfirmed,
        )

    async def ask(self, text: str, **how: Any) -> str:
        """Ask as the boss, at home or where `chat` says: the next thing said there.

        With `expects` it is the next thing said with these words in it: cards of tasks that live
        meanwhile may come first.
        """
        return await ask_on_telegram_as(
            self.telegram_owner, how.pop("chat", self.telegram_chat), text, **how
        )

    async def ask_on_feishu(self, text: str, **how: Any) -> str:
        return await ask_on_feishu_as(
            self.feishu_owner, how.pop("chat", self.feishu_chat), text, **how
        )

    async def start_task(
        self, text: str = "/run wait 10 minutes"
    ) -> telegram_chats.TelegramMessage:
        """Start a task at home: its live card, once it is no longer in line."""
        return await self._card(text, "🔄")

    async def queue_task(self, text: str) -> telegram_chats.TelegramMessage:
        """Start a task at home that may have to wait: its live card."""
        return await self._card(text, "")

    async def _card(self, text: str, mark: str) -> telegram_chats.TelegramMessage:
        before = {message.id for message in self.telegram_chat.from_bot}
        await self.telegram_owner.says(self.telegram_chat, text)
        return await self.telegram_chat.wait_for(
            lambda m: m.id not in before and mark in m.text and bool(labels(m, "Pause")),
        )


@asynccontextmanager
async def platform_world(home: Path, **settings: str) -> AsyncGenerator[PlatformWorld, None]:
    base = {"SHIFTBOSS_LANGUAGE": "en"}
    async with open_platforms(home, owner_ids=(7,), **base | settings) as world:
        yield world


@asynccontextmanager
async def open_platforms(
    home: Path, *, owner_ids: Sequence[int], feishu_owner: str = "Chief", **settings: str
) -> AsyncGenerator[PlatformWorld, None]:
    """The program with these Telegram users and one Feishu user as owners."""
    async with TelegramEmulator() as telegram, FeishuEmulator() as feishu:
        boss, chief = telegram.user(owner_ids[0], "Boss"), feishu.user(feishu_owner)
        owners = [f"telegram:{number}" for number in owner_ids]
        facts = {
            **telegram.settings,
            **feishu.settings,
            "SHIFTBOSS_OWNERS": ",".join([*owners, f"feishu:{chief.open_id}"]),
        }
        async with running_program(home, **facts | settings) as shiftboss:
            made = PlatformWorld(
                telegram=telegram,
                feishu=feishu,
                program=shiftboss,
                telegram_owner=boss,
                telegram_chat=telegram.private_chat(boss),
                feishu_owner=chief,
                feishu_chat=feishu.private_chat(chief),
            )
            await made.wait_until_connected()
            yield made
        for secret in (telegram.token, telegram.token.partition(":")[2], feishu.app_secret):
            assert secret not in shiftboss.printed, "secrets are not for logs"


async def ask_on_telegram_as(
    who: telegram_people.TelegramUser,
    chat: telegram_chats.TelegramChat,
    text: str,
    *,
    expects: str = "",
    **how: Any,
) -> str:
    known = {message.id for message in chat.from_bot}
    await who.says(chat, text, **how)
    answer = await chat.wait_for(lambda m: m.id not in known and expects in m.text)
    return answer.text


async def ask_on_feishu_as(
    who: feishu_people.FeishuUser,
    chat: feishu_world.FeishuChat,
    text: str,
    *,
    expects: str = "",
    **how: Any,
) -> str:
    known = {message.message_id for message in chat.from_bot}

    def shown(message: feishu_world.FeishuMessage) -> str:
        return f"{message.header}\n{message.text}"

    await who.says(chat, text, **how)
    answer = await chat.wait_for(lambda m: m.message_id not in known and expects in shown(m))
    return shown(answer)


STILL_WORKING = "On it"
"""The beginning of a toast on either platform whose result follows as a message or in the card."""
ALREADY_PRESSED = "already pressed this"


async def press_outcomes(
    presses: Sequence[telegram_people.ButtonPress], *expected: str
) -> list[str]:
    """The answers to presses in one chat, each a text with one of these in it.

    They appear on the button or, if the program needs longer than a button can wait, in a separate
    message after the others.
    """
    chat, seen = presses[0].chat, presses[0].seen
    answers = [(await press.answer()).text for press in presses]
    told = [text for text in answers if not text.startswith(STILL_WORKING)]

    def late() -> list[str]:
        new = (m for m in chat.from_bot if m.id not in seen and not m.buttons)
        return [m.text for m in new if any(part in m.text for part in expected)]

    missing = len(answers) - len(told)
    await chat.wait_until(lambda: len(late()) >= missing)
    return [*told, *late()[:missing]]


async def press_outcome(press: telegram_people.ButtonPress, *expected: str) -> str:
    return (await press_outcomes([press], *expected))[0]


async def feishu_press_outcome(
    card: feishu_world.FeishuMessage, press: Awaitable[CallbackAnswer], *expected: str
) -> str:
    """The same for a press on Feishu, or what its card says since."""
    known = {message.message_id: message.text for message in card.chat.from_bot}
    toast = (await press).toast
    if not toast.startswith(STILL_WORKING):
        return toast
    note = await card.chat.wait_for(
        lambda m: known.get(m.message_id) != m.text and any(part in m.text for part in expected)
    )
    return note.text


def labels(
    message: telegram_chats.TelegramMessage | feishu_world.FeishuMessage, word: str
) -> list[str]:
    return [label for label in message.buttons if word in label]


def label(message: telegram_chats.TelegramMessage | feishu_world.FeishuMessage, word: str) -> str:
    return labels(message, word)[0]


def token(message: telegram_chats.TelegramMessage, word: str) -> str:
    """The button's data."""
    return str(message.button(label(message, word))["callback_data"])


def code_in(text: str) -> str:
    """The pairing code a stranger was shown."""
    found = re.search(r"\b[23456789A-Z]{8}\b", text)
    assert found, text
    return found[0]
