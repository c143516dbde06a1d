"""Starting in order, stopping in reverse, failing as one, and a transport that fails alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import cast

import pytest

from bot.app.lifecycle import ServiceGroup
from bot.transports.ports import Transport
from bot.transports.supervisor import TransportSupervisor
from storage.errors import StoreUnavailable
from storage.records.people import Channel
from tests.waiting import WAIT_SECONDS


class LoggingService:
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

    async with ServiceGroup((LoggingService("a", log), LoggingService("b", log))) as app:
        await app.run(until)

    assert [line for line in log if "run" not in line] == [
        "start a",
        "start b",
        "stop b",
        "stop a",
    ]


async def test_services_that_come_later_wait_an_outage_of_the_store_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.app.lifecycle.STORE_RETRY_SECONDS", 0)
    log: list[str] = []
    outages = 2

    class NeedsStore(LoggingService):
        async def start(self, stack: AsyncExitStack) -> None:
            nonlocal outages
            await super().start(stack)
            if outages:
                outages -= 1
                raise StoreUnavailable("the server is closing")

    until = asyncio.Event()
    added = LoggingService("b", log), NeedsStore("c", log)
    async with ServiceGroup((LoggingService("a", log),)) as app:

        async def add() -> None:
            await app.add(added)
            asyncio.get_running_loop().call_later(0, until.set)

        await app.run(until, meanwhile=add)

    again = ["start c", "stop c"]
    runs = ["run a", "start a", "start b", *again, *again, "start c", "run b", "run c"]
    assert sorted(log) == sorted([*runs, "stop c", "stop b", "stop a"])
    assert log[-3:] == ["stop c", "stop b", "stop a"]


class DrainingService(LoggingService):
    async def drain(self) -> None:
        self.log.append(f"drain {self.name}")


async def test_what_drains_does_so_in_reverse_while_all_still_run() -> None:
    log: list[str] = []
    until = asyncio.Event()
    asyncio.get_running_loop().call_soon(until.set)

    class Watched(LoggingService):
        async def run(self) -> None:
            try:
                await super().run()
            finally:
                log.append(f"end {self.name}")

    parts = (
        DrainingService("delivery", log),
        Watched("plain", log),
        DrainingService("dispatcher", log),
    )
    async with ServiceGroup(parts) as app:
        await app.run(until)

    assert [line for line in log if line.startswith(("drain", "end", "stop"))] == [
        "drain dispatcher",
        "drain delivery",
        "end plain",
        "stop dispatcher",
        "stop plain",
        "stop delivery",
    ]


async def test_a_drain_that_fails_ends_the_program_all_the_same() -> None:
    log: list[str] = []
    until = asyncio.Event()
    until.set()

    class Stuck(LoggingService):
        async def drain(self) -> None:
            raise RuntimeError("stuck")

    with pytest.raises(ExceptionGroup):
        async with ServiceGroup((LoggingService("a", log), Stuck("b", log))) as app:
            await app.run(until)

    assert log[-2:] == ["stop b", "stop a"]


async def test_a_failed_start_unwinds_what_had_started() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError, match="b"):
        async with ServiceGroup((LoggingService("a", log), LoggingService("b", log, "start"))):
            pass

    assert log == ["start a", "stop a"]


async def test_a_service_that_fails_ends_the_others_cleanly() -> None:
    log: list[str] = []
    with pytest.raises(ExceptionGroup):
        async with ServiceGroup((LoggingService("a", log), LoggingService("b", log, "run"))) as app:
            await app.run(asyncio.Event())

    assert log[-2:] == ["stop b", "stop a"]


class BrokenTransport:
    """A transport of which only `run` is ever called: it breaks three times, then holds."""

    channel = Channel.TELEGRAM

    def __init__(self) -> None:
        self.runs = 0
        self.holds = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= 3:
            raise RuntimeError("surprise")
        self.holds.set()
        await asyncio.Event().wait()


async def test_a_transport_that_breaks_rests_longer_each_time_and_is_started_again() -> None:
    rests: list[float] = []
    transport = BrokenTransport()

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    running = asyncio.create_task(TransportSupervisor(cast("Transport", transport), rest).run())
    async with asyncio.timeout(WAIT_SECONDS):
        await transport.holds.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert rests == [1.0, 2.0, 4.0]
