"""What one front tells the others reaches them, also if the connection was lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.transports import front_signals
from bot.transports.front_signals import FrontSignal, FrontSignals
from storage.errors import StoreUnavailable
from tests.waiting import WAIT_SECONDS


class CutOnce:
    """A connection that was cut while nobody used it: the first signal finds out."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_cut = True
        self.has_told = asyncio.Event()

    async def send(self, text: str) -> None:
        if self.is_cut:
            self.is_cut = False
            raise StoreUnavailable("the connection was cut")
        self.told.append(text)
        if len(self.told) == 4:
            self.has_told.set()


async def test_signals_that_met_a_cut_connection_are_told_over_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = CutOnce()

    @asynccontextmanager
    async def connect(_url: str) -> AsyncIterator[CutOnce]:
        yield channel

    monkeypatch.setattr(front_signals, "open_live_channel", connect)
    monkeypatch.setattr(front_signals, "_RECONNECT_SECONDS", 0)
    here, there, heard = FrontSignals("url", "a"), FrontSignals("", "b"), list[object]()
    there.connect(FrontSignal.SESSIONS_ENDED, heard.append)
    there.connect(FrontSignal.WRONG_TOKEN, heard.append)
    running = asyncio.create_task(here.run())
    try:
        here.tell(FrontSignal.SESSIONS_ENDED, ["s1"])
        # They come before the connection is there: a flood of one kind pushes no other out.
        monkeypatch.setattr(front_signals, "_MAX_WAITING", 2)
        for number in range(9):
            here.tell(FrontSignal.WRONG_TOKEN, f"10.0.0.{number}")
        here.tell(FrontSignal.SESSIONS_ENDED, ["s2"])
        async with asyncio.timeout(WAIT_SECONDS):
            await channel.has_told.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    for text in channel.told:
        there.receive(text)
    assert heard == [["s1"], ["s2"], "10.0.0.7", "10.0.0.8"]
