from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.transports.telegram.transport import TelegramTransport
from storage.records.people import Channel
from tests.bot.transports.telegram.builders import FakeSleep, make_transport, running, started
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import TelegramUser
from tests.fakes.inbox import FakeInbox


@pytest.fixture
async def tg() -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator() as emulator:
        yield emulator


@pytest.fixture
def ada(tg: TelegramEmulator) -> TelegramUser:
    return tg.user(7, "Ada", "en")


@pytest.fixture
def chat(tg: TelegramEmulator, ada: TelegramUser) -> TelegramChat:
    return tg.private_chat(ada)


@pytest.fixture
async def intake() -> FakeInbox:
    return FakeInbox(Channel.TELEGRAM)


@pytest.fixture
def sleep() -> FakeSleep:
    return FakeSleep()


@pytest.fixture
async def sender(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> AsyncIterator[TelegramTransport]:
    """A transport that sends and does not receive."""
    async with started(make_transport(tg, intake, tmp_path, sleep)) as transport:
        yield transport


@pytest.fixture
async def live(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> AsyncIterator[TelegramTransport]:
    """A transport that sends and receives."""
    async with running(make_transport(tg, intake, tmp_path, sleep)) as transport:
        yield transport
