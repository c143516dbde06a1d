"""Reads MCP servers for all workers from the usual `mcpServers` file."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from bot.engine.llm.backend import McpServer

log = logging.getLogger(__name__)

MCP_FILE = "mcp.json"
MAX_SERVERS = 16
MAX_FILE_BYTES = 64 * 1024
_MAX_DETAIL_CHARS = 200
_INVALID_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9-]+")
_HTTP_TYPES = {"http", "streamable-http", "streamableHttp"}

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
OAuthScope = Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,200}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{0,4096}$")]
_NoNul = Annotated[str, StringConstraints(pattern=r"^[^\x00]{0,4096}$")]


class InvalidMcpConfig(ValueError):
    """The file is unusable; the message says why."""


def _split_words(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


class OAuthClientForm(BaseModel):
    """A client registered by hand at the server's sign-in, and rights to ask for. Other programs
    may name neither."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    clientId: HeaderValue = ""  # noqa: N815 - the file's own keys
    clientSecret: HeaderValue = ""  # noqa: N815
    scopes: Annotated[list[OAuthScope], BeforeValidator(_split_words), Field(max_length=50)] = (
        Field(default_factory=list)
    )

    def as_mapping(self) -> dict[str, str]:
        """As `McpServer.oauth`."""
        given = {
            "client_id": self.clientId,
            "client_secret": self.clientSecret if self.clientId else "",
            "scope": " ".join(self.scopes),
        }
        return {name: value for name, value in given.items() if value}


class _ServerForm(BaseModel):
    """A server as other programs write it; keys that only they know are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    type: Literal["stdio", "http", "streamable-http", "streamableHttp"] | None = None
    command: _NoNul = ""
    args: Annotated[list[_NoNul], Field(max_length=100)] = Field(default_factory=list)
    env: dict[_NoNul, _NoNul] = Field(default_factory=dict)
    url: Annotated[str, StringConstraints(pattern=r"^(https?://\S+)?$")] = ""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    oauth: OAuthClientForm | None = None
    disabled: bool = False

    @model_validator(mode="after")
    def _check_transport(self) -> _ServerForm:
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        if self.type is not None and (self.type in _HTTP_TYPES) != bool(self.url):
            raise ValueError(f"type {self.type!r} does not fit")
        return self


def _check_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError('{"mcpServers": {…}} is expected')  # noqa: TRY004 - pydantic wants it
    return value


class _FileForm(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)

    mcpServers: Annotated[  # noqa: N815 - the file's own key
        dict[str, _ServerForm], BeforeValidator(_check_object), Field(max_length=MAX_SERVERS)
    ]


def read_mcp_config(path: Path) -> tuple[McpServer, ...]:
    """Return the file's servers; none if there is no file. Blocking. Raises InvalidMcpConfig."""
    text = read_mcp_file(path)
    return () if text is None else parse_mcp_config(text)


def parse_mcp_config(text: str) -> tuple[McpServer, ...]:
    """Raises InvalidMcpConfig."""
    try:
        form = _FileForm.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(each)[:40] for each in first["loc"])
        raise InvalidMcpConfig(f"{where}: {first['msg']}"[:_MAX_DETAIL_CHARS]) from None
    except json.JSONDecodeError as error:
        raise InvalidMcpConfig(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise InvalidMcpConfig("it is no JSON") from None
    servers: dict[str, McpServer] = {}
    for written, each in form.mcpServers.items():
        name = _INVALID_NAME_CHARACTERS.sub("-", written).strip("-")[:32]
        if not name or name in servers:
            raise InvalidMcpConfig(f"{written[:40]!r} is no name of its own")
        if not each.disabled:
            servers[name] = McpServer(
                name=name,
                command=(each.command, *each.args) if each.command else (),
                url=each.url,
                env=each.env if each.command else {},
                headers=each.headers if each.url else {},
                oauth=each.oauth.as_mapping() if each.oauth and each.url else {},
            )
    return tuple(servers.values())


_OF_THE_APP = re.compile(r"\blark-mcp\b|\b(?:SHIFTBOSS_)?FEISHU_APP_", re.IGNORECASE)


def acts_as_app(server: McpServer) -> bool:
    """Return True if the server acts with the rights of Shiftboss's app: Feishu's own server, or
    one that is given the app's credentials."""
    return any(
        _OF_THE_APP.search(text)
        for text in (*server.command, server.url, *server.env.values(), *server.headers.values())
    )


def read_mcp_file(path: Path, *, follow_links: bool = True) -> str | None:
    """Return the text of the file; None if there is none. Blocking. Raises InvalidMcpConfig."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(path, flags | (0 if follow_links else os.O_NOFOLLOW))
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidMcpConfig("it is no ordinary file")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidMcpConfig(f"it is larger than {MAX_FILE_BYTES // 1024} KB")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidMcpConfig("it is a link") from error
        raise InvalidMcpConfig(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidMcpConfig("it is no UTF-8 text") from None


class McpConfigFile:
    """The servers in the data directory's file, read again when it changes. While it is invalid,
    none of its servers is used."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / MCP_FILE
        self._stamp: tuple[int, int, int] | None = None
        self._servers: tuple[McpServer, ...] = ()
        self._fault = ""

    async def list_servers(self) -> Sequence[McpServer]:
        await asyncio.to_thread(self._reload_if_changed)
        return self._servers

    async def list_faults(self) -> Sequence[str]:
        await asyncio.to_thread(self._reload_if_changed)
        return (self._fault,) if self._fault else ()

    def _reload_if_changed(self) -> None:
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        try:
            self._servers, self._fault = read_mcp_config(self._path), ""
        except InvalidMcpConfig as error:
            self._servers, self._fault = (), f"{MCP_FILE}: {error}"
            log.warning("%s; none of its servers is used", self._fault)
        self._stamp = stamp

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            seen = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return seen.st_mtime_ns, seen.st_size, seen.st_ino
