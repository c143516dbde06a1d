"""Owns the running MCP servers: starts them in the sandbox, and wraps their tools as ours."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.engine.llm.backend import McpServer, RunNotice, WorkerMode
from bot.engine.llm.tool_calls import AgentTool, CallAuthorizer, CallKind
from bot.engine.mcp.client.elicitation import Elicitor, InputHandler
from bot.engine.mcp.client.live_server import (
    LiveMcpServer,
    NoticeListener,
    ServerTimeouts,
    ignore_notice,
)
from bot.engine.mcp.client.project_servers import McpConsents, check_files
from bot.engine.mcp.client.server_config import (
    ConnectedServers,
    McpError,
    McpScope,
    fill_variables,
    find_project,
    server_secrets,
)
from bot.engine.mcp.client.sign_in import McpSignIns
from bot.engine.mcp.client.tool_data import tool_description, tool_name
from bot.engine.mcp.server.protocol import SERVER_NAME
from bot.engine.mcp.server.tool_server import KeptLoan, ToolLender
from bot.engine.redaction import MASK, redact_tool
from bot.engine.sandbox.spec import SandboxedCommand, SandboxKind, SandboxLaunch
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.workers.mcp_config import McpConfigFile
from storage.records.workers import McpConsent, McpServerStatus, SignInFailed, SignOut

if TYPE_CHECKING:
    from types import ModuleType

    from bot.engine.mcp.client.session import McpSession, ServerTool
    from bot.engine.web import WebFetcher

_DIGEST_CHARS = 16

_SWEEP_SECONDS = 30.0
_MAX_KNOWN = 500
"""Servers that are remembered, running or not."""


def home_name(server: str, scope: McpScope, data_dir: Path) -> str:
    """Return the name of the server's home: one for each person, chat and project.

    Tasks without a project share the chat's. Blocking."""
    project = find_project(scope.workspace, data_dir)
    owner = "\0".join((str(scope.person), str(scope.chat), str(project or "")))
    return f"mcp-{server}-{hashlib.sha256(owner.encode()).hexdigest()[:_DIGEST_CHARS]}"


def identify_folder(workspace: Path) -> tuple[int, int]:
    """Create the workspace if needed, and return a value that distinguishes it from a later folder
    of that name.

    Blocking. Raises OSError."""
    workspace.mkdir(parents=True, exist_ok=True)
    seen = workspace.stat()
    return seen.st_dev, seen.st_ino


async def build_launch(
    shell: CommandShell, server: McpServer, scope: McpScope, home: Path
) -> SandboxLaunch:
    """Its environment is that of commands, and the server's own `env` on top. Raises McpError."""
    sandbox = await shell.sandbox()

    def wrap() -> SandboxLaunch:
        env = {**shell.env(sandbox), **server.env}
        program = shutil.which(server.command[0], path=env.get("PATH"))
        if program is None:
            raise McpError(f"there is no program {server.command[0]!r}")
        command = SandboxedCommand(
            argv=(program, *server.command[1:]),
            workspace=scope.workspace,
            home=home,
            env=env,
            # Configuring a server implies network access; its calls are authorized one by one.
            network=True,
            readable=_readable_paths(program, server.command, sandbox.view.hidden),
            writable=scope.mode is WorkerMode.EXECUTE,
        )
        return sandbox.wrap(command)

    try:
        return await asyncio.to_thread(wrap)
    except (OSError, ValueError) as error:
        raise McpError(f"it could not be started: {error}") from error


def _readable_paths(program: str, command: Sequence[str], hidden: Sequence[Path]) -> list[Path]:
    """Return the installation folders of the program, and the files named in the command with the
    packages that they belong to, unless something `hidden` is in them."""
    named = [Path(each) for each in command[1:] if each.startswith("/")]
    files = [each for each in named if each.is_file()]
    starts = [Path(program), *files]
    packages = [
        found
        for each in starts
        for found in _package_folders(each)
        if not any(each.is_relative_to(found.resolve()) for each in hidden)
    ]
    folders = [
        path.parent.parent if path.parent.name == "bin" else path.parent
        for path in (Path(program), Path(program).resolve())
    ]
    shown = [*filter(_is_own_folder, folders), *packages]
    return [*shown, *(each for each in files if not any(map(each.is_relative_to, shown)))]


