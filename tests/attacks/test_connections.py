"""Whoever reaches the port cannot keep others from it by opening connections and saying nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse

from bot.transports.web.transport import BoundedConnection, open_listening_socket, serve_app
from tests.waiting import WAIT_SECONDS

_HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    sock = open_listening_socket("127.0.0.1", 0)
    number = int(sock.getsockname()[1])
    serving = asyncio.create_task(serve_app(PlainTextResponse("fine"), sock))
    yield number
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def send(port: int, data: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def read_to_end(connection: Connection) -> bytes:
    found = b""
    async with asyncio.timeout(WAIT_SECONDS):
        with contextlib.suppress(ConnectionError):
            while part := await connection[0].read(1000):
                found += part
    connection[1].close()
    return found


async def test_silent_connections_make_room_for_a_request(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "limit", 5)
    monkeypatch.setattr(BoundedConnection, "request_seconds", 1000.0)
    silent = [await send(port, _HEAD[: 5 * n]) for n in range(8)]

    answered = await read_to_end(await send(port, _HEAD + b"Connection: close\r\n\r\n"))

    assert answered.endswith(b"fine")
    # The four newest ones are still open.
    assert [await read_to_end(each) for each in silent[:4]] == [b""] * 4
    for each in silent[4:]:
        each[1].close()


async def test_a_request_that_does_not_come_is_not_waited_for(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "request_seconds", 0.05)
    half = await send(port, _HEAD)
    bodiless = await send(port, _HEAD + b"Content-Length: 9\r\n\r\nx")

    assert await read_to_end(half) == b""
    assert (await read_to_end(bodiless)).endswith(b"fine")
