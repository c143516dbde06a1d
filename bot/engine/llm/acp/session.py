"""Opens sessions in a CLI process and closes them cleanly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.agent_config import AcpAgentConfig, ResumeSupport
from bot.engine.llm.acp.connection import (
    MAX_LINE_BYTES,
    AcpConnection,
    AcpConnectionClosed,
    AcpMessage,
    AcpRequestRefused,
    AcpTransport,
    SecretRedactor,
)
from bot.engine.llm.acp.permission_requests import CANCELLED
from bot.engine.llm.acp.process import (
    AcpFailure,
    CliProcess,
    classify_error_response,
    classify_exit,
    failure_error,
)
from bot.engine.llm.acp.runtime import (
    AcpHome,
    AcpProgram,
    AcpRuntime,
    find_program,
    prepare_home,
)
from bot.engine.llm.acp.updates import AcpUsageMeter
from bot.engine.llm.backend import BackendDenied, McpServer, RunRequest, WorkerMode

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
START_TIMEOUT = 120.0
"""Some CLIs take half a minute for their first start on a busy machine."""

_REQUEST_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSessionInfo:
    """An open session; `resumed` means that it has its earlier messages, `version` is the CLI's
    version."""

    id: str
    resumed: bool
    version: str = ""
    accepts_images: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """The modes and models that the CLI offers."""


async def open_session(
    connection: AcpConnection,
    agent: AcpAgentConfig,
    request: RunRequest,
    *,
    mode: WorkerMode,
    cwd: str,
    env: Mapping[str, str],
) -> AcpSessionInfo:
    """Open a session for the first prompt and store the ID of a new one.

    Raises BackendError, AcpRequestRefused and AcpConnectionClosed."""
    hello = await _initialize(connection, agent)
    method = next((method for key, method in agent.auth.items() if env.get(key)), "")
    if method:
        await connection.request("authenticate", {"methodId": method}, seconds=_REQUEST_TIMEOUT)
    folder_params = {
        "cwd": cwd,
        "mcpServers": [_server_params(server) for server in request.servers],
    }
    response = await _resume_session(connection, agent, request.external_id, folder_params)
    resumed = response is not None
    if response is None:
        response = await connection.request("session/new", folder_params, seconds=START_TIMEOUT)
    session_id = request.external_id if resumed else str(response.get("sessionId") or "")
    if not session_id:
        raise failure_error(AcpFailure.PROTOCOL, agent.name, "it gave the session no id")
    if not resumed and request.on_external is not None:
        await request.on_external(session_id)
    await _set_mode(connection, agent, session_id, response, mode)
    if request.model:
        await _set_model(connection, agent, session_id, response, request.model)
    return AcpSessionInfo(
        id=session_id,
        resumed=resumed,
        version=_agent_version(hello),
        accepts_images=_accepts_images(hello),
        options=response,
    )


async def _initialize(connection: AcpConnection, agent: AcpAgentConfig) -> Mapping[str, Any]:
    params = {
        "protocolVersion": PROTOCOL_VERSION,
        # We offer no files or terminals, which we would have to guard; the CLI has its own.
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}},
        "clientInfo": {"name": "shiftboss", "version": "1"},
    }
    hello = await connection.request("initialize", params, seconds=START_TIMEOUT)
    if hello.get("protocolVersion") != PROTOCOL_VERSION:
        response = f"it speaks version {str(hello.get('protocolVersion'))[:20]}"
        raise failure_error(AcpFailure.PROTOCOL, agent.name, response)
    return hello


async def _resume_session(
    connection: AcpConnection, agent: AcpAgentConfig, id: str, folder_params: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the response; None if the session is lost or the CLI can't resume."""
    if not id or agent.resume is ResumeSupport.NONE:
        return None
    ways = ["session/resume", "session/load"]
    for way in ways if agent.resume is ResumeSupport.RESUME else ways[1:]:
        try:
            return await connection.request(
                way, {"sessionId": id, **folder_params}, seconds=START_TIMEOUT
            )
        except AcpRequestRefused as refused:
            if _refusal_reason(refused) is AcpFailure.LOGIN:
                raise
            log.info("%s cannot resume with %s: %s", agent.name, way, refused)
    return None


