"""Lends some of a worker's tools to its coding CLI for the duration of a run.

The CLI connects through a socket visible only in its sandbox, or a local port where sockets are
blocked, with a token that is valid for this run, or for the runs of one session of a task where the
CLI's process is kept between them."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bot.engine.llm.backend import McpServer
from bot.engine.llm.tool_calls import (
    ERROR_PREFIX,
    AgentTool,
    CallAuthorizer,
    CallKind,
    CallVerdict,
    build_tool_call,
    call_fingerprint,
    find_argument_error,
)
from bot.engine.mcp.server import protocol, stdio_bridge
from storage.errors import StorageError

MAX_RESULT_CHARS = 40_000
"""Characters per result."""

_TOOL_TIMEOUT = 60.0
_MAX_NAME_CHARS = 80
_READ_ONLY_KINDS = frozenset({CallKind.READ, CallKind.SEARCH})


async def answer_message(tools: Sequence[AgentTool], message: Any) -> Any:
    """Like `protocol.answer_without_tools`, but never None.

    Tool errors are results for the model; exceptions are bugs."""
    answer = protocol.answer_without_tools(message)
    if answer is not None:
        return answer
    number, params = message["id"], message.get("params") or {}
    match message["method"]:
        case "tools/list":
            return protocol.result_message(
                number, {"tools": [_describe_tool(tool) for tool in tools]}
            )
        case "tools/call":
            return await _call_tool(number, tools, params)
        case method:
            return protocol.method_not_found(number, method)


async def _call_tool(id: Any, tools: Sequence[AgentTool], params: Mapping[str, Any]) -> Any:
    name, arguments = params.get("name"), params.get("arguments") or {}
    tool = next((each for each in tools if each.name == name), None)
    if tool is None:
        there = ", ".join(each.name for each in tools)
        return protocol.error_message(
            id,
            protocol.INVALID_PARAMS,
            f"no tool {str(name)[:_MAX_NAME_CHARS]!r}; there are {there or 'none'}",
        )
    wrong = find_argument_error(tool.schema, arguments)
    if wrong:
        return protocol.result_message(id, _tool_result(f"{ERROR_PREFIX}{wrong}"))
    return protocol.result_message(id, _tool_result(await _run_tool(tool, arguments)))


async def _run_tool(tool: AgentTool, arguments: Mapping[str, Any]) -> str:
    try:
        async with asyncio.timeout(_TOOL_TIMEOUT):
            return await tool.run(arguments)
    except TimeoutError:
        return f"{ERROR_PREFIX}it took longer than {_TOOL_TIMEOUT:g} s"
    except StorageError:
        return f"{ERROR_PREFIX}what is remembered cannot be read or written now"


def _tool_result(text: str) -> dict[str, Any]:
    shown = (
        text
        if len(text) <= MAX_RESULT_CHARS
        else f"{text[:MAX_RESULT_CHARS]}\n[cut: ask for less at once]"
    )
    return {
        "content": [{"type": "text", "text": shown}],
        "isError": text.startswith(ERROR_PREFIX),
    }


def _describe_tool(tool: AgentTool) -> dict[str, Any]:
    looks = tool.kind in _READ_ONLY_KINDS
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema),
        "annotations": {
            "readOnlyHint": looks,
            "destructiveHint": False,
            "openWorldHint": False,
        },
    }


log = logging.getLogger(__name__)

LENDABLE_TOOLS = (
    "memory_search", "memory_get", "history_grep", "history_describe", "history_expand",
    "memory_propose", "page_read", "page_edit",
)  # fmt: skip
"""Tools on memory and history that change nothing without a person's yes."""

AUTHORIZED_TOOLS = ("feishu_read",)
"""Tools that a person or a rule has to allow, call by call. Their calls are authorized here and not
where a CLI announces them, since a CLI need not announce anything."""

_APPROVAL_WAIT = 50.0
"""Seconds, within what CLIs and `_TOOL_TIMEOUT` leave a call."""

_UNDECIDED = (
    f"{ERROR_PREFIX}not made yet: the Boss was asked and has not decided. Go on with something"
    " else, then make exactly this call again; if it still waits when you end, say so"
)

