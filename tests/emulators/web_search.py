"""The APIs of SearXNG, Brave Search and Tavily on this machine, with the checks that they make."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Reply = tuple[int, Any]


@dataclass
class WebSearchEmulator:
    """Answers each search with `found`: title, address and snippet. `broken` is sent instead: a
    status with a body, or nothing until the client goes if it is `"hang"`. `queries` are those that
    were valid."""

    url: str = ""
    key: str = "key-1"
    json_allowed: bool = True
    found: Sequence[Mapping[str, Any]] = ()
    broken: tuple[int, bytes] | str | None = None
    queries: list[tuple[str, str, int]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _, _ = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n\r\n")
        first, *lines = head.split("\r\n")
        fields = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        self.asked.set()
        if self.broken == "hang":
            await reader.read()
            self.gone.set()
        else:
            status, data = self._reply(first, fields, body)
            more = "Location: http://127.0.0.1:1/\r\n" if status == 302 else ""
            kind = "Content-Type: application/json\r\n"
            size = f"Content-Length: {len(data)}\r\nConnection: close\r\n"
            writer.write(f"HTTP/1.1 {status} X\r\n{kind}{size}{more}\r\n".encode() + data)
        try:
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            pass

    def _reply(self, first: str, fields: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        if isinstance(self.broken, tuple):
            return self.broken
        method, target, _ = first.split(" ")
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match method, parts.path:
            case "GET", "/searx/search":
                status, data = self._searxng(query)
            case "GET", "/res/v1/web/search":
                status, data = self._brave(query, fields)
            case "POST", "/search":
                status, data = self._tavily(fields, body)
            case _:
                status, data = 404, {}
        return status, json.dumps(data).encode()

    def _searxng(self, query: Mapping[str, str]) -> Reply:
        if query.get("format") != "json" or not self.json_allowed:
            return 403, "Forbidden"
        if not query.get("q"):
            return 400, "no query"
        self.queries.append(("searxng", query["q"], 0))
        results = [{**each, "content": each.get("snippet")} for each in self.found]
        return 200, {"query": query["q"], "results": results, "answers": []}

    def _brave(self, query: Mapping[str, str], fields: Mapping[str, str]) -> Reply:
        text, count = query.get("q", ""), query.get("count", "20")
        if fields.get("x-subscription-token") != self.key:
            return 422, {"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}
        too_long = len(text) > 400 or len(text.split()) > 50
        if not text or too_long or not count.isdigit() or not 1 <= int(count) <= 20:
            return 422, {"type": "ErrorResponse", "error": {"code": "VALIDATION"}}
        self.queries.append(("brave", text, int(count)))
        results = [{**each, "description": each.get("snippet")} for each in self.found]
        return 200, {"type": "search", "web": {"type": "search", "results": results}}

    def _tavily(self, fields: Mapping[str, str], body: bytes) -> Reply:
        if fields.get("authorization") != f"Bearer {self.key}":
            return 401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}
        asked = json.loads(body) if fields.get("content-type") == "application/json" else {}
        text, count = asked.get("query"), asked.get("max_results", 5)
        if not isinstance(text, str) or not text or len(text) > 400 or not 0 <= count <= 20:
            return 400, {"detail": {"error": "Query is missing or too long."}}
        self.queries.append(("tavily", text, count))
        results = [{**each, "content": each.get("snippet"), "score": 0.9} for each in self.found]
        return 200, {"query": text, "results": results, "response_time": 0.1}


@asynccontextmanager
async def web_search_emulator() -> AsyncIterator[WebSearchEmulator]:
    emulator = WebSearchEmulator()
    server = await asyncio.start_server(emulator.serve, "127.0.0.1", 0)
    async with server:
        emulator.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield emulator
