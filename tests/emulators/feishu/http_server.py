"""A small HTTP/1.1 server on h11 whose connections can be cut at any point."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11


class CutConnection(Exception):
    """Raised by a handler that wants the peer to see a dead socket instead of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPart:
    """One field of a multipart form."""

    data: bytes
    filename: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON, or None when there is none or it is something else."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def form(self) -> dict[str, FormPart]:
        """The body as multipart/form-data."""
        kind = self.headers.get("content-type", "")
        if not kind.startswith("multipart/form-data") or "boundary=" not in kind:
            return {}
        boundary = kind.split("boundary=", 1)[1].strip('"').encode()
        chunks = (b"\r\n" + self.body).split(b"\r\n--" + boundary)
        return dict(_part(chunk) for chunk in chunks[1:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


RequestHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class HttpServer:
    """Serves `handler` on an ephemeral loopback port until closed."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = h11.Connection(h11.SERVER)
        try:
            while (request := await _read_request(peer, reader)) is not None:
                response = await self._handler(request)
                _write_response(peer, writer, response)
                await writer.drain()
                if peer.our_state is not h11.DONE or peer.their_state is not h11.DONE:
                    break
                peer.start_next_cycle()
        except (CutConnection, h11.RemoteProtocolError, ConnectionError):
            writer.transport.abort()
        finally:
            writer.close()


async def _read_request(peer: h11.Connection, reader: asyncio.StreamReader) -> HttpRequest | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            peer.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return _request(head, bytes(body))
        else:
            return None


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    target = urlsplit(head.target.decode())
    return HttpRequest(
        method=head.method.decode(),
        path=unquote(target.path),
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers={key.decode().lower(): value.decode("latin-1") for key, value in head.headers},
        body=body,
    )


def _write_response(
    peer: h11.Connection, writer: asyncio.StreamWriter, response: HttpResponse
) -> None:
    headers = {"content-length": str(len(response.body)), **response.headers}
    raw = [(key.encode(), value.encode("latin-1", "replace")) for key, value in headers.items()]
    for event in (
        h11.Response(status_code=response.status, headers=raw),
        h11.Data(data=response.body),
        h11.EndOfMessage(),
    ):
        writer.write(peer.send(event) or b"")


def _part(chunk: bytes) -> tuple[str, FormPart]:
    head, _, data = chunk.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    headers = {}
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        headers[key.strip().lower()] = value.strip()
    attributes = {}
    for piece in headers.get("content-disposition", "").split(";")[1:]:
        key, _, value = piece.strip().partition("=")
        attributes[key] = value.strip('"')
    part = FormPart(
        data=data,
        filename=attributes.get("filename"),
        content_type=headers.get("content-type"),
    )
    return attributes.get("name", ""), part
