"""Defines the built-in coding CLIs and reads changes to them from `agents.yaml`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from bot.engine.llm.backend import WorkerMode

MIN_NODE_VERSION = 22
"""With older versions npm silently installs outdated releases of these CLIs."""


class ResumeSupport(StrEnum):
    """How a new process continues a session: RESUME replays nothing, LOAD replays all messages,
    NONE gets the history as text."""

    RESUME = "resume"
    LOAD = "load"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTable:
    """Where SQLite files of a CLI, named by a pattern, have rows of sessions: the `key` column has
    the session's id, `changed` the time of its last change in `units` of a second. What refers to
    a row is deleted with it."""

    files: str
    table: str
    key: str
    changed: str
    units: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpAgentConfig:
    """Configuration of one coding CLI.

    `env` names variables that are passed through; `fixed_env` is always set. A variable of
    `key_variables` or a file of `login_files` indicates a login; without either the login state is
    unknown. `auth` maps a key variable to the authentication method to call before a session.
    `modes` maps our modes to the CLI's. `files` are written to a new home. `model_env` passes the
    model where the protocol can't. `path` is searched before PATH. `command_in_title` is set if
    permission requests carry the command only in their title. `limitation` is the text key of a
    warning. `session_folders` hold only sessions and what can be made again."""

    name: str
    command: tuple[str, ...]
    install_hint: str
    env: tuple[str, ...] = ()
    fixed_env: Mapping[str, str] = field(default_factory=dict)
    key_variables: tuple[str, ...] = ()
    login_files: tuple[str, ...] = ()
    auth: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[WorkerMode, str] = field(default_factory=dict)
    resume: ResumeSupport = ResumeSupport.RESUME
    min_node_version: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    model_env: str = ""
    path: tuple[str, ...] = ()
    command_in_title: bool = False
    limitation: str = ""
    session_folders: tuple[str, ...] = ()
    session_tables: tuple[SessionTable, ...] = ()


def _mode_names(plan: str, execute: str) -> Mapping[WorkerMode, str]:
    return {WorkerMode.PLAN: plan, WorkerMode.EXECUTE: execute, WorkerMode.REVIEW: plan}


_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")

BUILT_IN_AGENTS: Mapping[str, AcpAgentConfig] = {
    agent.name: agent
    for agent in (
        AcpAgentConfig(
            name="claude-code",
            command=("claude-agent-acp",),
            install_hint="npm install -g @agentclientprotocol/claude-agent-acp",
            env=(*_ANTHROPIC, "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            # Without ENABLE_TOOL_SEARCH=false, MCP tools are only found if the model searches for
            # them.
            fixed_env={"ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1"},
            key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            login_files=(".claude/.credentials.json",),
            modes=_mode_names("plan", "default"),
            min_node_version=MIN_NODE_VERSION,
            session_folders=tuple(
                f".claude/{each}"
                for each in (
                    *("projects", "todos", "tasks", "plans", "session-env", "paste-cache"),
                    *("shell-snapshots", "file-history", "debug"),
                )
            ),
        ),
        AcpAgentConfig(
            name="opencode",
            command=("opencode", "acp"),
            install_hint="npm install -g opencode-ai",
            env=(*_ANTHROPIC, *_OPENAI, "OPENCODE_API_KEY", "OPENROUTER_API_KEY"),
            fixed_env={
                # By default it requests no permissions.
                "OPENCODE_PERMISSION": '{"bash":"ask","edit":"ask","webfetch":"ask"}',
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
            },
            modes=_mode_names("plan", "build"),
            min_node_version=MIN_NODE_VERSION,
            session_folders=tuple(
                f".local/share/opencode/{each}"
                for each in ("storage", "snapshot", "log", "tool-output")
            ),
            session_tables=(
                SessionTable(
                    files=".local/share/opencode/opencode.db",
                    table="session",
                    key="id",
                    changed="time_updated",
                ),
            ),
        ),
        AcpAgentConfig(
            name="codex",
            command=("codex-acp",),
            install_hint="npm install -g @agentclientprotocol/codex-acp",
            env=(*_OPENAI, "CODEX_API_KEY"),
            key_variables=("OPENAI_API_KEY", "CODEX_API_KEY"),
            login_files=(".codex/auth.json", ".codex/config.toml"),
            auth={"CODEX_API_KEY": "api-key", "OPENAI_API_KEY": "api-key"},
            # In `agent` mode it runs commands in the folder without asking.
            modes=_mode_names("read-only", "read-only"),
            min_node_version=MIN_NODE_VERSION,
            session_folders=tuple(
                f".codex/{each}"
                for each in ("sessions", "archived_sessions", "shell_snapshots", "log")
            ),
            # An index with the first message of each, and newer releases keep the items of sessions
            # in a database instead of files.
            session_tables=(
                SessionTable(
                    files=".codex/state_*.sqlite",
                    table="threads",
                    key="id",
                    changed="updated_at",
                    units=1,
                ),
                SessionTable(
                    files=".codex/thread_history_*.sqlite",
                    table="thread_items",
                    key="thread_id",
                    changed="created_at_ms",
                ),
            ),
        ),
        AcpAgentConfig(
            name="qwen",
            command=("qwen", "--acp"),
            install_hint="npm install -g @qwen-code/qwen-code",
            env=(*_OPENAI, "OPENAI_MODEL", "DASHSCOPE_API_KEY"),
            key_variables=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
            login_files=(".qwen/oauth_creds.json", ".qwen/settings.json"),
            # It starts in `auto`, where it decides what to ask about.
            modes=_mode_names("plan", "default"),
            min_node_version=MIN_NODE_VERSION,
            model_env="OPENAI_MODEL",
            session_folders=(".qwen/projects", ".qwen/tmp", ".qwen/debug", ".qwen/todos"),
        ),
        AcpAgentConfig(
            name="gemini",
            command=("gemini", "--acp"),
            install_hint="npm install -g @google/gemini-cli",
            # It starts no MCP servers in an untrusted folder; but trusting the folder also enables
            # its settings, so owners decide with GEMINI_CLI_TRUST_WORKSPACE.
            env=(
                "GEMINI_API_KEY",
                "GOOGLE_GEMINI_BASE_URL",
                "GEMINI_MODEL",
                "GEMINI_CLI_TRUST_WORKSPACE",
            ),
            key_variables=("GEMINI_API_KEY",),
            login_files=(".gemini/oauth_creds.json",),
            auth={"GEMINI_API_KEY": "gemini-api-key"},
            modes=_mode_names("plan", "default"),
            resume=ResumeSupport.NONE,
            min_node_version=MIN_NODE_VERSION,
            model_env="GEMINI_MODEL",
            session_folders=(".gemini/tmp", ".gemini/history"),
            command_in_title=True,
        ),
        AcpAgentConfig(
            name="codebuddy",
            command=("codebuddy", "--acp"),
            install_hint="backend.get.codebuddy",
            env=("CODEBUDDY_API_KEY", "CODEBUDDY_BASE_URL", *_OPENAI),
            # By default, MCP tools are only found if the model searches for them.
            fixed_env={"CODEBUDDY_DEFER_TOOL_LOADING": "false"},
            key_variables=("CODEBUDDY_API_KEY",),
            login_files=(".codebuddy/credentials.json",),
            modes=_mode_names("plan", "default"),
            min_node_version=MIN_NODE_VERSION,
            session_folders=tuple(
                f".codebuddy/{each}" for each in ("projects", "todos", "shell-snapshots", "debug")
            ),
        ),
        AcpAgentConfig(
            name="iflow",
            command=("iflow", "--experimental-acp"),
            install_hint="backend.get.iflow",
            env=("IFLOW_API_KEY", "IFLOW_BASE_URL"),
            key_variables=("IFLOW_API_KEY",),
            login_files=(".iflow/oauth_creds.json", ".iflow/settings.json"),
            modes=_mode_names("plan", "default"),
            resume=ResumeSupport.LOAD,
            min_node_version=MIN_NODE_VERSION,
            limitation="backend.cli_untried",
            session_folders=(".iflow/projects", ".iflow/tmp", ".iflow/log"),
        ),
    )
}


log = logging.getLogger(__name__)

AGENTS_FILE = "agents.yaml"
RESERVED = frozenset({"anthropic", "openai", "offline", "acp", "auto", "claude", "default"})
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_MAX_FILE_CHARACTERS = 250_000


def _check_inside_home(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError("must be a path within its home")
    return path


ShortText = Annotated[str, StringConstraints(min_length=1, max_length=500)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
HomePath = Annotated[
    str, StringConstraints(min_length=1, max_length=200), AfterValidator(_check_inside_home)
]
AbsoluteFolder = Annotated[str, StringConstraints(pattern=r"^/[^:]*$")]


class _AgentEntry(BaseModel):
    """An entry of `agents.yaml`; entries of built-in CLIs contain only changes."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    command: list[ShortText] = Field(default_factory=list, max_length=50)
    get: str = ""
    env: list[VariableName] = Field(default_factory=list)
    given: dict[VariableName, str] = Field(default_factory=dict, alias="set")
    keys: list[VariableName] = Field(default_factory=list)
    logins: list[HomePath] = Field(default_factory=list)
    auth: dict[VariableName, ShortText] = Field(default_factory=dict)
    modes: dict[WorkerMode, ShortText] = Field(default_factory=dict)
    resume: ResumeSupport | None = None
    node: int | None = Field(default=None, ge=0, le=99)
    files: dict[HomePath, str] = Field(default_factory=dict)
    model_env: str = ""
    path: list[AbsoluteFolder] = Field(default_factory=list)
    titled: bool | None = None
    sessions: list[HomePath] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpAgentSet:
    """All configured CLIs by name; `errors` describe invalid entries, which are skipped."""

    by_name: Mapping[str, AcpAgentConfig] = field(default_factory=lambda: BUILT_IN_AGENTS)
    errors: tuple[str, ...] = ()


