"""One session with an MCP server, by the official SDK, and the process of a server that speaks on
its standard streams. Imports the SDK, so it is imported on first use."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

import anyio
import httpx2
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    InputResponses,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    PaginatedRequestParams,
    PaginatedResult,
    RequestId,
    TextContent,
    TextResourceContents,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from bot.engine.llm.backend import McpServer
from bot.engine.llm.folder_processes import FOLDER_PROCESSES
from bot.engine.llm.tool_calls import object_schema
from bot.engine.mcp.client.elicitation import InputHandler
from bot.engine.mcp.client.http_transport import CLOSED_MESSAGE, open_http
from bot.engine.mcp.client.server_config import McpError
from bot.engine.mcp.client.tool_data import (
    MAX_RESOURCES,
    MAX_TOOLS,
    render_resources,
    sanitize_resource,
    sanitize_resource_page,
    sanitize_result,
    sanitize_tool_page,
)
from bot.engine.sandbox.process_runner import (
    ProcessStartError,
    close_pipes,
    kill_process,
    start_process,
)
from bot.engine.sandbox.spec import SandboxLaunch
from bot.engine.web import WebFetcher

# --- the process, and its streams as the SDK's connection
# The SDK's own stdio client starts programs itself, without our sandbox and without limits.

MAX_LINE_BYTES = 8_000_000
"""A larger message is skipped, and the pending calls fail."""

MAX_BYTES_PER_REQUEST = 64_000_000
MAX_LINES_PER_REQUEST = 10_000
"""Bytes and lines that a server may send after one of our requests, before it is stopped."""

GRACE_SECONDS = 2.0
"""Seconds for a server to exit after its input is closed."""

_MAX_UNREAD_ANSWERS = 64
_ERROR_OUTPUT_BYTES = 2_000
_LAST_WORDS_SECONDS = 0.2
_MAX_REASON_CHARS = 300
_ENDED = "the server has ended"
_ERROR_LINE = re.compile(r"\w*error\b|\bcannot\b|\bnot found\b|\bdenied\b", re.IGNORECASE)
_TOO_LARGE: Final = object()


class StdioConnection:
    """The connection to one process. `incoming` and `outgoing` are for the session; when the
    connection has ended, `ended` is set and `end_reason` says why."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        send_in, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, receive_out = anyio.create_memory_object_stream[SessionMessage](0)
        self.end_reason = ""
        self.ended = asyncio.Event()
        self._process = process
        self._to_session = send_in
        self._from_session = receive_out
        self._unanswered: set[RequestId] = set()
        self._unread_answers = 0
        self._received_bytes = self._received_lines = 0
        self._error_output = b""

    async def run(self) -> None:
        """Carry messages until the process or the session ends."""
        errors = asyncio.create_task(self._read_errors(), name="mcp errors")
        others = (asyncio.create_task(self._write(), name="mcp input"), errors)
        try:
            why = await self._read()
            await asyncio.wait((errors,), timeout=_LAST_WORDS_SECONDS)
            self.end_reason = self._explain(why)
        finally:
            self.ended.set()
            self.close()
            for each in others:
                each.cancel()
            await asyncio.wait(others)

    def close(self) -> None:
        for stream in (self._to_session, self._from_session, self.incoming, self.outgoing):
            stream.close()

    async def _read(self) -> str:
        """Pass on what the process sends; return why that ended."""
        try:
            while line := await self._next_line():
                if line is _TOO_LARGE:
                    await self._fail_calls("the server's answer is too large")
                elif isinstance(line, bytes) and (message := _parse_line(line)) is not None:
                    self._note_received(message)
                    await self._to_session.send(SessionMessage(message))
        except McpError as error:
            return str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has closed
        return _ENDED

    async def _next_line(self) -> bytes | object:
        """Return the next line, _TOO_LARGE for one that was skipped, or b"" at the end. Raises
        McpError."""
        assert self._process.stdout is not None
        is_skipped = False
        while True:
            try:
                line = await self._process.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return b""
            except asyncio.LimitOverrunError as over:
                await self._process.stdout.readexactly(over.consumed)
                self._count(over.consumed)
                is_skipped = True
                continue
            self._count(len(line))
            self._received_lines += 1
            return _TOO_LARGE if is_skipped else line

    def _count(self, size: int) -> None:
        self._received_bytes += size
        too_many = self._received_lines > MAX_LINES_PER_REQUEST
        if too_many or self._received_bytes > MAX_BYTES_PER_REQUEST:
            raise McpError("the server sends without end")

    def _note_received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            # Each gets an answer; a server that does not read the answers would fill our memory.
            self._unread_answers += 1
            if self._unread_answers > _MAX_UNREAD_ANSWERS:
                raise McpError("the server asks without reading the answers")
        elif not isinstance(message, JSONRPCNotification) and message.id is not None:
            self._unanswered.discard(message.id)

    async def _fail_calls(self, why: str) -> None:
        for each in tuple(self._unanswered):
            self._unanswered.discard(each)
            error = ErrorData(code=INTERNAL_ERROR, message=why)
            await self._to_session.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=each, error=error))
            )

    async def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            async for sent in self._from_session:
                message = sent.message
                if isinstance(message, JSONRPCRequest):
                    self._unanswered.add(message.id)
                    self._received_bytes = self._received_lines = 0
                line = message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(line.encode() + b"\n")
                await self._process.stdin.drain()
                if not isinstance(message, JSONRPCRequest | JSONRPCNotification):
                    self._unread_answers -= 1
        except (OSError, RuntimeError):
            pass  # the reader sees the end too
        finally:
            self._from_session.close()

    async def _read_errors(self) -> None:
        """Keep the end of what the process prints for people."""
        assert self._process.stderr is not None
        with suppress(OSError):
            while data := await self._process.stderr.read(_ERROR_OUTPUT_BYTES):
                self._error_output = (self._error_output + data)[-_ERROR_OUTPUT_BYTES:]

    def _explain(self, why: str) -> str:
        printed = self._error_output.decode("utf-8", "replace").split("\n")
        said = [line.strip() for line in reversed(printed) if line.strip()]
        if why != _ENDED or not said:
            return why
        # Below the error, Node.js prints the stack and its version.
        error = next(filter(_ERROR_LINE.search, said), said[0])
        return f"{why}: {error[:_MAX_REASON_CHARS]}"


