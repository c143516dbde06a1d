"""Opens sessions in a CLI process and closes them cleanly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from bot.engine.llm.acp.process import (
    AcpFailure,
    CliProcess,
    classify_error_response,
    classify_exit,
    failure_error,
)
from bot.engine.llm.acp.runtime import AcpHome, AcpRuntime, find_program, prepare_home
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


class AcpSession:
    def __init__(
        self,
        agent: AcpAgentConfig,
        process: CliProcess,
        transport: AcpTransport,
        redactor: SecretRedactor,
        cancel_grace: float,
    ) -> None:
        self._agent = agent
        self._process = process
        self._transport = transport
        self._cancel_grace = cancel_grace
        self._connection = AcpConnection(transport, redactor)
        self._turn: asyncio.Task[Mapping[str, Any]] | None = None
        self.info = AcpSessionInfo(id="", resumed=False)

    async def open(
        self, request: RunRequest, mode: WorkerMode, cwd: Path, env: Mapping[str, str]
    ) -> None:
        self.info = await open_session(
            self._connection, self._agent, request, mode=mode, cwd=str(cwd), env=env
        )

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

    def kill(self) -> None:
        self._process.kill()


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
    """Start the CLI and open a session; the callbacks handle what the CLI sends on its own.

    Raises BackendError, also for failures within the context."""
    redactor = SecretRedactor([secret for server in request.servers for secret in server.secrets])
    # Constant for a session, because CLIs bind sessions to their folder.
    folder = request.workspace or home.scratch
    process = await _start_process(
        agent, request, runtime, home, folder, mode=mode, secrets=redactor.secrets
    )
    transport = AcpTransport(
        process.reader,
        process.writer,
        on_update=lambda update: on_update(redactor.redact_json(update)),
        on_permission_request=lambda asked: on_permission_request(redactor.redact_json(asked)),
    )
    session = AcpSession(agent, process, transport, redactor, runtime.cancel_grace)
    try:
        await session.open(request, mode, folder, runtime.environ)
        yield session
    except AcpRequestRefused as refused:
        raise failure_error(_refusal_reason(refused), agent.name, str(refused)) from None
    except AcpConnectionClosed as ended:
        failed, stderr = await session.failure_of(ended)
        raise failure_error(failed, agent.name, stderr) from None
    finally:
        await _close_session(session, runtime)


def _refusal_reason(refused: AcpRequestRefused) -> AcpFailure:
    return classify_error_response(refused.code, str(refused), refused.data)


async def _close_session(session: AcpSession, runtime: AcpRuntime) -> None:
    """Stop the process; a second cancellation kills it immediately."""
    ending = asyncio.create_task(session.stop())
    runtime.closing_tasks.add(ending)
    ending.add_done_callback(runtime.closing_tasks.discard)
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        session.kill()
        raise


async def _start_process(
    agent: AcpAgentConfig,
    request: RunRequest,
    runtime: AcpRuntime,
    home: AcpHome,
    folder: Path,
    *,
    mode: WorkerMode,
    secrets: Sequence[str],
) -> CliProcess:
    await asyncio.to_thread(prepare_home, home, agent)
    # The workspace of a new chat doesn't exist yet.
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    found = await asyncio.to_thread(find_program, agent, home, runtime.environ, request.model)
    launch = await runtime.launch(
        found.argv,
        workspace=folder,
        home=home.path,
        env=found.env,
        readable=(*found.readable, *(at for each in request.servers for at in each.readable_paths)),
        writable=mode is WorkerMode.EXECUTE,
    )
    mark = await runtime.new_process_mark()
    try:
        return await CliProcess.start(
            launch, log=home.log, mark=mark, max_line=MAX_LINE_BYTES, secrets=secrets
        )
    except OSError as error:
        raise failure_error(AcpFailure.MISSING, agent.name, error.strerror or "") from None
