"""The long connection comes back from anything, and says once what is wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.transports.feishu.long_connection import (
    FeishuFrameAssembler,
    FeishuFrameError,
    parse_frame,
)
from tests.bot.transports.feishu.builders import FeishuHarness
from tests.emulators.feishu.long_connection import DATA, encode
from tests.emulators.feishu.refusals import ConnectionCut, FeishuApiError, scope_missing
from tests.waiting import WAIT_SECONDS


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_dropped_connection_is_made_again(desk: FeishuHarness, *, abrupt: bool) -> None:
    fs = desk.fs
    anna = fs.user("Anna")

    await fs.long.drop_connections(abrupt=abrupt)
    await fs.wait_until(lambda: fs.long.accepted == 2)
    await fs.wait_until(lambda: len(fs.long.connections) == 1)
    await anna.says(fs.private_chat(anna), "hello")

    assert (await desk.inbox.message()).text == "hello"


async def test_an_event_cut_off_before_its_ack_comes_again_and_counts_once(
    desk: FeishuHarness,
) -> None:
    fs = desk.fs
    anna = fs.user("Anna")
    accept = desk.inbox.accept

    async def accept_and_fall(*args: Any, **more: Any) -> Any:
        stored = await accept(*args, **more)
        await fs.long.drop_connections(abrupt=True)
        return stored

    desk.inbox.accept = accept_and_fall  # type: ignore[method-assign] # falls once stored
    sent = await anna.says(fs.private_chat(anna), "hello")
    push = sent.push
    assert push is not None
    await desk.inbox.message()
    desk.inbox.accept = accept  # type: ignore[method-assign] # and no more
    await fs.wait_until(lambda: fs.long.accepted == 2)
    await fs.wait_until(lambda: len(fs.long.connections) == 1)
    async with asyncio.timeout(WAIT_SECONDS):
        while not push.acked.done():
            # Time for the lost try to give up and for the next to be due, none for that to expire.
            if push.waiting or push.attempts == 1:
                fs.advance(20)
            await asyncio.sleep(0.001)

    assert push.attempts > 1
    assert len(desk.inbox.accepted) == 1


async def test_every_connecting_is_reported(desk: FeishuHarness) -> None:
    await desk.fs.long.drop_connections()
    await desk.fs.wait_until(lambda: desk.fs.long.accepted == 2)
    await desk.inbox.wait(lambda: len(desk.inbox.alerts) == 1)

    assert desk.inbox.accounts == ["Shiftboss"]


@pytest.mark.parametrize(
    ("code", "key"),
    [
        (514, "credentials"),
        (1000040344, "credentials"),
        (1000040350, "connections"),
        (403, "refused"),
        (1000040343, ""),
        (1, ""),
    ],
)
async def test_no_refused_rediscovery_is_the_last(desk: FeishuHarness, code: int, key: str) -> None:
    fs = desk.fs
    fs.long.discovery_codes = [code, code, code]

    await fs.long.drop_connections()
    await fs.wait_until(lambda: fs.long.accepted == 2)
    told = ["", key, ""] if key else [""]
    await desk.inbox.wait(lambda: len(desk.inbox.alerts) == len(told))

    assert [alert for alert, _ in desk.inbox.alerts] == told


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"handshake-status": "514", "handshake-msg": "no"}, "refused"),
        (
            {"handshake-status": "514", "handshake-autherrcode": "1000040350"},
            "connections",
        ),
        ({}, "refused"),
    ],
)
async def test_a_refused_handshake_is_tried_again(
    desk: FeishuHarness, headers: dict[str, str], key: str
) -> None:
    fs = desk.fs
    fs.long.handshake_refusals = [headers, headers]

    await fs.long.drop_connections()
    await fs.wait_until(lambda: fs.long.accepted == 2)

    assert [alert for alert, _ in desk.inbox.alerts if alert] == [key]


async def test_discovery_that_answers_rubbish_or_nothing_is_tried_again(
    idle: FeishuHarness,
) -> None:
    fs = idle.fs
    fs.inject_fault("POST", "/callback/ws/endpoint", raw=b"<html>502", status=502)
    fs.inject_fault("POST", "/callback/ws/endpoint", cut=ConnectionCut.BEFORE)
    fs.inject_fault("POST", "/callback/ws/endpoint", raw=b'{"code":0,"data":{"URL":"ws://x/"}}')
    running = asyncio.create_task(idle.transport.run())

    await idle.inbox.wait(lambda: ("", {}) in idle.inbox.alerts)

    assert [key for key, _ in idle.inbox.alerts] == ["unreachable", "refused", ""]
    assert idle.quick.pauses == sorted(idle.quick.pauses)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (FeishuApiError(11205, "app do not have bot"), "bot"),
        (scope_missing("im:message"), "scope"),
        (FeishuApiError(10014, "app secret invalid", status=200), "credentials"),
    ],
)
async def test_who_cannot_say_who_it_is_does_not_connect(
    idle: FeishuHarness, error: FeishuApiError, key: str
) -> None:
    idle.fs.inject_fault("GET", "/bot/v3/info", error=error, times=2)
    running = asyncio.create_task(idle.transport.run())

    await idle.inbox.wait(lambda: ("", {}) in idle.inbox.alerts)

    assert [alert for alert, _ in idle.inbox.alerts] == [key, ""]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_peer_that_sends_no_pong_is_left(
    desk: FeishuHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.transports.feishu.long_connection._PONG_TIMEOUT", 0.05)
    desk.fs.long.answer_pings = False
    accepted = desk.fs.long.accepted

    await desk.fs.long.drop_connections()
    await desk.fs.wait_until(lambda: desk.fs.long.accepted >= accepted + 3)


async def test_the_ping_pace_is_the_platforms(idle: FeishuHarness) -> None:
    idle.fs.long.config["PingInterval"] = 0.01  # type: ignore[assignment] # quicker than real
    running = asyncio.create_task(idle.transport.run())

    await idle.fs.wait_until(lambda: idle.fs.long.pings > 3)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_bytes_that_are_no_frame_are_survived(desk: FeishuHarness) -> None:
    fs = desk.fs
    anna = fs.user("Anna")
    junk: list[bytes | str] = [
        *(b"\xff\xff\xff", b"", "text"),
        encode(DATA, {"type": "event", "message_id": "m", "sum": "x"}, b"{}"),
        encode(DATA, {"type": "event", "message_id": "m", "sum": "3", "seq": "9"}, b"{}"),
        encode(DATA, {"type": "event", "message_id": "m"}, b"\xff not json"),
        encode(0, {"type": "pong"}, b"not json"),
    ]

    for one in junk:
        await fs.long.send_raw(one)
    await anna.says(fs.private_chat(anna), "still there?")

    assert (await desk.inbox.message()).text == "still there?"
    assert fs.long.accepted == 1


def test_parts_are_forgotten_and_bounded() -> None:
    clock = [0.0]
    assembly = FeishuFrameAssembler(lambda: clock[0])

    def part(message: str, number: int) -> bytes | None:
        headers = {"message_id": message, "sum": "2", "seq": str(number)}
        return assembly.add(parse_frame(encode(DATA, headers, b"ab"[number : number + 1])))

    assert part("m", 1) is None
    assert part("m", 0) == b"ab"
    assert part("m", 1) is None
    clock[0] = 6.0
    assert part("m", 0) is None
    for number in range(99):
        part(f"n{number}", 0)
    with pytest.raises(FeishuFrameError):
        part("one too many", 0)