async def _set_mode(
    connection: AcpConnection,
    agent: AcpAgentConfig,
    id: str,
    response: Mapping[str, Any],
    mode: WorkerMode,
) -> None:
    """Always set the mode, because some CLIs start in one that asks for nothing."""
    wanted = agent.modes.get(mode)
    if wanted is None:
        return
    modes = response.get("modes")
    known = _ids(modes.get("availableModes"), "id") if isinstance(modes, dict) else ()
    if wanted in known:
        await connection.request(
            "session/set_mode", {"sessionId": id, "modeId": wanted}, seconds=_REQUEST_TIMEOUT
        )
    elif option := _find_option(response, "mode", wanted):
        await _set_option(connection, id, option, wanted)
    else:
        raise failure_error(AcpFailure.MODE, agent.name, f"it has no mode {wanted!r}, but {known}")


async def _set_model(
    connection: AcpConnection,
    agent: AcpAgentConfig,
    id: str,
    response: Mapping[str, Any],
    model: str,
) -> None:
    if agent.model_env:
        return  # passed in the environment
    models = response.get("models")
    known = _ids(models.get("availableModels"), "modelId") if isinstance(models, dict) else ()
    if option := _find_option(response, "model", model):
        await _set_option(connection, id, option, model)
    elif model in known:
        await connection.request(
            "session/set_model", {"sessionId": id, "modelId": model}, seconds=_REQUEST_TIMEOUT
        )
    else:
        raise BackendDenied(f"{agent.name} has no model {model}", hint="backend.no_model")


async def _set_option(connection: AcpConnection, id: str, option: str, value: str) -> None:
    params = {"sessionId": id, "configId": option, "value": value}
    await connection.request("session/set_config_option", params, seconds=_REQUEST_TIMEOUT)


def _find_option(response: Mapping[str, Any], what: str, value: str) -> str:
    """Return the ID of the option that offers `value`; choices may be grouped."""
    options = response.get("configOptions")
    for option in options if isinstance(options, list) else []:
        if not isinstance(option, dict) or what not in {option.get("id"), option.get("category")}:
            continue
        choices = option.get("options")
        flat = list(choices) if isinstance(choices, list) else []
        for group in [each for each in flat if isinstance(each, dict)]:
            flat += group["options"] if isinstance(group.get("options"), list) else []
        if value in _ids(flat, "value"):
            return str(option.get("id"))
    return ""


def _ids(entries: object, key: str) -> tuple[str, ...]:
    listed: Sequence[Any] = entries if isinstance(entries, list) else ()
    return tuple(str(each[key]) for each in listed if isinstance(each, dict) and key in each)


def _server_params(server: McpServer) -> dict[str, Any]:
    if server.url:
        headers = [{"name": name, "value": value} for name, value in server.headers.items()]
        return {"type": "http", "name": server.name, "url": server.url, "headers": headers}
    env = [{"name": name, "value": value} for name, value in server.env.items()]
    command, *args = server.command
    return {"name": server.name, "command": command, "args": args, "env": env}


def _agent_version(hello: Mapping[str, Any]) -> str:
    info = hello.get("agentInfo")
    return str(info.get("version") or "")[:40] if isinstance(info, dict) else ""


def _accepts_images(hello: Mapping[str, Any]) -> bool:
    response = hello.get("agentCapabilities")
    able = response.get("promptCapabilities") if isinstance(response, dict) else None
    return isinstance(able, dict) and able.get("image") is True


