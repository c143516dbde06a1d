"""The command menu people see when they type a slash."""

from __future__ import annotations

import logging
import re

from telegram import Bot, BotCommand, MenuButtonCommands
from telegram.error import TelegramError

from bot.transports.base import Menu
from bot.transports.telegram.errors import reason
from storage.records.people import Language

_NAME = re.compile(r"[a-z0-9_]{1,32}")
_MOST = 100
_LONGEST = 256

log = logging.getLogger(__name__)


async def publish(bot: Bot, menu: Menu) -> None:
    """Set the menu: English for everybody, Chinese for clients in Chinese. Best effort."""
    try:
        await bot.set_my_commands(_commands(menu, Language.ENGLISH))
        await bot.set_my_commands(_commands(menu, Language.CHINESE), language_code="zh")
        await bot.set_chat_menu_button(menu_button=MenuButtonCommands())
    except TelegramError as error:
        log.warning("The Telegram command menu could not be set: %s", reason(error))


def _commands(menu: Menu, language: Language) -> list[BotCommand]:
    """Telegram refuses the whole menu for one bad name; Chinese names work but are not shown."""
    return [
        BotCommand(name, " ".join(text.split())[:_LONGEST])
        for name, text in menu(language)
        if _NAME.fullmatch(name) and text.strip()
    ][:_MOST]
