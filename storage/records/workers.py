"""Defines worker contexts, personas, sessions and sub-agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.records.people import ChatId, PersonId
from storage.records.tasks import SubagentStatus, TaskId


class ContextPartState(StrEnum):
    """LOADED whole; CUT to its head and tail; MISSING; WITHHELD from this chat; NO_ROOM after the
    parts before it; UNUSABLE: no readable text."""

    LOADED = "loaded"
    CUT = "cut"
    MISSING = "missing"
    WITHHELD = "kept_back"
    NO_ROOM = "crowded"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPart:
    """One file or block. `size` is in characters, or in bytes if it was not read whole;
    `used_characters` reach the worker."""

    name: str
    state: ContextPartState
    size: int = 0
    used_characters: int = 0


DEFAULT_PERSONA = "pragmatist"
"""The persona if none is chosen, also for `auto` and unknown names."""

NO_PERSONA = "none"
"""A worker without a persona's instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaInfo:
    """`name` is what they type; `titles` and `descriptions` are by language. `mode` is empty if it
    may do everything a worker may. `servers` are the names of its MCP servers; `source` is its
    file, empty for built-in ones."""

    name: str
    titles: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    backend: str = ""
    model: str = ""
    mode: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaFileProblem:
    """An unusable persona file. `reason_key` is a catalogue key under `persona.fault`; `detail` is
    a key's name or the parser's message."""

    file: str
    reason_key: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaList:
    """All personas, built-in ones first, and unusable files."""

    personas: tuple[PersonaInfo, ...]
    errors: tuple[PersonaFileProblem, ...] = ()

    def find(self, name: str) -> PersonaInfo | None:
        """Find by name or by title in any language, or None."""
        wanted = name.strip().casefold()
        for each in self.personas:
            if wanted == each.name or wanted in {t.casefold() for t in each.titles.values()}:
                return each
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """`key` identifies the owner: `chat:…`, `task:…`, `helper:…`. `message_count` counts transcript
    rows; `is_open` says it may still continue."""

    id: str
    key: str
    backend: str
    model: str
    persona: str
    turns: int
    message_count: int
    started_at: datetime
    last_used_at: datetime
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptRow:
    """One row of a transcript in the backend's format."""

    seq: int
    at: datetime
    content: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubagent:
    """`source` is the call that requests it. `turn` is the user's message whose answer makes that
    call, empty outside chats. `path` is its parent's step or sub-agent; `depth` counts from 1.
    `keep` retains its conversation after the result is delivered."""

    source: str
    parent_session: str
    task_id: TaskId | None
    path: str
    chat_id: ChatId
    person_id: PersonId
    depth: int
    label: str
    prompt: str
    persona: str
    keep: bool
    turn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent(NewSubagent):
    """`result` is the complete result, or the reason for the failure."""

    id: str
    session_id: str
    status: SubagentStatus
    result: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    delivered_at: datetime | None


class McpServerState(StrEnum):
    """STOPPED: it starts at its next use. FAILED: it did not start, or died."""

    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerStatus:
    """An MCP server as it was used last for a person in a chat or task. `tools` are the server's
    own names for them, `error` its last failure; both are untrusted text."""

    server: str
    state: McpServerState
    persona: str = ""
    person_id: PersonId | None = None
    chat_id: ChatId | None = None
    task_id: TaskId | None = None
    tools: tuple[str, ...] = ()
    error: str = ""
    restarts: int = 0


class SignOut(StrEnum):
    """The result of a sign-out from an MCP server: there was nothing, it is deleted here, or it is
    withdrawn at the server's side, too."""

    WAS_OUT = "was_out"
    OUT = "out"
    REVOKED = "revoked"


class SignInFailed(Exception):
    """A sign-in to an MCP server failed; the message is for people and partly the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpConsent:
    """An owner's decision about the servers that a project's file names. `id` is that of the
    approval."""

    id: str
    project: str
    servers: tuple[str, ...]
    is_allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSession:
    """One conversation with a backend.

    `key` identifies its owner (`chat:…`, `task:…`, `helper:…`); `tokens` is the size of the context
    at its last turn. `external_id` is a coding CLI's id for it, in the home of that `persona`.
    `open_turn` is the key of the request whose turn is stored in part, after `open_turn_start`
    messages; empty if the last turn is complete. That turn contains the first `open_turn_heard`
    messages of people to its task.
    """

    id: str
    key: str
    backend: str
    model: str
    turns: int
    tokens: int
    started_at: datetime
    last_used_at: datetime
    external_id: str = ""
    persona: str = ""
    open_turn: str = ""
    open_turn_start: int = 0
    open_turn_heard: int = 0
    is_open: bool = True