def _parse_line(line: bytes) -> JSONRPCMessage | None:
    """None for a line that is no message: some servers also print other output."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


@asynccontextmanager
async def open_stdio(launch: SandboxLaunch) -> AsyncGenerator[StdioConnection, None]:
    """Start the process, and kill it with its descendants at the end. Raises McpError."""
    try:
        process = await FOLDER_PROCESSES.start(
            launch.cwd,
            lambda: start_process(
                launch, stdin=subprocess.PIPE, stderr=subprocess.PIPE, max_line=MAX_LINE_BYTES
            ),
        )
    except ProcessStartError as error:
        raise McpError(f"it could not be started: {error}") from error
    connection = StdioConnection(process)
    carrying = asyncio.create_task(connection.run(), name="mcp")
    try:
        yield connection
    finally:
        connection.close()
        await asyncio.shield(_shut_down(process, carrying))


async def _shut_down(process: asyncio.subprocess.Process, carrying: asyncio.Task[None]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    await kill_process(process)
    carrying.cancel()
    await asyncio.wait((carrying,))
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    close_pipes(process)


# --- the session

log = logging.getLogger(__name__)

_MAX_PAGES = 10
_MAX_LISTING_CHARS = 200_000
"""Descriptions and schemas of all tools; the model reads them at each call."""

_MAX_ERROR_CHARS = 300
_MAX_INPUT_ROUNDS = 5
"""Rounds of requests for input in one call, and requests in one round."""
_NEWER_ONLY = {METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION}


RESOURCES = "resources"
"""The name of our tool that lists and reads a server's resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool as the server names it, with a sanitized schema."""

    name: str
    description: str
    schema: Mapping[str, Any]


_RESOURCES_TOOL = ServerTool(
    name=RESOURCES,
    description="Lists the resources of this server, or reads the one at a URI.",
    schema=object_schema(uri="A URI from the list, also one made from a template. None: the list."),
)


