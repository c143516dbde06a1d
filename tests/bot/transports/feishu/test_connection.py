"""The long connection comes back from anything, and says once what is wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from bot.transports.feishu.link import frames
from bot.transports.feishu.link.frames import Assembly, BadFrame
from tests.bot.transports.feishu.desk import Desk
from tests.emulators.feishu.faults import ApiError, Cut, scope_missing
from tests.emulators.feishu.frames import DATA, encode

_IMPORTS = """
import sys
import bot.transports.feishu.transport
from bot.transports.feishu.link.sdk import decode_error, frame_class
frame_class()
decode_error()
print([name for name in sys.modules if name.startswith(("lark_oapi.api", "lark_oapi.ws.client",
       "lark_oapi.event", "requests", "lark_oapi.channel", "pkg_resources"))])
"""


def test_importing_the_transport_loads_no_generated_models() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_dropped_connection_is_made_again(desk: Desk, *, abrupt: bool) -> None:
    fs = desk.fs
    anna = fs.user("Anna")

    await fs.long.drop(abrupt=abrupt)
    await fs.until(lambda: fs.long.accepted == 2)
    await fs.until(lambda: len(fs.long.connections) == 1)
    await anna.says(fs.p2p(anna), "hello")

    assert (await desk.intake.message()).text == "hello"


async def test_an_event_cut_off_before_its_ack_comes_again_and_counts_once(desk: Desk) -> None:
    fs = desk.fs
    anna = fs.user("Anna")
    accept = desk.intake.accept

    async def accept_and_fall(*args: Any, **more: Any) -> Any:
        stored = await accept(*args, **more)
        await fs.long.drop(abrupt=True)
        return stored

    desk.intake.accept = accept_and_fall  # type: ignore[method-assign] # falls once stored
    sent = await anna.says(fs.p2p(anna), "hello")
    push = sent.push
    assert push is not None
    await desk.intake.message()
    desk.intake.accept = accept  # type: ignore[method-assign] # and no more
    await fs.until(lambda: fs.long.accepted == 2)
    await fs.until(lambda: len(fs.long.connections) == 1)
    async with asyncio.timeout(60):
        while not push.acked.done():
            # Time for the lost try to give up and for the next to be due, none for that to expire.
            if push.waiting or push.attempts == 1:
                fs.advance(20)
            await asyncio.sleep(0.001)

    assert push.attempts > 1
    assert len(desk.intake.arrived) == 1


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
async def test_no_refused_rediscovery_is_the_last(desk: Desk, code: int, key: str) -> None:
    fs = desk.fs
    fs.long.discovery_codes = [code, code, code]

    await fs.long.drop()
    await fs.until(lambda: fs.long.accepted == 2)
    told = ["", key, ""] if key else [""]
    await desk.intake.until(lambda: len(desk.intake.alerts) == len(told))

    assert [alert for alert, _ in desk.intake.alerts] == told


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
    desk: Desk, headers: dict[str, str], key: str
) -> None:
    fs = desk.fs
    fs.long.handshake_refusals = [headers, headers]

    await fs.long.drop()
    await fs.until(lambda: fs.long.accepted == 2)

    assert [alert for alert, _ in desk.intake.alerts if alert] == [key]


async def test_discovery_that_answers_rubbish_or_nothing_is_tried_again(idle: Desk) -> None:
    fs = idle.fs
    fs.misbehave("POST", "/callback/ws/endpoint", raw=b"<html>502", status=502)
    fs.misbehave("POST", "/callback/ws/endpoint", cut=Cut.BEFORE)
    fs.misbehave("POST", "/callback/ws/endpoint", raw=b'{"code":0,"data":{"URL":"ws://x/"}}')
    running = asyncio.create_task(idle.transport.run())

    await idle.intake.until(lambda: ("", {}) in idle.intake.alerts)

    assert [key for key, _ in idle.intake.alerts] == ["unreachable", "refused", ""]
    assert idle.quick.pauses == sorted(idle.quick.pauses)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (ApiError(11205, "app do not have bot"), "bot"),
        (scope_missing("im:message"), "scope"),
        (ApiError(10014, "app secret invalid", status=200), "credentials"),
    ],
)
async def test_who_cannot_say_who_it_is_does_not_connect(
    idle: Desk, error: ApiError, key: str
) -> None:
    idle.fs.misbehave("GET", "/bot/v3/info", error=error, times=2)
    running = asyncio.create_task(idle.transport.run())

    await idle.intake.until(lambda: ("", {}) in idle.intake.alerts)

    assert [alert for alert, _ in idle.intake.alerts] == [key, ""]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_peer_that_sends_no_pong_is_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.transports.feishu.link.longconn._PONG_SECONDS", 0.05)
    desk.fs.long.answer_pings = False
    accepted = desk.fs.long.accepted

    await desk.fs.long.drop()
    await desk.fs.until(lambda: desk.fs.long.accepted >= accepted + 3)


async def test_the_ping_pace_is_the_platforms(idle: Desk) -> None:
    idle.fs.long.config["PingInterval"] = 0.01  # type: ignore[assignment] # quicker than real
    running = asyncio.create_task(idle.transport.run())

    await idle.fs.until(lambda: idle.fs.long.pings > 3)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_bytes_that_are_no_frame_are_survived(desk: Desk) -> None:
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
    await anna.says(fs.p2p(anna), "still there?")

    assert (await desk.intake.message()).text == "still there?"
    assert fs.long.accepted == 1


def test_parts_are_forgotten_and_bounded() -> None:
    clock = [0.0]
    assembly = Assembly(lambda: clock[0])

    def part(message: str, number: int) -> bytes | None:
        headers = {"message_id": message, "sum": "2", "seq": str(number)}
        return assembly.add(frames.read(encode(DATA, headers, b"ab"[number : number + 1])))

    assert part("m", 1) is None
    assert part("m", 0) == b"ab"
    assert part("m", 1) is None
    clock[0] = 6.0
    assert part("m", 0) is None
    for number in range(99):
        part(f"n{number}", 0)
    with pytest.raises(BadFrame):
        part("one too many", 0)
