"""MCP servers at work for one run: each of their tools is a tool like ours."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bot.engine.agent.masking import MASK
from bot.engine.agent.mcp.filling import filled, secrets_of
from bot.engine.agent.mcp.http import reached
from bot.engine.agent.mcp.said import description_of, name_of, result_of, schema_of
from bot.engine.agent.mcp.serving.lending import Lender
from bot.engine.agent.mcp.serving.rpc import NAME
from bot.engine.agent.mcp.wire import Line, McpFailed, wired
from bot.engine.agent.outgoing.outputs import guarded
from bot.engine.agent.sandbox.base import Launch, Sandbox, SandboxKind
from bot.engine.agent.tools.exec import Shell
from bot.engine.agent.web.fetching import Fetcher
from bot.engine.llm.base import ERROR, McpServer, Mode, Tool
from bot.engine.llm.calls import CallKind
from bot.engine.llm.events import Noted

PROTOCOL = "2025-06-18"
START_SECONDS = 30.0
CALL_SECONDS = 120.0
MOST_TOOLS = 64
_MOST_PAGES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugged:
    """What the servers bring to a run, and what a person should know of those that bring
    nothing. `servers` are those that the run is to start by itself."""

    tools: tuple[Tool, ...] = ()
    servers: tuple[McpServer, ...] = ()
    notes: tuple[Noted, ...] = ()


class McpServers:
    """Servers are started for one run and end with it. One that cannot be started, hangs or dies
    costs its own tools only. Calls ask for leave like all others."""

    def __init__(
        self,
        shell: Shell,
        mask: Callable[[str], str],
        fetcher: Fetcher,
        *,
        start_seconds: float = START_SECONDS,
        call_seconds: float = CALL_SECONDS,
        variables: Mapping[str, str] = os.environ,
        lender: Lender | None = None,
    ) -> None:
        """`fetcher` knows which places servers at a URL may have; `variables` are those that a
        server's own may name as `${NAME}`; `lender` lends our own tools to who starts servers by
        itself."""
        self._lender = lender
        self._fetcher = fetcher
        self._shell = shell
        self._mask = mask
        self._start_seconds = start_seconds
        self._call_seconds = call_seconds
        self._variables = variables

    @asynccontextmanager
    async def plugged(
        self, servers: Sequence[McpServer], workspace: Path | None, mode: Mode
    ) -> AsyncGenerator[Plugged, None]:
        """Start them beside one another. Raises nothing of its own."""
        if not servers or workspace is None:
            yield Plugged()
            return
        async with AsyncExitStack() as stack:
            brought = await asyncio.gather(
                *(self._started(stack, server, workspace, mode) for server in servers)
            )
            tools = {tool.name: tool for each in brought for tool in each.tools}
            notes = tuple(note for each in brought for note in each.notes)
            yield Plugged(tools=tuple(tools.values()), notes=notes)

    def named(self, servers: Sequence[McpServer]) -> Plugged:
        """For who starts them by itself: with values for the variables that they name. One that
        names a variable which is not set is left out."""
        known: list[McpServer] = []
        notes: list[Noted] = []
        for server in servers:
            try:
                known.append(filled(server, self._variables))
            except McpFailed as error:
                facts = {"server": server.name, "detail": self._mask(str(error))}
                notes.append(Noted(key="mcp.failed", facts=facts))
        return Plugged(servers=tuple(known), notes=tuple(notes))

    @asynccontextmanager
    async def lent(
        self, servers: Sequence[McpServer], tools: Sequence[Tool]
    ) -> AsyncGenerator[Plugged, None]:
        """As `named`, and for as long as it runs a server of ours with what of `tools` may be
        lent: under a name of its own, which nobody else's may have."""
        brought = self.named([each for each in servers if each.name != NAME])
        if self._lender is None:
            yield brought
            return
        kind = (await self._shell.sandbox()).kind
        async with self._lender.lent(tools, by_port=kind is SandboxKind.LANDLOCK) as ours:
            added = () if ours is None else (ours,)
            yield replace(brought, servers=(*brought.servers, *added))

    async def _started(
        self, stack: AsyncExitStack, server: McpServer, workspace: Path, mode: Mode
    ) -> Plugged:
        mask = self._masking(server)
        try:
            line = await self._line(stack, server, workspace, mode)
            async with asyncio.timeout(self._start_seconds):
                tools = await self._offered(server.name, line)
        except (McpFailed, TimeoutError, OSError) as error:
            facts = {"server": server.name, "detail": mask(str(error)) or "it was too slow"}
            return Plugged(notes=(Noted(key="mcp.failed", facts=facts),))
        return Plugged(tools=tuple(guarded(tool, workspace, mask) for tool in tools))

    async def _line(
        self, stack: AsyncExitStack, server: McpServer, workspace: Path, mode: Mode
    ) -> Line:
        server = filled(server, self._variables)
        if server.url:
            way = reached(server.url, server.headers, self._fetcher, version=PROTOCOL)
            async with asyncio.timeout(self._start_seconds):
                return await stack.enter_async_context(way)
        home = await stack.enter_async_context(self._shell.homes.lent(f"mcp-{server.name}"))
        launch = await self._launch(server, workspace, home, mode)
        return await stack.enter_async_context(wired(launch))

    def _masking(self, server: McpServer) -> Callable[[str], str]:
        """What a server was given to show who we are is nothing for it to say."""
        secrets = secrets_of(server, self._variables)

        def mask(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, MASK)
            return self._mask(text)

        return mask

    async def _offered(self, server: str, wire: Line) -> list[Tool]:
        about = {"name": "shiftboss", "version": "1"}
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
        await wire.request("initialize", hello, seconds=self._start_seconds)
        await wire.notify("notifications/initialized")
        tools: dict[str, Tool] = {}
        cursor: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            page = await wire.request("tools/list", cursor, seconds=self._start_seconds)
            told = page if isinstance(page, Mapping) else {}
            listed = told.get("tools")
            for each in listed if isinstance(listed, list) else ():
                tool = self._tool(server, each, wire)
                if tool is not None and len(tools) < MOST_TOOLS:
                    tools.setdefault(tool.name, tool)
            more = told.get("nextCursor")
            if not isinstance(more, str) or not more or len(tools) >= MOST_TOOLS:
                break
            cursor = {"cursor": more}
        return list(tools.values())

    def _tool(self, server: str, told: Any, wire: Line) -> Tool | None:
        name = told.get("name") if isinstance(told, Mapping) else None
        if not isinstance(name, str) or not name:
            return None

        async def run(arguments: Mapping[str, Any]) -> str:
            call = {"name": name, "arguments": dict(arguments)}
            try:
                answer = await wire.request("tools/call", call, seconds=self._call_seconds)
            except McpFailed as error:
                return f"{ERROR}the MCP server {server}: {error}"
            return await asyncio.to_thread(result_of, server, answer)

        return Tool(
            name=name_of(server, name),
            description=description_of(server, told.get("description")),
            schema=schema_of(told.get("inputSchema")),
            run=run,
            kind=CallKind.OTHER,
        )

    async def _launch(self, server: McpServer, workspace: Path, home: Path, mode: Mode) -> Launch:
        sandbox = await self._shell.sandbox()
        try:
            return await asyncio.to_thread(
                self._held_in,
                sandbox,
                server,
                workspace=workspace,
                home=home,
                writable=mode is Mode.EXECUTE,
            )
        except (OSError, ValueError) as error:
            raise McpFailed("start", f"it could not be started: {error}") from error

    def _held_in(
        self,
        sandbox: Sandbox,
        server: McpServer,
        *,
        workspace: Path,
        home: Path,
        writable: bool,
    ) -> Launch:
        env = {**self._shell.env(sandbox), **server.env}
        program = shutil.which(server.command[0], path=env.get("PATH"))
        if program is None:
            raise McpFailed("missing", f"there is no program {server.command[0]!r}")
        workspace.mkdir(parents=True, exist_ok=True)
        return sandbox.wrap(
            (program, *server.command[1:]),
            workspace=workspace,
            # Whoever configures a server wants what it reaches; its calls are asked about.
            network=True,
            env=env,
            home=home,
            readable=_needed(program, server.command),
            writable=writable,
        )


def _needed(program: str, command: Sequence[str]) -> list[Path]:
    """The program's own folders, and the files that the command names."""
    needed: list[Path] = []
    for path in (Path(program), Path(program).resolve()):
        folder = path.parent.parent if path.parent.name == "bin" else path.parent
        if len(folder.parts) > 2 and folder != Path.home():  # noqa: PLR2004 - neither / nor /home
            needed.append(folder)
    named = [Path(each) for each in command[1:] if each.startswith("/")]
    return [*needed, *(each for each in named if each.is_file())]