def _package_folders(path: Path) -> Iterator[Path]:
    """The outermost `node_modules`, whose packages import one another, or the nearest package."""
    for parents in (path.parents, path.resolve().parents):
        modules = [each for each in parents if each.name == "node_modules"]
        own = (each for each in parents if any((each / name).exists() for name in _MANIFESTS))
        found = modules[-1] if modules else next(own, None)
        if found is not None and _is_own_folder(found):
            yield found


def _is_own_folder(folder: Path) -> bool:
    """False for `/`, `/home` and a person's home."""
    return len(folder.parts) > 2 and folder != Path.home()  # noqa: PLR2004 - `/` and one name


_MANIFESTS = ("package.json", "pyproject.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptServers:
    """How many servers stay running while no run uses them, and for how many seconds."""

    count: int = 8
    idle_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class _ServerUser:
    """A run: who is told about its servers, and who is asked."""

    notify: NoticeListener
    elicitor: Elicitor | None


class McpServerPool:
    """Keeps each server of a scope running between its runs. Satisfies `app.lifecycle.AppService`
    and `handlers.ports_workers.McpPort`.

    A server that fails, hangs or dies costs only its own tools. Calls of the tools need
    authorization like all others."""

    name = "mcp"

    def __init__(
        self,
        shell: CommandShell,
        mask: Callable[[str], str],
        fetcher: WebFetcher,
        *,
        data_dir: Path,
        config: McpConfigFile | None = None,
        consents: McpConsents | None = None,
        sign_ins: McpSignIns | None = None,
        keep: KeptServers | None = None,
        timeouts: ServerTimeouts | None = None,
        variables: Mapping[str, str] = os.environ,
        lender: ToolLender | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`variables` are the values available to servers as `${NAME}`; `lender` lends our own
        tools to coding CLIs."""
        self._shell = shell
        self._mask = mask
        self._fetcher = fetcher
        self._data_dir = data_dir
        self._config = config or McpConfigFile(data_dir)
        self._consents = consents
        self._sign_ins = sign_ins
        self._keep = keep or KeptServers()
        self._timeouts = timeouts or ServerTimeouts()
        self._variables = variables
        self._lender = lender
        self._now = now
        self._sleep = sleep
        self._servers: dict[tuple[McpScope, str], LiveMcpServer] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self, stack: AsyncExitStack) -> None:
        """Servers start at their first use."""

    async def run(self) -> None:
        while True:
            await self._sleep(_SWEEP_SECONDS)
            await self.close_unused()

    async def aclose(self) -> None:
        """Stop all servers."""
        if self._sign_ins is not None:
            await self._sign_ins.aclose()
        if self._lender is not None:
            await self._lender.aclose()
        await asyncio.gather(*(each.close() for each in self._servers.values()), *self._closing)

    @asynccontextmanager
    async def connect(
        self,
        servers: Sequence[McpServer],
        scope: McpScope,
        on_event: NoticeListener | None = None,
        elicitor: Elicitor | None = None,
    ) -> AsyncGenerator[ConnectedServers, None]:
        """Yield the servers' tools, starting those that do not run; failures become notices.
        `elicitor` asks the person what servers want to know."""
        run = _ServerUser(on_event or ignore_notice, elicitor)
        async with AsyncExitStack() as stack:
            connected = await asyncio.gather(
                *(self._use_server(stack, server, scope, run) for server in servers)
            )
            tools = {tool.name: tool for each in connected for tool in each.tools}
            notes = tuple(note for each in connected for note in each.notes)
            yield ConnectedServers(tools=tuple(tools.values()), notes=notes)

    def resolve_variables(self, servers: Sequence[McpServer]) -> ConnectedServers:
        """Fill in variables for backends that start servers themselves; servers with unset
        variables are skipped."""
        known: list[McpServer] = []
        notes: list[RunNotice] = []
        for server in servers:
            if server.withheld is not None:
                notes.append(server.withheld)
                continue
            try:
                known.append(fill_variables(server, self._variables))
            except McpError as error:
                notes.append(_failure(server, self._mask(str(error))))
        return ConnectedServers(servers=tuple(known), notes=tuple(notes))

    @asynccontextmanager
    async def resolve_and_lend(
        self,
        servers: Sequence[McpServer],
        tools: Sequence[AgentTool],
        permit: CallAuthorizer | None = None,
        keep: KeptLoan | None = None,
    ) -> AsyncGenerator[ConnectedServers, None]:
        """Like `resolve_variables`, plus our own server with the lendable `tools` while the context
        is open. `permit` decides on those that need it.

        The name of our server is reserved. With `keep` it may be that of the loan before."""
        connected = self.resolve_variables([each for each in servers if each.name != SERVER_NAME])
        if self._lender is None:
            yield connected
            return
        kind = (await self._shell.sandbox()).kind
        async with self._lender.lend(
            tools, permit=permit, by_port=kind is SandboxKind.LANDLOCK, keep=keep
        ) as ours:
            added = () if ours is None else (ours,)
            yield replace(connected, servers=(*connected.servers, *added))

    async def end_loans(self, work: str) -> None:
        """Close our own servers that are kept for coding CLIs between the steps of this work."""
        if self._lender is not None:
            await self._lender.end_kept(work)

    def list_servers(self) -> Sequence[McpServerStatus]:
        return [each.describe() for each in self._servers.values()]

    async def list_shared(self) -> Sequence[str]:
        return [each.name for each in await self._config.list_servers()]

    async def list_faults(self) -> Sequence[str]:
        return await self._config.list_faults()

    async def list_consents(self) -> Sequence[McpConsent]:
        return () if self._consents is None else [*(await self._consents.get_all()).values()]

    async def revoke_consent(self, consent_id: str) -> McpConsent | None:
        revoked = None if self._consents is None else await self._consents.revoke(consent_id)
        if revoked is not None:
            for each in [each for each in self._servers.values() if each.name in revoked.servers]:
                self._close_soon(each)
        return revoked

    @property
    def client_description(self) -> Mapping[str, Any] | None:
        """Our metadata at our client ID, for authorization servers; None without such an ID."""
        if self._sign_ins is None or not self._sign_ins.client_id:
            return None
        return self._sign_ins.client_description

    async def start_sign_in(self, server: str) -> str | None:
        """Return the page where the person signs in; None if no such server has a URL. Raises
        SignInFailed."""
        found = await self._find_at_url(server)
        if found is None or self._sign_ins is None:
            return None
        try:
            return await self._sign_ins.start(fill_variables(found, self._variables))
        except McpError as error:
            raise SignInFailed(self._mask(str(error))) from error

    async def finish_sign_in(self, pasted: str) -> str:
        """Take what the page gave; return the server's name. Raises SignInFailed."""
        if self._sign_ins is None:
            raise SignInFailed("nobody signs in here")
        try:
            server = await self._sign_ins.finish(pasted)
        except McpError as error:
            raise SignInFailed(self._mask(str(error))) from error
        await self.restart(server, select=lambda _: True)
        return server

    async def sign_out(self, server: str) -> SignOut:
        """Withdraw and delete the tokens."""
        if self._sign_ins is None:
            return SignOut.WAS_OUT
        found = await self._find_at_url(server)
        try:
            known = None if found is None else fill_variables(found, self._variables)
        except McpError:
            known = None
        state = await self._sign_ins.sign_out(server, known)
        await self.restart(server, select=lambda _: state is not SignOut.WAS_OUT)
        return state

    async def _find_at_url(self, name: str) -> McpServer | None:
        used = (each.config for each in self._servers.values())
        known = (*await self._config.list_servers(), *used)
        servers = (each for each in known if isinstance(each, McpServer))
        return next((each for each in servers if each.name == name and each.url), None)

    async def restart(self, server: str, *, select: Callable[[McpServerStatus], bool]) -> int:
        """Stop the selected servers of this name and forget their failures, so that the next use
        starts them. Returns their number."""
        chosen = [
            each
            for each in self._servers.values()
            if each.name == server and select(each.describe())
        ]
        await asyncio.gather(*(each.close(forgive=True) for each in chosen))
        return len(chosen)

    async def close_unused(self) -> None:
        """Close servers that were not used for long, or whose workspace is gone."""
        for each in [each for each in self._servers.values() if not each.users]:
            gone = each.is_running and not await asyncio.to_thread(each.scope.workspace.is_dir)
            if each.is_running and (gone or each.idle_seconds > self._keep.idle_seconds):
                self._close_soon(each)
        stopped = [key for key, each in self._servers.items() if not each.is_running]
        for key in stopped[: max(0, len(self._servers) - _MAX_KNOWN)]:
            if not self._servers[key].users:
                del self._servers[key]

    async def _use_server(
        self, stack: AsyncExitStack, server: McpServer, scope: McpScope, run: _ServerUser
    ) -> ConnectedServers:
        if server.withheld is not None:
            return ConnectedServers(notes=(server.withheld,))
        mask = self._server_mask(server)
        try:
            live = await self._get_server(server, scope, mask)
            live.users += 1
            stack.callback(self._release, live)
            await live.ensure_running(run.notify)
        except (McpError, OSError) as error:
            return ConnectedServers(notes=(_failure(server, mask(str(error))),))
        tools = (_wrap_tool(live, each, run) for each in live.tools)
        return ConnectedServers(
            tools=tuple(redact_tool(tool, scope.workspace, mask) for tool in tools)
        )

    async def _get_server(
        self, server: McpServer, scope: McpScope, mask: Callable[[str], str]
    ) -> LiveMcpServer:
        """Return the scope's server, or a new one if its settings have changed since."""
        filled = fill_variables(server, self._variables)
        sandbox = await self._shell.sandbox()
        config: object = filled
        if not server.url:
            folder = await asyncio.to_thread(identify_folder, scope.workspace)
            config = (filled, sandbox.kind, dict(self._shell.env(sandbox)), folder)
        known = self._servers.get((scope, server.name))
        if known is not None and known.config == config:
            return known
        if known is not None and not known.users:
            self._close_soon(known)
        live = LiveMcpServer(
            server.name,
            scope,
            config,
            partial(self._open_session, server, filled, scope),
            mask=mask,
            timeouts=self._timeouts,
            now=self._now,
        )
        self._servers[scope, server.name] = live
        return live

    @asynccontextmanager
    async def _open_session(
        self, written: McpServer, server: McpServer, scope: McpScope, answer: InputHandler
    ) -> AsyncGenerator[tuple[McpSession, asyncio.Event], None]:
        """`server` is the `written` one with its variables filled in."""
        await asyncio.to_thread(check_files, written, scope.workspace)
        sdk = await asyncio.to_thread(_load_sdk)
        if server.url:
            auth = None if self._sign_ins is None else await self._sign_ins.create_auth(server)
            opened = sdk.open_http_session(server, self._fetcher, answer, auth)
            async with opened as session:
                yield session
            return
        name = await asyncio.to_thread(home_name, server.name, scope, self._data_dir)
        async with self._shell.homes.acquire(name) as home:
            launch = await build_launch(self._shell, server, scope, home)
            async with sdk.open_stdio_session(server.name, launch, answer) as session:
                yield session

    def _release(self, live: LiveMcpServer) -> None:
        live.users -= 1
        live.touch()
        if live.users:
            return
        if self._servers.get((live.scope, live.name)) is not live:
            self._close_soon(live)
        idle = [each for each in self._servers.values() if each.is_running and not each.users]
        idle.sort(key=lambda each: each.idle_seconds)
        for each in idle[self._keep.count :]:
            self._close_soon(each)

    def _close_soon(self, live: LiveMcpServer) -> None:
        async def close() -> None:
            if not live.users:
                await live.close()

        closing = asyncio.create_task(close(), name=f"close mcp server {live.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _server_mask(self, server: McpServer) -> Callable[[str], str]:
        """Mask the secrets that the server was given."""
        secrets = server_secrets(server, self._variables)

        def mask(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, MASK)
            return self._mask(text if self._sign_ins is None else self._sign_ins.mask(text))

        return mask


def _load_sdk() -> ModuleType:
    # Slow to import, and only needed where servers are used.
    from bot.engine.mcp.client import session

    return session


def _wrap_tool(live: LiveMcpServer, tool: ServerTool, user: _ServerUser) -> AgentTool:
    async def run(arguments: Mapping[str, object]) -> str:
        return await live.call(tool.name, arguments, user.notify, user.elicitor)

    async def detail(arguments: Mapping[str, object]) -> str:
        shown = json.dumps(arguments, ensure_ascii=False, indent=1, default=str)
        return f"{tool.name} {shown}" if arguments else tool.name

    return AgentTool(
        name=tool_name(live.name, tool.name),
        description=tool_description(live.name, tool.description),
        schema=tool.schema,
        run=run,
        kind=CallKind.OTHER,
        detail=detail,
    )


def _failure(server: McpServer, detail: str) -> RunNotice:
    return RunNotice(key="mcp.failed", facts={"server": server.name, "detail": detail})