_MAX_CONNECTIONS = 8
_TOKEN_TIMEOUT = 10.0
_MAX_TOKEN_BYTES = 200
_MAX_SOCKET_PATH = 100
_SYSTEM_PREFIXES = (Path("/usr"), Path("/usr/local"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLoan:
    """Names a socket that stays open between the runs of `session`, for `work`; while nobody
    borrows, it offers no tool."""

    work: str
    session: str


class _AuthorizedCalls:
    """Makes the calls of one loan that `permit` allows. `loan` tells its calls from those of
    others in the same session."""

    def __init__(self, permit: CallAuthorizer, loan: str) -> None:
        self._permit = permit
        self._loan = loan
        self._count = 0
        self._undecided: set[str] = set()

    def wrap(self, tool: AgentTool) -> AgentTool:
        return replace(tool, run=partial(self._run, tool))

    async def withdraw(self) -> None:
        """Nobody waits for what is still undecided."""
        for call_id in tuple(self._undecided):
            await self._permit.record_outcome(call_id, succeeded=False, outcome=_UNDECIDED)

    async def _run(self, tool: AgentTool, arguments: Mapping[str, Any]) -> str:
        self._count += 1
        exact = call_fingerprint(tool.name, arguments)[:12]
        call = await build_tool_call(tool, f"lent:{self._loan}:{self._count}:{exact}", arguments)
        decision = await self._permit(call, wait_seconds=_APPROVAL_WAIT)
        match decision.verdict:
            case CallVerdict.PENDING:
                self._undecided.add(call.call_id)
                return _UNDECIDED
            case CallVerdict.DENY:
                return f"{ERROR_PREFIX}{decision.text}"
            case CallVerdict.ANSWER:
                return decision.text
            case CallVerdict.ALLOW:
                answer = await tool.run(arguments)
                good = not answer.startswith(ERROR_PREFIX)
                await self._permit.record_outcome(call.call_id, succeeded=good, outcome=answer)
                return answer


class ToolLender:
    """Lends tools through sockets in `root`, which is emptied at the first use.

    `new_token` returns an unguessable token; `keeps` is False where no CLI outlives its run."""

    def __init__(self, root: Path, new_token: Callable[[], str], *, keeps: bool) -> None:
        self._root = root
        self._keeps = keeps
        self._new_token = new_token
        self._is_clean = False
        self._cleaning_lock = asyncio.Lock()
        self._kept: dict[KeptLoan, _ToolSocket] = {}

    @asynccontextmanager
    async def lend(
        self,
        tools: Sequence[AgentTool],
        *,
        permit: CallAuthorizer | None = None,
        by_port: bool = False,
        keep: KeptLoan | None = None,
    ) -> AsyncGenerator[McpServer | None, None]:
        """Yield the server for the CLI; None if there are no tools to lend or the socket fails.

        Without `permit`, only `LENDABLE_TOOLS` are lent.
        `by_port` is for sandboxes that block Unix sockets. With `keep`, the next loan of this name
        has the same server if its tools look the same."""
        authorized = None if permit is None else _AuthorizedCalls(permit, self._new_token()[:8])
        lent = [tool for tool in tools if tool.name in LENDABLE_TOOLS]
        if authorized is not None:
            lent += [authorized.wrap(tool) for tool in tools if tool.name in AUTHORIZED_TOOLS]
        if not lent:
            yield None
            return
        keep = keep if self._keeps else None
        described = [_describe_tool(tool) for tool in lent]
        socket_ = None if keep is None else self._kept.pop(keep, None)
        if socket_ is not None and (socket_.described, socket_.by_port) != (described, by_port):
            await socket_.close()
            socket_ = None
        if socket_ is None:
            socket_ = await self._open_socket(described, by_port=by_port)
        if socket_ is None:
            yield None
            return
        socket_.sessions.tools = lent
        is_kept = False
        try:
            yield socket_.server
            is_kept = keep is not None and keep not in self._kept and socket_.sessions.is_quiet
        finally:
            socket_.sessions.tools = ()
            if keep is not None and is_kept:
                self._kept[keep] = socket_
            else:
                await socket_.close()
            if authorized is not None:
                await authorized.withdraw()

    async def end_kept(self, work: str) -> None:
        """Close the sockets that are kept for this work."""
        for keep in [each for each in self._kept if each.work == work]:
            await self._kept.pop(keep).close()

    async def aclose(self) -> None:
        while self._kept:
            _, socket_ = self._kept.popitem()
            await socket_.close()

    async def _open_socket(
        self, described: Sequence[Mapping[str, Any]], *, by_port: bool
    ) -> _ToolSocket | None:
        token, folder = self._new_token(), self._root / self._new_token()[:16]
        try:
            async with self._cleaning_lock:
                await asyncio.to_thread(self._remove_leftovers)
            sock = await asyncio.to_thread(_create_socket, folder, by_port)
        except OSError as error:
            log.warning("cannot lend tools to a coding CLI: %s", error)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            return None
        sessions = _SocketSessions(token)
        listen = asyncio.start_server if by_port else asyncio.start_unix_server
        listener = await listen(sessions.accept, sock=sock, limit=protocol.MAX_MESSAGE_BYTES)
        env = {stdio_bridge.PORT_VARIABLE: str(sock.getsockname()[1])} if by_port else {}
        return _ToolSocket(
            server=_bridge_server(folder, token, env),
            described=described,
            by_port=by_port,
            sessions=sessions,
            listener=listener,
            folder=folder,
        )

    def _remove_leftovers(self) -> None:
        if not self._is_clean:
            shutil.rmtree(self._root, ignore_errors=True)
            self._is_clean = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolSocket:
    """An open socket, the server for the CLI that leads to it, and what its tools look like."""

    server: McpServer
    described: Sequence[Mapping[str, Any]]
    by_port: bool
    sessions: _SocketSessions
    listener: asyncio.Server
    folder: Path

    async def close(self) -> None:
        self.listener.close()
        await self.sessions.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


class _SocketSessions:
    """The connections to one socket; `tools` are those lent at present."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.tools: Sequence[AgentTool] = ()
        self._sessions: set[asyncio.Task[None]] = set()
        self._calls = 0

    @property
    def is_quiet(self) -> bool:
        """True if no tool is at work."""
        return not self._calls

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._sessions) >= _MAX_CONNECTIONS:
            writer.close()
            return
        session = asyncio.create_task(self._serve(reader, writer), name="mcp-lent")
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def close(self) -> None:
        there = tuple(self._sessions)
        for each in there:
            each.cancel()
        await asyncio.gather(*there, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await self._is_authenticated(reader):
                await self._answer_messages(reader, writer)
        except OSError:
            pass  # disconnected
        except Exception:
            # A bug in one of our tools must not stop the run.
            log.exception("an answer to a coding CLI failed")
        finally:
            writer.close()

    async def _is_authenticated(self, reader: asyncio.StreamReader) -> bool:
        with suppress(TimeoutError, ValueError):
            async with asyncio.timeout(_TOKEN_TIMEOUT):
                line = await reader.readline()
            return hmac.compare_digest(line[:_MAX_TOKEN_BYTES].rstrip(b"\n"), self._token)
        return False

    async def _answer_messages(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (answer := await self._next_answer(reader)) is not None:
            if answer is not protocol.NO_ANSWER:
                writer.write(await asyncio.to_thread(protocol.serialize_message, answer) + b"\n")
                await writer.drain()

    async def _next_answer(self, reader: asyncio.StreamReader) -> Any:
        """Return the answer to the next message; None at the end."""
        try:
            line = await reader.readline()
            message = protocol.parse_message(line)
        except ValueError:
            # Too long or invalid; the next line may be valid.
            return protocol.error_message(None, protocol.PARSE_ERROR, "not one JSON message a line")
        if not line:
            return None
        if message is protocol.NO_ANSWER:
            return message
        self._calls += 1
        try:
            return await answer_message(self.tools, message)
        finally:
            self._calls -= 1


def _bridge_server(folder: Path, token: str, env: Mapping[str, str]) -> McpServer:
    # Not the virtual environment's Python: only the standard library is needed.
    python = Path(sys.executable).resolve()
    needed = [Path(sys.base_prefix)] if Path(sys.base_prefix) not in _SYSTEM_PREFIXES else []
    return McpServer(
        name=protocol.SERVER_NAME,
        command=(str(python), "-I", "-S", str(folder / "bridge.py")),
        env={stdio_bridge.TOKEN_VARIABLE: token, **env},
        secrets=(token,),
        readable_paths=(folder, *needed),
    )


def _create_socket(folder: Path, by_port: bool) -> socket.socket:
    folder.mkdir(mode=0o700, parents=True)
    shutil.copyfile(stdio_bridge.__file__, folder / "bridge.py")
    family = socket.AF_INET if by_port else socket.AF_UNIX
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if by_port:
            sock.bind(("127.0.0.1", 0))
        else:
            _bind_unix_socket(sock, folder)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_unix_socket(sock: socket.socket, folder: Path) -> None:
    address = folder / stdio_bridge.SOCKET_NAME
    if len(os.fsencode(address)) <= _MAX_SOCKET_PATH:
        sock.bind(str(address))
        return
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sock.bind(f"/proc/self/fd/{held}/{stdio_bridge.SOCKET_NAME}")
    finally:
        os.close(held)
