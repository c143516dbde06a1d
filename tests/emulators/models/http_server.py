"""Just enough HTTP/1.1 to answer, stream, hang, break off, and notice that the client left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class ConnectionDropped(Exception):
    """The server breaks the connection off on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer:
    """The way back to the client: one whole answer, or a stream of pieces."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def whole(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self._head(status, {"content-length": str(len(body)), **(headers or {})})
        self._writer.write(body)
        await self._writer.drain()

    async def json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        kind = {"content-type": "application/json"}
        await self.whole(status, json.dumps(body).encode(), {**kind, **(headers or {})})

    async def start_stream(self, headers: Mapping[str, str]) -> None:
        kind = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        self._head(200, {**kind, **headers})
        await self._writer.drain()

    async def piece(self, data: str) -> None:
        raw = data.encode()
        self._writer.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        await self._writer.drain()

    async def end_stream(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


class _Reader(asyncio.StreamReader):
    """Knows at once when the client has closed its side, without reading."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    def feed_eof(self) -> None:
        self.closed.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.closed.set()
        super().set_exception(exc)


RequestHandler = Callable[[HttpRequest, HttpAnswer], Awaitable[None]]


class HttpServer:
    """Calls `handle` for each request; calls `left` when a client leaves in the middle of one."""

    def __init__(
        self, handle: RequestHandler, on_disconnect: Callable[[HttpRequest], None]
    ) -> None:
        self._handle = handle
        self._on_disconnect = on_disconnect
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = _Reader()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._accept(reader, writer)

        return asyncio.StreamReaderProtocol(reader, accept)

    def _accept(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connection(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                if not await self._serve(request, reader, writer):
                    break
        except (ConnectionDropped, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(
        self, request: HttpRequest, reader: _Reader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; False if the client left before the answer was complete."""
        answering = asyncio.ensure_future(self._handle(request, HttpAnswer(writer)))
        watching = asyncio.ensure_future(reader.closed.wait())
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self._on_disconnect(request)
                return False
            try:
                await answering
            except ConnectionError:
                self._on_disconnect(request)
                return False
            return True
        finally:
            for task in (answering, watching):
                task.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> HttpRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    query = dict(parse_qsl(url.query))
    return HttpRequest(method=method, path=url.path, query=query, headers=headers, body=body)
