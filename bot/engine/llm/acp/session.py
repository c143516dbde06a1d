"""A session in a CLI: begun or gone on with, its mode and its model set."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.engine.llm.acp.failures import Failed, failure, of_refusal
from bot.engine.llm.acp.table import Agent, Resume
from bot.engine.llm.base import BackendDenied, McpServer, Mode, RunRequest

if TYPE_CHECKING:
    from bot.engine.llm.acp.link import Link

log = logging.getLogger(__name__)

PROTOCOL = 1
START_SECONDS = 120.0
"""The first start of some takes half a minute on a busy machine."""

_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """`gone_on`: it knows what was said before. `version` is what it says of itself."""

    id: str
    gone_on: bool
    version: str = ""
    pictures: bool = False
    told: Mapping[str, Any] = field(default_factory=dict)


async def open_session(
    link: Link, agent: Agent, request: RunRequest, *, mode: Mode, cwd: str, env: Mapping[str, str]
) -> Opened:
    """Ready for the first prompt; the new session's id is stored before. Raises BackendError,
    Refused and Ended."""
    hello = await _hello(link, agent)
    method = next((method for key, method in agent.auth.items() if env.get(key)), "")
    if method:
        await link.ask("authenticate", {"methodId": method}, seconds=_SECONDS)
    place = {"cwd": cwd, "mcpServers": [_server(server) for server in request.servers]}
    told = await _gone_on(link, agent, request.external_id, place)
    gone_on = told is not None
    if told is None:
        told = await link.ask("session/new", place, seconds=START_SECONDS)
    named = request.external_id if gone_on else str(told.get("sessionId") or "")
    if not named:
        raise failure(Failed.PROTOCOL, agent.name, "it gave the session no id")
    if not gone_on and request.on_external is not None:
        await request.on_external(named)
    await _set_mode(link, agent, named, told, mode)
    if request.model:
        await _set_model(link, agent, named, told, request.model)
    return Opened(
        id=named, gone_on=gone_on, version=_version(hello), pictures=_pictures(hello), told=told
    )


async def _hello(link: Link, agent: Agent) -> Mapping[str, Any]:
    params = {
        "protocolVersion": PROTOCOL,
        # No files and no terminals: they would be ours to guard, and it has its own anyway.
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}},
        "clientInfo": {"name": "shiftboss", "version": "1"},
    }
    hello = await link.ask("initialize", params, seconds=START_SECONDS)
    if hello.get("protocolVersion") != PROTOCOL:
        told = f"it speaks version {str(hello.get('protocolVersion'))[:20]}"
        raise failure(Failed.PROTOCOL, agent.name, told)
    return hello


async def _gone_on(
    link: Link, agent: Agent, id: str, place: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """None where the session is lost, or the CLI cannot."""
    from bot.engine.llm.acp.link import Refused  # the library is loaded by now

    if not id or agent.resume is Resume.NONE:
        return None
    ways = ["session/resume", "session/load"]
    for way in ways if agent.resume is Resume.RESUME else ways[1:]:
        try:
            return await link.ask(way, {"sessionId": id, **place}, seconds=START_SECONDS)
        except Refused as refused:
            if of_refusal(refused.code, str(refused), refused.data) is Failed.LOGIN:
                raise
            log.info("%s does not go on by %s: %s", agent.name, way, refused)
    return None


async def _set_mode(link: Link, agent: Agent, id: str, told: Mapping[str, Any], mode: Mode) -> None:
    """Always said: some begin in a mode that asks about nothing."""
    wanted = agent.modes.get(mode)
    if wanted is None:
        return
    modes = told.get("modes")
    known = _ids(modes.get("availableModes"), "id") if isinstance(modes, dict) else ()
    if wanted in known:
        await link.ask("session/set_mode", {"sessionId": id, "modeId": wanted}, seconds=_SECONDS)
    elif option := _option(told, "mode", wanted):
        await _configure(link, id, option, wanted)
    else:
        raise failure(Failed.MODE, agent.name, f"it has no mode {wanted!r}, but {known}")


async def _set_model(
    link: Link, agent: Agent, id: str, told: Mapping[str, Any], model: str
) -> None:
    if agent.model_env:
        return  # it has it from its environment
    models = told.get("models")
    known = _ids(models.get("availableModels"), "modelId") if isinstance(models, dict) else ()
    if option := _option(told, "model", model):
        await _configure(link, id, option, model)
    elif model in known:
        await link.ask("session/set_model", {"sessionId": id, "modelId": model}, seconds=_SECONDS)
    else:
        raise BackendDenied(f"{agent.name} has no model {model}", hint="backend.no_model")


async def _configure(link: Link, id: str, option: str, value: str) -> None:
    params = {"sessionId": id, "configId": option, "value": value}
    await link.ask("session/set_config_option", params, seconds=_SECONDS)


def _option(told: Mapping[str, Any], what: str, value: str) -> str:
    """The id of the option for this that has this value; options may stand in groups."""
    options = told.get("configOptions")
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


def _server(server: McpServer) -> dict[str, Any]:
    if server.url:
        headers = [{"name": name, "value": value} for name, value in server.headers.items()]
        return {"type": "http", "name": server.name, "url": server.url, "headers": headers}
    env = [{"name": name, "value": value} for name, value in server.env.items()]
    command, *args = server.command
    return {"name": server.name, "command": command, "args": args, "env": env}


def _version(hello: Mapping[str, Any]) -> str:
    info = hello.get("agentInfo")
    return str(info.get("version") or "")[:40] if isinstance(info, dict) else ""


def _pictures(hello: Mapping[str, Any]) -> bool:
    told = hello.get("agentCapabilities")
    able = told.get("promptCapabilities") if isinstance(told, dict) else None
    return isinstance(able, dict) and able.get("image") is True