class McpSession:
    """Calls may overlap. All methods raise McpError."""

    def __init__(
        self, server: str, session: ClientSession, end_reason: Callable[[], str] = str
    ) -> None:
        """`end_reason` returns why the connection has ended, empty if that is unknown."""
        self._server = server
        self._session = session
        self._reads_resources = False
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
        """Return the server's tools, and one of ours if it offers resources."""
        offers = self._session.server_capabilities
        if offers is None or offers.resources is None:
            return await self._list_own_tools()
        own = () if offers.tools is None else await self._list_own_tools()
        self._reads_resources = RESOURCES not in {each.name for each in own}
        return (_RESOURCES_TOOL, *own) if self._reads_resources else own

    async def _list_own_tools(self) -> tuple[ServerTool, ...]:
        tools: dict[str, ServerTool] = {}
        size = 0
        with self._translated("list of tools"):
            async for page in _pages(self._session.list_tools):
                for each in page.tools:
                    about = each.description or ""
                    size += len(about) + len(json.dumps(each.input_schema))
                    tool = ServerTool(name=each.name, description=about, schema=each.input_schema)
                    if len(tools) < MAX_TOOLS and size <= _MAX_LISTING_CHARS:
                        tools.setdefault(each.name, tool)
                if len(tools) >= MAX_TOOLS:
                    break
        return tuple(tools.values())

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result as text, marked as untrusted."""
        if name == RESOURCES and self._reads_resources:
            uri = str(arguments.get("uri") or "")
            return await (self._read_resource(uri) if uri else self._list_resources())
        data = json.dumps(dict(arguments), ensure_ascii=False, default=str)
        plain = json.loads(data.encode("utf-8", "replace"))
        with self._translated("answer"):
            result = await self._session.call_tool(name, plain, allow_input_required=True)
            for _ in range(_MAX_INPUT_ROUNDS):
                if not isinstance(result, InputRequiredResult):
                    break
                result = await self._session.call_tool(
                    name,
                    plain,
                    input_responses=await self._answer_requests(result),
                    request_state=result.request_state,
                    allow_input_required=True,
                )
        if isinstance(result, InputRequiredResult):
            raise McpError("the server asks for input without end")
        return "".join(each.text for each in result.content if isinstance(each, TextContent))

    async def _answer_requests(self, asked: InputRequiredResult) -> InputResponses:
        answers: InputResponses = {}
        for key, request in islice((asked.input_requests or {}).items(), _MAX_INPUT_ROUNDS):
            context = ClientRequestContext(session=self._session, request_id=key)
            answer = await self._session.dispatch_input_request(context, request)
            if isinstance(answer, ErrorData):
                raise MCPError.from_error_data(answer)
            answers[key] = answer
        return answers

    async def _list_resources(self) -> str:
        found: list[tuple[str, str, str]] = []
        with self._translated("list of resources"):
            async for page in _pages(self._session.list_resources):
                found += [(each.uri, each.name, each.description or "") for each in page.resources]
        try:
            async for more in _pages(self._session.list_resource_templates):
                found += [
                    (each.uri_template, each.name, each.description or "")
                    for each in more.resource_templates
                ]
        except (MCPError, RuntimeError, ValidationError) as error:
            log.debug("MCP server %s lists no templates: %s", self._server, error)
        return render_resources(self._server, found[:MAX_RESOURCES])

    async def _read_resource(self, uri: str) -> str:
        with self._translated("resource"):
            result = await self._session.read_resource(uri)
        found = (each for each in result.contents if isinstance(each, TextResourceContents))
        return "".join(each.text for each in found)

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
    server: str, launch: SandboxLaunch, answer: InputHandler
) -> AsyncGenerator[tuple[McpSession, asyncio.Event], None]:
    """Yield the session with a started process, and an event that is set when it has ended."""
    async with open_stdio(launch) as connection:
        dispatcher = _SanitizingDispatcher(server, connection.incoming, connection.outgoing)
        async with _client_session(dispatcher, answer) as session:
            yield McpSession(server, session, lambda: connection.end_reason), connection.ended


@asynccontextmanager
async def open_http_session(
    server: McpServer, fetcher: WebFetcher, answer: InputHandler, auth: httpx2.Auth | None = None
) -> AsyncGenerator[tuple[McpSession, asyncio.Event], None]:
    """Yield the session with a server at a URL; `auth` is that of whoever signed in. The event is
    never set: a lost connection shows at the next request."""
    async with open_http(server.url, server.headers, fetcher, auth) as (incoming, outgoing):
        dispatcher = _SanitizingDispatcher(server.name, incoming, outgoing)
        async with _client_session(dispatcher, answer) as session:
            yield McpSession(server.name, session), asyncio.Event()


_Page = TypeVar("_Page", bound=PaginatedResult)


async def _pages(
    fetch: Callable[..., Awaitable[_Page]],
) -> AsyncGenerator[_Page, None]:
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await fetch(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        yield page
        cursor = page.next_cursor
        if not cursor:
            return


def _client_session(
    dispatcher: JSONRPCDispatcher[TransportContext], answer: InputHandler
) -> ClientSession:
    async def on_elicitation(
        context: ClientRequestContext,  # noqa: ARG001 - the SDK's signature
        params: ElicitRequestParams,
    ) -> ElicitResult:
        return ElicitResult(**await answer(params.model_dump(by_alias=True, mode="json")))

    return ClientSession(
        dispatcher=dispatcher,
        client_info=Implementation(name="shiftboss", version="1"),
        elicitation_callback=on_elicitation,
    )


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
            case "resources/list":
                return await asyncio.to_thread(sanitize_resource_page, "resources", result)
            case "resources/templates/list":
                return await asyncio.to_thread(sanitize_resource_page, "resourceTemplates", result)
            case "resources/read":
                return await asyncio.to_thread(sanitize_resource, self._server, result)
            case _:
                return result
