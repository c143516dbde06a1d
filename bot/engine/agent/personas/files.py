"""A persona in a file of one's own: Markdown with front matter, or YAML."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import replace
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

from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.personas.traits import TRAITS
from bot.engine.llm.base import McpServer, Mode
from storage.records.people import Language

SUFFIXES = {".md", ".yaml", ".yml"}
MOST_BYTES = 64 * 1024
RESERVED = {"auto", "list", "show", "default"}

_NAME = re.compile(r"[^\W_][\w-]{0,31}")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:(?<=\n)---[ \t]*(?:\r?\n|\Z))", re.DOTALL)
_DETAIL = 200


class BadPersona(ValueError):
    """The file says nothing that can be used. `why` is a key under `persona.fault`."""

    def __init__(self, why: str, detail: str = "") -> None:
        self.why = why
        self.detail = " ".join(detail.split())[:_DETAIL]
        super().__init__(f"{why}: {self.detail}".rstrip(": "))


def persona_in(path: Path, built_in: Mapping[str, Persona]) -> Persona:
    """The persona that a file describes; what it leaves unsaid is as in the one built in under
    its name. Blocking. Raises BadPersona."""
    told = _told(path)
    name = str(told.pop("name", "") or path.stem).strip().casefold()
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise BadPersona("name", name)
    try:
        form = _Form.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadPersona("value", f"{where}: {first['msg']}".lstrip(": ")) from None
    base = built_in.get(name) or Persona(name=name, title={})
    if not (form.prompt or form.traits or name in built_in):
        raise BadPersona("empty")
    return replace(base, source=path.name, **form.changes())


def _told(path: Path) -> dict[str, Any]:
    text = _text(path)
    if path.suffix.lower() != ".md":
        return _mapping(text)
    text = text.removeprefix("\ufeff")
    front = _FRONT.match(text)
    told = _mapping(front[1]) if front else {}
    if "prompt" in told:
        raise BadPersona("value", "prompt: in a Markdown file it is the text below")
    body = text[front.end() :] if front else text
    return {**told, "prompt": body.strip()} if body.strip() else told


def _text(path: Path) -> str:
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            raise BadPersona("unreadable", "it is no ordinary file")
        if seen.st_size > MOST_BYTES:
            raise BadPersona("large")
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8")
    except OSError as error:
        raise BadPersona("unreadable", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise BadPersona("text") from error


def _mapping(text: str) -> dict[str, Any]:
    try:
        # All values as they are written: `no` is a word, and no object is ever made of one.
        value = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes strings only
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else ""
        raise BadPersona("yaml", line) from error
    if value is None or value == "":
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadPersona("yaml", "key: value lines are expected")
    return value


def _several(value: Any) -> Any:
    """`read, list grep` is a list too."""
    if not isinstance(value, str):
        return value
    return [word for word in re.split(r"[\s,]+", value) if word]


def _argv(value: Any) -> Any:
    """A command line as a shell reads it; ValueError where a quote is left open."""
    return shlex.split(value) if isinstance(value, str) else value


def _told_by_language(value: Any) -> Any:
    """One text for all, where it is not by language."""
    return {str(each): value for each in Language} if isinstance(value, str) else value


Glob = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128, pattern=r"^\S+$")
]
Globs = Annotated[tuple[Glob, ...], BeforeValidator(_several), Field(max_length=64)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Told: TypeAlias = Annotated[dict[Language, Line], BeforeValidator(_told_by_language)]
Word = Annotated[str, StringConstraints(strip_whitespace=True, max_length=128)]


HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{0,4096}$")]


class _Server(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)

    command: Annotated[tuple[str, ...], BeforeValidator(_argv)] = ()
    url: Annotated[str, StringConstraints(pattern=r"^(https?://\S+)?$")] = ""
    env: dict[str, str] = Field(default_factory=dict)
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_somewhere(self) -> _Server:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        if (self.headers and not self.url) or (self.env and not self.command):
            raise ValueError("env goes with a command, headers go with a url")
        return self


ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$")]


class _Form(BaseModel):
    """The keys that a file may have beside `name`."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    title: Told | None = None
    about: Told | None = None
    prompt: Annotated[str, StringConstraints(max_length=20_000)] = ""
    traits: dict[str, Line] | None = None
    tools: Globs | None = None
    denied: Globs | None = None
    skills: Globs | None = None
    servers: dict[ServerName, _Server] | None = Field(default=None, max_length=8)
    backend: Word | None = None
    model: Word | None = None
    mode: Mode | None = None

    @model_validator(mode="after")
    def _knows_its_traits(self) -> _Form:
        if unknown := sorted(set(self.traits or ()) - set(TRAITS)):
            raise ValueError(f"unknown trait {unknown[0]!r}; known are {', '.join(TRAITS)}")
        return self

    def changes(self) -> dict[str, Any]:
        """What the file says; what it does not is left out."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for told in ("title", "about"):
            if told in given:
                given[told] = {str(language): text for language, text in given[told].items()}
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
        return given
