"""Loads personas from files and combines them with the built-in ones."""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from bot.config.step_limits import StepSeconds, StepTokens, StepTurns
from bot.engine.llm.backend import LimitOverrides, McpServer, WorkerMode
from bot.engine.workers.mcp_config import HeaderName, HeaderValue
from bot.engine.workers.personas import BUILT_IN_PERSONAS, PRAGMATIST_PERSONA, TRAITS, Persona
from storage.records.people import Language
from storage.records.workers import PersonaFileProblem, PersonaInfo, PersonaList

SUFFIXES = {".md", ".yaml", ".yml"}
MAX_FILE_BYTES = 64 * 1024
RESERVED_NAMES = {"auto", "list", "show", "default"}

_NAME = re.compile(r"[^\W_][\w-]{0,31}")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:(?<=\n)---[ \t]*(?:\r?\n|\Z))", re.DOTALL)
_MAX_DETAIL_CHARS = 200


class InvalidPersonaFile(ValueError):
    """The file is unusable; `reason` is a text key under `persona.fault`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = " ".join(detail.split())[:_MAX_DETAIL_CHARS]
        super().__init__(f"{reason}: {self.detail}".rstrip(": "))


def load_persona(path: Path, built_in: Mapping[str, Persona]) -> Persona:
    """Load a persona from a file; missing keys come from the built-in one of the same name.

    Blocking. Raises InvalidPersonaFile."""
    values = _parse_file(path)
    name = str(values.pop("name", "") or path.stem).strip().casefold()
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise InvalidPersonaFile("name", name)
    try:
        form = _PersonaForm.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidPersonaFile("value", f"{where}: {first['msg']}".lstrip(": ")) from None
    base = built_in.get(name) or Persona(name=name, title={})
    if not (form.prompt or form.traits or name in built_in):
        raise InvalidPersonaFile("empty")
    return replace(base, source=path.name, **form.changes())


def _parse_file(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    if path.suffix.lower() != ".md":
        return _parse_yaml(text)
    text = text.removeprefix("\ufeff")
    front = _FRONT_MATTER.match(text)
    values = _parse_yaml(front[1]) if front else {}
    if "prompt" in values:
        raise InvalidPersonaFile("value", "prompt: in a Markdown file it is the text below")
    body = text[front.end() :] if front else text
    return {**values, "prompt": body.strip()} if body.strip() else values


def _read_text(path: Path) -> str:
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            raise InvalidPersonaFile("unreadable", "it is no ordinary file")
        if seen.st_size > MAX_FILE_BYTES:
            raise InvalidPersonaFile("large")
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8")
    except OSError as error:
        raise InvalidPersonaFile("unreadable", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InvalidPersonaFile("text") from error


def _parse_yaml(text: str) -> dict[str, Any]:
    try:
        # BaseLoader keeps values as strings (`no` is a word) and creates no objects.
        value = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader creates strings only
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else ""
        raise InvalidPersonaFile("yaml", line) from error
    if value is None or value == "":
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidPersonaFile("yaml", "key: value lines are expected")
    return value


def _split_words(value: Any) -> Any:
    """Accept `read, list grep` as a list."""
    if not isinstance(value, str):
        return value
    return [word for word in re.split(r"[\s,]+", value) if word]


def _split_command(value: Any) -> Any:
    """Split a command line like a shell. Raises ValueError for unbalanced quotes."""
    return shlex.split(value) if isinstance(value, str) else value


def _for_every_language(value: Any) -> Any:
    """Use a single text for all languages."""
    return {str(each): value for each in Language} if isinstance(value, str) else value


NameGlob = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128, pattern=r"^\S+$")
]
NameGlobs = Annotated[tuple[NameGlob, ...], BeforeValidator(_split_words), Field(max_length=64)]
ShortLine = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
LocalizedLine: TypeAlias = Annotated[
    dict[Language, ShortLine], BeforeValidator(_for_every_language)
]
ShortWord = Annotated[str, StringConstraints(strip_whitespace=True, max_length=128)]


class _McpServerForm(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)

    command: Annotated[tuple[str, ...], BeforeValidator(_split_command)] = ()
    url: Annotated[str, StringConstraints(pattern=r"^(https?://\S+)?$")] = ""
    env: dict[str, str] = Field(default_factory=dict)
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_transport(self) -> _McpServerForm:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        if (self.headers and not self.url) or (self.env and not self.command):
            raise ValueError("env goes with a command, headers go with a url")
        return self


ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$")]


class _LimitsForm(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)

    turns: StepTurns | None = None
    tokens: StepTokens | None = None
    seconds: StepSeconds | None = None


class _PersonaForm(BaseModel):
    """The keys of a persona file besides `name`."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    title: LocalizedLine | None = None
    about: LocalizedLine | None = None
    prompt: Annotated[str, StringConstraints(max_length=20_000)] = ""
    traits: dict[str, ShortLine] | None = None
    tools: NameGlobs | None = None
    denied: NameGlobs | None = None
    skills: NameGlobs | None = None
    servers: dict[ServerName, _McpServerForm] | None = Field(default=None, max_length=8)
    backend: ShortWord | None = None
    model: ShortWord | None = None
    fallbacks: Annotated[tuple[ShortWord, ...], Field(max_length=8)] = ()
    mode: WorkerMode | None = None
    limits: _LimitsForm = Field(default_factory=_LimitsForm)

    @model_validator(mode="after")
    def _check_traits(self) -> _PersonaForm:
        if unknown := sorted(set(self.traits or ()) - set(TRAITS)):
            raise ValueError(f"unknown trait {unknown[0]!r}; known are {', '.join(TRAITS)}")
        return self

    def changes(self) -> dict[str, Any]:
        """Return only the keys that the file contains."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for values in ("title", "about"):
            if values in given:
                given[values] = {str(language): text for language, text in given[values].items()}
        if self.servers is not None:
            given["servers"] = tuple(
                McpServer(
                    name=name,
                    command=each.command,
                    url=each.url,
                    env=each.env,
                    headers=each.headers,
                )
                for name, each in self.servers.items()
            )
        if "limits" in given:
            given["limits"] = LimitOverrides(**self.limits.model_dump())
        return given


log = logging.getLogger(__name__)

PERSONAS_FOLDER = "personas"
MAX_FILES = 100

FolderFingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, time, size and inode of each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedFolder:
    """The last loaded state of the folder."""

    fingerprint: FolderFingerprint
    personas: Mapping[str, Persona]
    errors: tuple[PersonaFileProblem, ...] = ()


class PersonaLibrary:
    """Satisfies `agent.worker_context.PersonaSource` and `handlers.ports.PersonaPort`.

    Changed files are reloaded on access; invalid ones are skipped, reported and logged once."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / PERSONAS_FOLDER
        self._loaded = _LoadedFolder(fingerprint=(), personas=BUILT_IN_PERSONAS)

    async def get(self, name: str) -> Persona:
        return (await self._load()).personas.get(name.strip().casefold(), PRAGMATIST_PERSONA)

    async def get_all(self) -> Mapping[str, Persona]:
        return (await self._load()).personas

    async def roster(self) -> PersonaList:
        read = await self._load()
        return PersonaList(
            personas=tuple(map(_portrait, read.personas.values())), errors=read.errors
        )

    async def _load(self) -> _LoadedFolder:
        now = await asyncio.to_thread(self._reload_if_changed, self._loaded)
        if now is not self._loaded:
            for fault in set(now.errors) - set(self._loaded.errors):
                log.warning(
                    "persona %s is skipped: %s %s", fault.file, fault.reason_key, fault.detail
                )
            self._loaded = now
        return now

    def _reload_if_changed(self, last: _LoadedFolder) -> _LoadedFolder:
        paths = _list_files(self._folder)
        now = tuple(map(_file_stamp, paths))
        if now == last.fingerprint:
            return last
        found: dict[str, Persona] = {}
        faults: list[PersonaFileProblem] = []
        for path in paths:
            try:
                persona = load_persona(path, BUILT_IN_PERSONAS)
            except InvalidPersonaFile as error:
                faults.append(
                    PersonaFileProblem(file=path.name, reason_key=error.reason, detail=error.detail)
                )
                continue
            first = found.setdefault(persona.name, persona)
            if first is not persona:
                faults.append(
                    PersonaFileProblem(file=path.name, reason_key="twice", detail=first.source)
                )
        return _LoadedFolder(
            fingerprint=now, personas={**BUILT_IN_PERSONAS, **found}, errors=tuple(faults)
        )


def _list_files(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return []
    names = [path for path in inside if path.suffix.lower() in SUFFIXES]
    return [path for path in names if not path.name.startswith(".")][:MAX_FILES]


def _file_stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        seen = path.stat()
    except OSError:
        return path.name, 0, 0, 0
    return path.name, seen.st_mtime_ns, seen.st_size, seen.st_ino


def _portrait(persona: Persona) -> PersonaInfo:
    return PersonaInfo(
        name=persona.name,
        titles=persona.title,
        descriptions=persona.about,
        prompt=persona.prompt,
        traits=persona.traits,
        tools=persona.tools,
        denied=persona.denied,
        skills=persona.skills,
        servers=tuple(server.name for server in persona.servers),
        backend=persona.backend,
        model=persona.model,
        mode=str(persona.mode or ""),
        source=persona.source,
    )