_REPLY_TIMEOUT = 5.0
"""Seconds to wait until our replies are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessScope:
    """Satisfies `idle_process.ProcessIdentity`."""

    kept_for: str
    session: str
    agent: AcpAgentConfig
    program: AcpProgram
    home: AcpHome
    folder: Path
    mode: WorkerMode
    model: str
    servers: tuple[McpServer, ...]


class AcpSession:
    """An open session in a process of its own; satisfies `idle_process.KeepableSession`.

    `has_completed` is set when a run in it has brought its result; `meter` is that of its last
    run."""

    def __init__(
        self,
        scope: ProcessScope,
        process: CliProcess,
        transport: AcpTransport,
        redactor: SecretRedactor,
        runtime: AcpRuntime,
    ) -> None:
        self.scope = scope
        self._agent = scope.agent
        self._process = process
        self._transport = transport
        self._redactor = redactor
        self._cancel_grace = runtime.cancel_grace
        self._closing_tasks = runtime.closing_tasks
        self._connection = AcpConnection(transport, redactor)
        self._turn: asyncio.Task[Mapping[str, Any]] | None = None
        self.info = AcpSessionInfo(id="", resumed=False)
        self.has_completed = False
        self.meter: AcpUsageMeter | None = None

    async def open(self, request: RunRequest, env: Mapping[str, str]) -> None:
        scope = self.scope
        self.info = await open_session(
            self._connection,
            self._agent,
            request,
            mode=scope.mode,
            cwd=str(scope.folder),
            env=env,
        )
        self.scope = replace(scope, session=self.info.id)
        if scope.kept_for:
            await self._process.note_own_processes()

    @property
    def is_reusable(self) -> bool:
        is_over = self._turn is None or self._turn.done()
        return (
            self.has_completed and is_over and self._transport.is_quiet and self._process.is_running
        )

    async def is_tidy(self) -> bool:
        commands = [server.command for server in self.scope.servers if server.command]
        return await self._process.is_tidy(self.scope.program.install, commands)

    def listen(
        self,
        on_update: Callable[[AcpMessage], Awaitable[None]],
        on_permission_request: Callable[[AcpMessage], Awaitable[Mapping[str, Any]]],
    ) -> None:
        """Let these handle what the CLI sends on its own from now on."""
        redactor = self._redactor
        self._transport.listen(
            lambda update: on_update(redactor.redact_json(update)),
            lambda asked: on_permission_request(redactor.redact_json(asked)),
        )

    def release(self) -> None:
        """Between runs nothing is allowed; only late reports of usage are heard."""
        meter = self.meter

        async def on_update(update: AcpMessage) -> None:
            if meter is not None and update.get("sessionUpdate") == "usage_update":
                meter.record_update(update)

        async def refuse(_asked: AcpMessage) -> Mapping[str, Any]:
            return CANCELLED

        self._transport.listen(on_update, refuse)

    async def begin_next_run(self) -> None:
        """Set the mode again, which the CLI may have left. Raises AcpRequestRefused and
        AcpConnectionClosed."""
        options, mode = self.info.options, self.scope.mode
        await _set_mode(self._connection, self._agent, self.info.id, options, mode)
        self.info = replace(self.info, resumed=True)
        self.has_completed = False

    def prompt(self, blocks: list[dict[str, Any]]) -> asyncio.Task[Mapping[str, Any]]:
        """Start a turn; the task returns its response or raises AcpRequestRefused or
        AcpConnectionClosed."""
        params = {"sessionId": self.info.id, "prompt": blocks}
        self._turn = asyncio.create_task(self._connection.request("session/prompt", params))
        return self._turn

    async def wait_for_replies(self) -> None:
        """Wait until all permission requests are answered."""
        await self._transport.wait_for_replies(_REPLY_TIMEOUT)

    async def failure_of(self, closed: AcpConnectionClosed) -> tuple[AcpFailure, str]:
        """Return why the process ended, judged by its stderr after it stopped."""
        if closed.failure is None:
            await self._process.stop()
        return closed.failure or classify_exit(self._process.stderr_tail), self._process.stderr_tail

    async def stop(self) -> None:
        """Cancel a running turn by protocol before killing the process, so that the session stays
        intact."""
        if self._turn is not None and not self._turn.done():
            await self._transport.cancel_requests()
            await self._connection.notify("session/cancel", {"sessionId": self.info.id})
            await asyncio.wait({self._turn}, timeout=self._cancel_grace)
            self._turn.cancel()
        if self._turn is not None:
            await asyncio.gather(self._turn, return_exceptions=True)
        await self._connection.aclose()
        await self._process.stop()

    async def close(self) -> None:
        """Stop the process; a second cancellation kills it immediately."""
        ending = asyncio.create_task(self.stop())
        self._closing_tasks.add(ending)
        ending.add_done_callback(self._closing_tasks.discard)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._process.kill()
            raise


@asynccontextmanager
async def open_cli(
    agent: AcpAgentConfig,
    request: RunRequest,
    runtime: AcpRuntime,
    home: AcpHome,
    *,
    mode: WorkerMode,
    on_update: Callable[[AcpMessage], Awaitable[None]],
    on_permission_request: Callable[[AcpMessage], Awaitable[Mapping[str, Any]]],
) -> AsyncIterator[AcpSession]:
    """Start the CLI and open a session, or go on in the one that an idle process has; the callbacks
    handle what the CLI sends on its own. After a run that has completed, the process may be kept.

    Raises BackendError, also for failures within the context."""
    scope = await _process_scope(agent, request, runtime, home, mode)
    session = await _take_idle(scope, runtime)
    is_new = session is None
    if session is None:
        session = await _start_session(scope, runtime)
    session.listen(on_update, on_permission_request)
    is_kept = False
    try:
        if is_new:
            await session.open(request, runtime.environ)
        yield session
        is_kept = await runtime.idle.keep(session)
    except AcpRequestRefused as refused:
        raise failure_error(_refusal_reason(refused), agent.name, str(refused)) from None
    except AcpConnectionClosed as ended:
        failed, stderr = await session.failure_of(ended)
        raise failure_error(failed, agent.name, stderr) from None
    finally:
        if not is_kept:
            await session.close()


def _refusal_reason(refused: AcpRequestRefused) -> AcpFailure:
    return classify_error_response(refused.code, str(refused), refused.data)


async def _process_scope(
    agent: AcpAgentConfig,
    request: RunRequest,
    runtime: AcpRuntime,
    home: AcpHome,
    mode: WorkerMode,
) -> ProcessScope:
    # Constant for a session, because CLIs bind sessions to their folder.
    folder = request.workspace or home.scratch
    await asyncio.to_thread(prepare_home, home, agent)
    # The workspace of a new chat doesn't exist yet.
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    program = await asyncio.to_thread(find_program, agent, home, runtime.environ, request.model)
    return ProcessScope(
        kept_for=request.kept_for,
        session=request.external_id,
        agent=agent,
        program=program,
        home=home,
        folder=folder,
        mode=mode,
        model=request.model,
        servers=request.servers,
    )


async def _take_idle(scope: ProcessScope, runtime: AcpRuntime) -> AcpSession | None:
    session: AcpSession | None = await runtime.idle.take(scope)
    if session is None:
        return None
    is_ready = False
    try:
        await session.begin_next_run()
        is_ready = True
    except (AcpRequestRefused, AcpConnectionClosed) as error:
        log.info("the idle %s is replaced: %s", scope.agent.name, error)
    finally:
        if not is_ready:
            await session.close()
    return session if is_ready else None


async def _start_session(scope: ProcessScope, runtime: AcpRuntime) -> AcpSession:
    if runtime.slots.locked():
        # The idle process would be one more than may run.
        await runtime.idle.end()
    redactor = SecretRedactor([each for server in scope.servers for each in server.secrets])
    process = await _start_process(scope, runtime, redactor.secrets)
    transport = AcpTransport(process.reader, process.writer)
    return AcpSession(scope, process, transport, redactor, runtime)


async def _start_process(
    scope: ProcessScope, runtime: AcpRuntime, secrets: Sequence[str]
) -> CliProcess:
    program = scope.program
    launch = await runtime.launch(
        program.argv,
        workspace=scope.folder,
        home=scope.home.path,
        env=program.env,
        readable=(*program.readable, *(at for each in scope.servers for at in each.readable_paths)),
        writable=scope.mode is WorkerMode.EXECUTE,
    )
    mark = await runtime.new_process_mark()
    try:
        return await CliProcess.start(
            launch, log=scope.home.log, mark=mark, max_line=MAX_LINE_BYTES, secrets=secrets
        )
    except OSError as error:
        raise failure_error(AcpFailure.MISSING, scope.agent.name, error.strerror or "") from None
