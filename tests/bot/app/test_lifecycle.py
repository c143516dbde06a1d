"""Starting in order, stopping in reverse, failing as one, and a transport that fails alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from bot.app import supervisor
from bot.app.lifecycle import App
from bot.app.supervisor import Supervised
from bot.transports.base import Transport
from storage.records.people import Channel


class Part:
    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self.name, self.log, self.fails = name, log, fails

    async def start(self, stack: AsyncExitStack) -> None:
        if self.fails == "start":
            raise RuntimeError(self.name)
        self.log.append(f"start {self.name}")
        stack.callback(self.log.append, f"stop {self.name}")

    async def run(self) -> None:
        self.log.append(f"run {self.name}")
        if self.fails == "run":
            raise RuntimeError(self.name)
        await asyncio.Event().wait()


async def test_it_starts_in_order_and_stops_in_reverse() -> None:
    log: list[str] = []
    until = asyncio.Event()
    asyncio.get_running_loop().call_soon(until.set)

    async with App((Part("a", log), Part("b", log))) as app:
        await app.run(until)

    assert [line for line in log if "run" not in line] == [
        "start a",
        "start b",
        "stop b",
        "stop a",
    ]


async def test_a_failed_start_unwinds_what_had_started() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError, match="b"):
        async with App((Part("a", log), Part("b", log, "start"))):
            pass

    assert log == ["start a", "stop a"]


async def test_a_service_that_fails_ends_the_others_cleanly() -> None:
    log: list[str] = []
    with pytest.raises(ExceptionGroup):
        async with App((Part("a", log), Part("b", log, "run"))) as app:
            await app.run(asyncio.Event())

    assert log[-2:] == ["stop b", "stop a"]


async def test_a_transport_that_breaks_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    back = asyncio.Event()

    class Broken:
        channel = Channel.TELEGRAM

        async def run(self) -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                raise RuntimeError("surprise")
            back.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(supervisor, "_FIRST_REST", 0.0)
    running = asyncio.create_task(Supervised(cast(Transport, cast(Any, Broken()))).run())
    async with asyncio.timeout(10):
        await back.wait()
    running.cancel()

    assert runs == 2
