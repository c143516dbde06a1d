"""One protocol for whatever does the work: a model API, a coding CLI, or nobody clever at all.

Only the types of this module leave a backend; a library's own never do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from bot.engine.llm.calls import CallKind, Permission, Permit, ToolCall
from bot.engine.llm.events import AgentEvent

ERROR = "Error: "
MAX_ANSWER = 16_000
"""Tokens of one answer; most models know no more."""


class Purpose(StrEnum):
    """Why a model is called; usage is counted by it."""

    PLAN = "plan"
    STEP = "step"
    CHAT = "chat"
    INTENT = "intent"
    HELPER = "helper"
    LOOK = "look"
    COMPACT = "compact"
    MEMORY = "memory"


class Mode(StrEnum):
    """How much a worker may do: PLAN and REVIEW look and change nothing."""

    PLAN = "plan"
    EXECUTE = "execute"
    REVIEW = "review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image for the model, by absolute path."""

    path: Path
    mime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something the model may do. `schema` is the JSON schema of its arguments; `run` gets them
    checked against it, and returns text for the model. A text that begins with ERROR says that
    it failed and why; raising is for what is broken, not for what the model got wrong. `detail`
    says what a person would decide about (see `ToolCall.detail`)."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: ToolRun
    kind: CallKind = CallKind.OTHER
    detail: Callable[[Mapping[str, Any]], Awaitable[str]] | None = None