class AcpAgentsFile:
    """Reads the file again whenever it has changed."""

    def __init__(self, home: Path) -> None:
        self._path = home / AGENTS_FILE
        self._last_stamp: tuple[int, int] | None = None
        self._agents = AcpAgentSet()

    def current(self) -> AcpAgentSet:
        seen = self._stamp()
        if seen != self._last_stamp:
            self._last_stamp = seen
            self._agents = read_agents(self._path) if seen else AcpAgentSet()
            for fault in self._agents.errors:
                log.warning("%s; skipped", fault)
        return self._agents

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def read_agents(path: Path) -> AcpAgentSet:
    """Return the built-in CLIs with the file's changes and additions."""
    loaded, faults = _load_yaml(path)
    folders = [str(each) for each in _search_path(loaded.pop("path", None), path, faults)]
    entries = loaded.pop("agents", None) or {}
    faults += [f"{path.name}: there is no {key!r} here; it takes path and agents" for key in loaded]
    if not isinstance(entries, dict):
        faults.append(f"{path.name}: agents must hold entries by name")
        entries = {}
    found = dict(BUILT_IN_AGENTS)
    for name, entry in entries.items():
        agent = _parse_agent(str(name), entry, found.get(str(name)), f"{path.name}: {name}", faults)
        if agent is not None:
            found[agent.name] = agent
    shared = tuple(folders)
    found = {name: replace(agent, path=(*agent.path, *shared)) for name, agent in found.items()}
    return AcpAgentSet(by_name=found, errors=tuple(faults))


