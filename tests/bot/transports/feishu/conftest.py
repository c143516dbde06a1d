"""A transport connected to the emulator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.transports.feishu.api import FeishuApi, build_http_client
from bot.transports.feishu.transport import FeishuTransport
from storage.records.people import Channel
from tests.bot.transports.feishu.builders import FeishuHarness, InstantSleep
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.fakes.inbox import FakeInbox


@pytest.fixture
async def fs() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator() as emulator:
        yield emulator


@pytest.fixture
async def api(fs: FeishuEmulator) -> AsyncIterator[FeishuApi]:
    async with build_http_client(fs.domain) as client:
        yield FeishuApi(
            client=client,
            app_id=fs.app_id,
            app_secret=fs.app_secret,
            now=time.monotonic,
            on_call=lambda: None,
        )


@pytest.fixture
async def idle(fs: FeishuEmulator, tmp_path: Path) -> AsyncIterator[FeishuHarness]:
    """Started, but with no long connection yet."""
    intake, quick = FakeInbox(Channel.FEISHU, "Paused"), InstantSleep()
    calls: list[int] = []
    transport = FeishuTransport(
        app_id=fs.app_id,
        app_secret=fs.app_secret,
        domain=fs.domain,
        inbox=intake,
        home=tmp_path,
        on_call=lambda: calls.append(1),
        sleep=quick,
        jitter=lambda: 0.5,
    )
    async with AsyncExitStack() as stack:
        await transport.start(stack)
        yield FeishuHarness(
            fs=fs, inbox=intake, transport=transport, home=tmp_path, quick=quick, calls=calls
        )


@pytest.fixture
async def desk(idle: FeishuHarness) -> AsyncIterator[FeishuHarness]:
    """Started and connected."""
    running = asyncio.create_task(idle.transport.run())
    try:
        await idle.fs.wait_for_connections()
        yield idle
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