class ToolRun(Protocol):
    async def __call__(self, arguments: Mapping[str, Any]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server: a command over stdio with its `env`, or a URL with its `headers`, either of
    which may hold secrets. `secrets` are values in them that nobody may be shown; `places` is what
    must be seen where it is started, besides what it is known to need."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    places: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a run ends by itself. `output_tokens` are those of all turns together; `seconds` is
    wall time."""

    turns: int = 20
    output_tokens: int = 32_000
    seconds: float = 600.0


class Gate(Protocol):
    """Asked before every single call of a model. `input_tokens` is how much the call will read,
    estimated from above; the answer is how many tokens it may write. Raises BudgetReached where
    a cap would be passed: then the call is not made."""

    async def __call__(self, model: str, input_tokens: int, spent: Usage) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One thing asked of a backend.

    `history` is what `RunResult.new_history` of earlier runs of the same session returned,
    joined in order: opaque JSON values, portable between the model APIs. `result` asks for a
    validated answer of that type; without it the answer is text. `language` is what the person
    reads (`zh` or `en`). `workspace` is where files may be touched. `facts` say as data what the
    prompt says in words, for a backend that cannot read: `{"instruction", "step": {"title",
    "detail"}, "done": [{"title", "summary", "files"}]}` for a step, `{"text"}` for the other
    purposes; the model APIs ignore them. `gate` keeps the caps on money; a backend that costs
    nothing need not ask it.

    `permit` is asked before each call of a tool; without one every tool given may be used.
    `answers` decide, by call id, the calls that the last run of this session left open: such a
    run goes on where that one was suspended, and `prompt` may be empty.

    For coding CLIs: `persona` names whose home it runs in, `external_id` the session to go on
    with, and `on_external` must be awaited with a new session's id before the first paid call.
    `servers` are MCP servers it may use. `answer_tokens` is how long one answer may become.
    """

    purpose: Purpose
    prompt: str
    system: str
    model: str
    language: str
    workspace: Path | None = None
    pictures: tuple[Picture, ...] = ()
    history: Sequence[Any] = ()
    tools: tuple[Tool, ...] = ()
    result: type[BaseModel] | None = None
    limits: Limits = field(default_factory=Limits)
    facts: Mapping[str, Any] = field(default_factory=dict)
    gate: Gate | None = None
    mode: Mode = Mode.EXECUTE
    permit: Permit | None = None
    answers: Mapping[str, Permission] = field(default_factory=dict)
    persona: str = ""
    external_id: str = ""
    on_external: Callable[[str], Awaitable[None]] | None = None
    servers: tuple[McpServer, ...] = ()
    answer_tokens: int = MAX_ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one run, all its requests together. `input_tokens` includes cache reads and
    writes; `cost` is US dollars, None where no price is known. `guessed_*` are those of the tokens
    that no service reported, because an answer broke off: an estimate from above, for which
    `cost` holds nothing."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: Decimal | None = None
    guessed_input: int = 0
    guessed_output: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended well. `value` is the validated answer if one was asked for, else None;
    `new_history` is what this run adds to the session. `cut` says that the longest allowed
    ended a text answer: `text` is as far as it came. `context` is how many tokens the session
    now is long, 0 where that is not known. `suspended` are the calls that wait for a person: the
    run is not over, and `value` is None; it goes on in a later run with `RunRequest.answers`."""

    text: str
    value: BaseModel | None
    model: str
    usage: Usage
    new_history: tuple[Any, ...]
    cut: bool = False
    context: int = 0
    suspended: tuple[ToolCall, ...] = ()


class BackendError(Exception):
    """Base of what a run may raise. `hint` is a catalogue key: what the Boss can do about it,
    the class's own or a closer one. `usage` is what was spent all the same."""

    hint = "backend.failed"

    def __init__(self, message: str, *, usage: Usage | None = None, hint: str = "") -> None:
        self.usage = usage or Usage()
        if hint:
            self.hint = hint
        super().__init__(message)


class Trouble(StrEnum):
    """What keeps a service away: it is not reached or does not answer in time, we have asked too
    often, it has too much to do, or something is wrong with it."""

    AWAY = "away"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    BROKEN = "broken"


class BackendUnavailable(BackendError):
    """Overloaded, unreachable, 5xx, rate limited. `retry_after` in seconds where it says so."""

    hint = "backend.unavailable"

    def __init__(
        self,
        message: str,
        *,
        usage: Usage | None = None,
        retry_after: float | None = None,
        trouble: Trouble = Trouble.AWAY,
    ) -> None:
        self.retry_after = retry_after
        self.trouble = trouble
        super().__init__(message, usage=usage)


class BackendDenied(BackendError):
    """Wrong or missing key, no such model, no permission, no money: repeating will not help."""

    hint = "backend.denied"


class CannotWork(BackendDenied):
    """Nobody is there to ask: not installed, too old a Node.js, not logged in. Nothing was done.
    Whoever chooses again now gets who stands in, where anybody does."""


class BadAnswer(BackendError):
    """Empty, refused, or not of the asked form even after one re-ask; a form that was cut off."""

    hint = "backend.bad_answer"


class CutShort(BadAnswer):
    """What was left under a cap ended it: a `Gate` had allowed less than the longest answer. What
    was being written is lost; `new_history` is as of BudgetReached."""

    def __init__(
        self, message: str, *, usage: Usage | None = None, new_history: tuple[Any, ...] = ()
    ) -> None:
        self.new_history = new_history
        super().__init__(message, usage=usage)


class LimitReached(BackendError):
    """Turns, tokens or time ran out."""

    hint = "backend.limit"


class TooLong(LimitReached):
    """What the model was to read does not fit into it: `window` tokens, where the service says so,
    else 0. `new_history` is as of BudgetReached."""

    hint = "backend.too_long"
    new_history: tuple[Any, ...] = ()

    def __init__(self, message: str, *, usage: Usage | None = None, window: int = 0) -> None:
        self.window = window
        super().__init__(message, usage=usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapHit:
    """The cap that the next call would pass. `scope` is task, person, chat or day, `subject`
    whose (a task's or person's id, empty for the day's); amounts are what the cap allows with
    all that people granted beyond it, and what is used. `micros` are US dollars in millionths;
    a cap of 0 is none. `day` is the date the cap is for, empty for a task's; `until` when it
    opens by itself."""

    scope: str
    subject: str
    day: str
    cap_micros: int
    cap_tokens: int
    spent_micros: int
    spent_tokens: int
    until: datetime | None


class BudgetReached(BackendError):
    """The next call would pass a cap and was not made. `new_history` is what the run has added
    to the session so far: it is paid for, and the next run goes on from it."""

    hint = "backend.budget"

    def __init__(
        self, hit: CapHit, *, usage: Usage | None = None, new_history: tuple[Any, ...] = ()
    ) -> None:
        self.hit = hit
        self.new_history = new_history
        super().__init__(f"the {hit.scope}'s cap is reached", usage=usage)


class Run(Protocol):
    """A run under way. Iterate `events` to its end, then read `result`; leaving the context or
    cancelling the task really ends the call on the wire."""

    @property
    def events(self) -> AsyncIterator[AgentEvent]: ...

    @property
    def result(self) -> RunResult:
        """Valid once `events` has ended without raising."""
        ...

    @property
    def spent(self) -> Usage:
        """What it has used so far: once the context is left, also of a call that was cut off."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a backend can do. `durable`: its suspended runs outlive the process. `tools`: it uses
    the tools it is given; a coding CLI brings its own."""

    durable: bool = True
    tools: bool = True
    resume: bool = True
    money: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Empty `problem` if ready to work, else a catalogue key that says what is missing and what
    to do, with its `facts`. `version` is what it says of itself, where it is asked."""

    problem: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


class Backend(Protocol):
    """`name` is what people type after `/backend`; `models` are those known by name."""

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> tuple[str, ...]: ...

    @property
    def caps(self) -> Caps: ...

    def run(self, request: RunRequest) -> AbstractAsyncContextManager[Run]:
        """Raises BackendError, here or from `events`; never a library's own exception."""
        ...

    async def check(self) -> Health:
        """Look, without paying for anything, whether it can work."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Who does the work, and with which model. An empty model leaves it to the backend.
    `instead_of` was chosen and cannot work now: `why` is the catalogue key that says what it
    lacks."""

    backend: Backend
    model: str
    instead_of: str = ""
    why: str = ""


def title_of(name: str, arguments: Mapping[str, Any]) -> str:
    """One short line for a card about a tool call."""
    first = next((str(value) for value in arguments.values() if isinstance(value, str)), "")
    return f"{name} {first[:60]}".rstrip()


async def wish_of(tool: Tool, call_id: str, arguments: Mapping[str, Any]) -> ToolCall:
    """The call as those see it who may allow it."""
    return ToolCall(
        call_id=call_id,
        name=tool.name,
        arguments=arguments,
        kind=tool.kind,
        title=title_of(tool.name, arguments),
        detail="" if tool.detail is None else await tool.detail(arguments),
    )
