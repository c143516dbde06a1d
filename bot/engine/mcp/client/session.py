"""One session with an MCP server, by the official SDK.

Imports the SDK, so it is imported on first use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import ValidationError

from bot.engine.mcp.client.http_transport import CLOSED_MESSAGE, open_http
from bot.engine.mcp.client.server_config import McpError
from bot.engine.mcp.client.stdio_transport import open_stdio
from bot.engine.mcp.client.tool_data import MAX_TOOLS, sanitize_result, sanitize_tool_page
from bot.engine.sandbox.spec import SandboxLaunch
from bot.engine.web.fetcher import WebFetcher

_MAX_PAGES = 10
_MAX_LISTING_CHARS = 200_000
"""Descriptions and schemas of all tools; the model reads them at each call."""

_MAX_ERROR_CHARS = 300
_NEWER_ONLY = {METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool as the server names it, with a sanitized schema."""

    name: str
    description: str
    schema: Mapping[str, Any]


class McpSession:
    """Calls may overlap. All methods raise McpError."""

    def __init__(self, session: ClientSession, end_reason: Callable[[], str] = str) -> None:
        """`end_reason` returns why the connection has ended, empty if that is unknown."""
        self._session = session
        self._end_reason = end_reason

    @property
    def end_reason(self) -> str:
        return self._end_reason() or "the server has ended"

    async def initialize(self) -> None:
        """Agree on a protocol version: nearly all servers know the older handshake, and the others
        reject it at once."""
        with self._translated("greeting"):
            try:
                await self._session.initialize()
            except MCPError as error:
                if error.code not in _NEWER_ONLY:
                    raise
                await self._session.discover()

    async def list_tools(self) -> tuple[ServerTool, ...]:
        tools: dict[str, ServerTool] = {}
        cursor: str | None = None
        size = 0
        for _ in range(_MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor) if cursor else None
            with self._translated("list of tools"):
                page = await self._session.list_tools(params=params)
            for each in page.tools:
                size += len(each.description or "") + len(json.dumps(each.input_schema))
                if len(tools) < MAX_TOOLS and size <= _MAX_LISTING_CHARS:
                    about = each.description or ""
                    tool = ServerTool(name=each.name, description=about, schema=each.input_schema)
                    tools.setdefault(each.name, tool)
            cursor = page.next_cursor
            if not cursor or len(tools) >= MAX_TOOLS:
                break
        return tuple(tools.values())

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result as text, marked as untrusted."""
        data = json.dumps(dict(arguments), ensure_ascii=False, default=str)
        plain = json.loads(data.encode("utf-8", "replace"))
        with self._translated("answer"):
            result = await self._session.call_tool(name, plain)
        return "".join(each.text for each in result.content if isinstance(each, TextContent))

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Raise the SDK's errors as McpError; `what` was awaited."""
        try:
            yield
        except MCPError as error:
            raise self._translate(error) from error
        except (RuntimeError, ValidationError) as error:
            first_line = str(error).split("\n", 1)[0][:_MAX_ERROR_CHARS]
            raise McpError(f"its {what} is invalid: {first_line}") from error

    def _translate(self, error: MCPError) -> McpError:
        if error.code == CONNECTION_CLOSED and error.message == CLOSED_MESSAGE:
            return McpError(self.end_reason, ended=True)
        if error.code == PARSE_ERROR:
            return McpError("the server's answer is invalid")
        return McpError(" ".join(error.message.split())[:_MAX_ERROR_CHARS])


@asynccontextmanager
async def open_stdio_session(
    server: str, launch: SandboxLaunch
) -> AsyncGenerator[tuple[McpSession, asyncio.Event], None]:
    """Yield the session with a started process, and an event that is set when it has ended."""
    async with open_stdio(launch) as connection:
        dispatcher = _SanitizingDispatcher(server, connection.incoming, connection.outgoing)
        async with ClientSession(dispatcher=dispatcher, client_info=_CLIENT) as session:
            yield McpSession(session, lambda: connection.end_reason), connection.ended


@asynccontextmanager
async def open_http_session(
    server: str, url: str, headers: Mapping[str, str], fetcher: WebFetcher
) -> AsyncGenerator[tuple[McpSession, asyncio.Event], None]:
    """Yield the session with a server at a URL. The event is never set: a lost connection shows at
    the next request."""
    async with open_http(url, headers, fetcher) as (incoming, outgoing):
        dispatcher = _SanitizingDispatcher(server, incoming, outgoing)
        async with ClientSession(dispatcher=dispatcher, client_info=_CLIENT) as session:
            yield McpSession(session), asyncio.Event()


_CLIENT = Implementation(name="shiftboss", version="1")


class _SanitizingDispatcher(JSONRPCDispatcher[TransportContext]):
    """Makes results valid before the SDK checks them: one odd tool must not cost all others."""

    def __init__(self, server: str, *streams: Any) -> None:
        super().__init__(*streams)
        self._server = server

    async def send_raw_request(self, method: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result = await super().send_raw_request(method, *args, **kwargs)
        match method:
            case "tools/list":
                return await asyncio.to_thread(sanitize_tool_page, result)
            case "tools/call":
                return await asyncio.to_thread(sanitize_result, self._server, result)
            case _:
                return result
