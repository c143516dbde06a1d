"""A small web on loopback: names that lead where a test wants, servers that say what it says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bot.engine.web import PrivateHosts, WebFetcher

HOST = "good.test"

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def http_reply(
    body: bytes | str = b"", *, status: str = "200 OK", kind: str = "text/plain", more: str = ""
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


def http_redirect(to: str) -> bytes:
    return http_reply(status="302 Found", more=f"Location: {to}\r\n")


@dataclass(slots=True)
class LocalSite:
    """`heard` are the heads of all requests."""

    answers: dict[str, Answer]
    port: int = 0
    heard: list[str] = field(default_factory=list)

    def url(self, path: str = "/", host: str = HOST) -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def serve_site(**answers: Answer) -> AsyncIterator[LocalSite]:
    """`home` answers `/`, any other name its own path."""
    site = LocalSite(
        {f"/{name}" if name != "home" else "/": each for name, each in answers.items()}
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        site.heard.append(head)
        said = site.answers[head.split()[1]]
        if isinstance(said, bytes):
            writer.write(said)
            await writer.drain()
        else:
            await said(writer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        open_ones.add(serving)
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    open_ones: set[asyncio.Task[object]] = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()
        for each in open_ones:
            each.cancel()
        await asyncio.gather(*open_ones)


@dataclass(slots=True)
class FakeResolver:
    """Resolves as told, one answer after another; the last one stays."""

    answers: dict[str, list[Sequence[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.answers[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def build_fetcher(names: FakeResolver | None = None, *, seconds: float = 20.0) -> WebFetcher:
    """One that may reach good.test on loopback, and nothing else that is closed."""
    return WebFetcher(
        private_hosts=PrivateHosts(hosts=frozenset({HOST, f"www.{HOST}"})),
        resolve=names or FakeResolver({HOST: [["127.0.0.1"]], f"www.{HOST}": [["127.0.0.1"]]}),
        seconds=seconds,
    )