def _load_yaml(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        with path.open(encoding="utf-8") as file:
            loaded = yaml.safe_load(file.read(_MAX_FILE_CHARACTERS))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        return {}, [f"{path.name}: cannot be read as YAML{where}"]
    if loaded is None:
        return {}, []
    if not isinstance(loaded, dict):
        return {}, [f"{path.name}: must hold path and agents"]
    return {str(key): value for key, value in loaded.items()}, []


def _search_path(value: object, path: Path, faults: list[str]) -> list[object]:
    if value is None:
        return []
    if isinstance(value, list) and all(str(each).startswith("/") for each in value):
        return value
    faults.append(f"{path.name}: path must be a list of absolute folders")
    return []


def _parse_agent(
    name: str, entry: object, known: AcpAgentConfig | None, where: str, faults: list[str]
) -> AcpAgentConfig | None:
    if not _NAME.fullmatch(name) or name in RESERVED:
        taken = "is taken" if name in RESERVED else "must be lower-case letters, digits and hyphens"
        faults.append(f"{where}: the name {taken}")
        return None
    try:
        parsed = _AgentEntry.model_validate(entry or {})
    except ValidationError as error:
        faults += [f"{where}: {_describe_error(dict(each))}" for each in error.errors()]
        return None
    if known is None and not parsed.command:
        faults.append(f"{where}: command is missing: the program and its arguments, as a list")
        return None
    return _merge_agent(known or AcpAgentConfig(name=name, command=(), install_hint=""), parsed)


def _merge_agent(known: AcpAgentConfig, parsed: _AgentEntry) -> AcpAgentConfig:
    return replace(
        known,
        command=tuple(parsed.command) or known.command,
        install_hint=parsed.get or known.install_hint,
        env=tuple(dict.fromkeys((*known.env, *parsed.env))),
        fixed_env={**known.fixed_env, **parsed.given},
        key_variables=tuple(parsed.keys) or known.key_variables,
        login_files=tuple(parsed.logins) or known.login_files,
        auth=parsed.auth or known.auth,
        modes={**known.modes, **parsed.modes},
        resume=parsed.resume or known.resume,
        min_node_version=known.min_node_version if parsed.node is None else parsed.node,
        files={**known.files, **parsed.files},
        model_env=parsed.model_env or known.model_env,
        path=tuple(parsed.path),
        session_folders=tuple(parsed.sessions) or known.session_folders,
        command_in_title=known.command_in_title if parsed.titled is None else parsed.titled,
    )


def _describe_error(error: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no {place!r} here; it takes {', '.join(_entry_fields())}"
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _entry_fields() -> list[str]:
    return [field.alias or name for name, field in _AgentEntry.model_fields.items()]
