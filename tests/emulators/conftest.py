"""Shared by the tests of the Telegram emulator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from telegram import Bot

from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.client import make_bot
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import TelegramUser


@pytest.fixture(autouse=True)
def new_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the library for durations instead of its warning about numbers."""
    monkeypatch.setenv("PTB_TIMEDELTA", "1")


@pytest.fixture
async def tg() -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator() as emulator:
        yield emulator


@pytest.fixture
async def bot(tg: TelegramEmulator) -> AsyncIterator[Bot]:
    client = make_bot(tg)
    async with client:
        yield client


@pytest.fixture
def ada(tg: TelegramEmulator) -> TelegramUser:
    return tg.user(7, "Ada")


@pytest.fixture
def chat(tg: TelegramEmulator, ada: TelegramUser) -> TelegramChat:
    return tg.private_chat(ada)
