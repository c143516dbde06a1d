"""The real Telegram client library, pointed at the emulator."""

from __future__ import annotations

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup

from tests.emulators.telegram.emulator import TelegramEmulator


def make_bot(tg: TelegramEmulator, token: str = "") -> Bot:
    return Bot(
        token or tg.token,
        base_url=f"{tg.base_url}/bot",
        base_file_url=f"{tg.base_url}/file/bot",
    )


def keyboard(*data: str) -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(f"Button {i}", callback_data=d)] for i, d in enumerate(data)]
    )
