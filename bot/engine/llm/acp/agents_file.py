"""Coding CLIs by config: `agents.yaml` in the home directory, read where it is used."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

from bot.engine.llm.acp.table import BUILT_IN, Agent, Resume
from bot.engine.llm.base import Mode

log = logging.getLogger(__name__)

AGENTS_FILE = "agents.yaml"
RESERVED = frozenset({"anthropic", "openai", "offline", "acp", "auto", "claude", "default"})
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_MOST = 250_000


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError("must be a path within its home")
    return path


Word = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
Inside = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_inside)]
Folder = Annotated[str, StringConstraints(pattern=r"^/[^:]*$")]


class _Entry(BaseModel):
    """One CLI as people write it; of one that is built in only what is to be different."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    command: list[Word] = Field(default_factory=list, max_length=50)
    get: str = ""
    env: list[Variable] = Field(default_factory=list)
    given: dict[Variable, str] = Field(default_factory=dict, alias="set")
    keys: list[Variable] = Field(default_factory=list)
    logins: list[Inside] = Field(default_factory=list)
    auth: dict[Variable, Word] = Field(default_factory=dict)
    modes: dict[Mode, Word] = Field(default_factory=dict)
    resume: Resume | None = None
    node: int | None = Field(default=None, ge=0, le=99)
    files: dict[Inside, str] = Field(default_factory=dict)
    model_env: str = ""
    path: list[Folder] = Field(default_factory=list)
    titled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """All CLIs by name, and what is wrong with the file: such entries are left out."""

    of: Mapping[str, Agent] = field(default_factory=lambda: BUILT_IN)
    faults: tuple[str, ...] = ()


class AgentsFile:
    """Looked at on each use and read when it has changed: one small local file."""

    def __init__(self, home: Path) -> None:
        self._path = home / AGENTS_FILE
        self._seen: tuple[int, int] | None = None
        self._read = Agents()

    def now(self) -> Agents:
        seen = self._stamp()
        if seen != self._seen:
            self._seen = seen
            self._read = read_agents(self._path) if seen else Agents()
            for fault in self._read.faults:
                log.warning("%s; it is left out", fault)
        return self._read

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def read_agents(path: Path) -> Agents:
    """The built-in ones, changed and added to by the file."""
    loaded, faults = _loaded(path)
    folders = [str(each) for each in _list(loaded.pop("path", None), path, faults)]
    entries = loaded.pop("agents", None) or {}
    faults += [f"{path.name}: there is no {key!r} here; it takes path and agents" for key in loaded]
    if not isinstance(entries, dict):
        faults.append(f"{path.name}: agents must hold entries by name")
        entries = {}
    found = dict(BUILT_IN)
    for name, entry in entries.items():
        agent = _agent(str(name), entry, found.get(str(name)), f"{path.name}: {name}", faults)
        if agent is not None:
            found[agent.name] = agent
    shared = tuple(folders)
    found = {name: replace(agent, path=(*agent.path, *shared)) for name, agent in found.items()}
    return Agents(of=found, faults=tuple(faults))


def _loaded(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        with path.open(encoding="utf-8") as file:
            loaded = yaml.safe_load(file.read(_MOST))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        return {}, [f"{path.name}: cannot be read as YAML{where}"]
    if loaded is None:
        return {}, []
    if not isinstance(loaded, dict):
        return {}, [f"{path.name}: must hold path and agents"]
    return {str(key): value for key, value in loaded.items()}, []


def _list(value: object, path: Path, faults: list[str]) -> list[object]:
    if value is None:
        return []
    if isinstance(value, list) and all(str(each).startswith("/") for each in value):
        return value
    faults.append(f"{path.name}: path must be a list of absolute folders")
    return []


def _agent(
    name: str, entry: object, known: Agent | None, where: str, faults: list[str]
) -> Agent | None:
    if not _NAME.fullmatch(name) or name in RESERVED:
        taken = "is taken" if name in RESERVED else "must be lower-case letters, digits and hyphens"
        faults.append(f"{where}: the name {taken}")
        return None
    try:
        parsed = _Entry.model_validate(entry or {})
    except ValidationError as error:
        faults += [f"{where}: {_fault(dict(each))}" for each in error.errors()]
        return None
    if known is None and not parsed.command:
        faults.append(f"{where}: command is missing: the program and its arguments, as a list")
        return None
    return _merged(known or Agent(name=name, command=(), get=""), parsed)


def _merged(known: Agent, parsed: _Entry) -> Agent:
    return replace(
        known,
        command=tuple(parsed.command) or known.command,
        get=parsed.get or known.get,
        env=tuple(dict.fromkeys((*known.env, *parsed.env))),
        given={**known.given, **parsed.given},
        keys=tuple(parsed.keys) or known.keys,
        logins=tuple(parsed.logins) or known.logins,
        auth=parsed.auth or known.auth,
        modes={**known.modes, **parsed.modes},
        resume=parsed.resume or known.resume,
        node=known.node if parsed.node is None else parsed.node,
        files={**known.files, **parsed.files},
        model_env=parsed.model_env or known.model_env,
        path=tuple(parsed.path),
        titled=known.titled if parsed.titled is None else parsed.titled,
    )


def _fault(error: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"there is no {place!r} here; it takes {', '.join(_fields())}"
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _fields() -> list[str]:
    return [field.alias or name for name, field in _Entry.model_fields.items()]
