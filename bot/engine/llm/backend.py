"""Defines the protocol of all backends: requests, events, results and errors.

Backends expose only the types of this module, never those of a library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel

from bot.engine.llm.tool_calls import AgentTool, CallAuthorizer, CallDecision, ToolCall, WorkChecks


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtDelta:
    """A piece of the model's reasoning, not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """One entry of a worker's checklist."""

    text: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUpdated:
    """The worker's complete current checklist."""

    entries: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    call_id: str
    name: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdated:
    """Progress of a running call: a unified diff and the last lines of output so far."""

    call_id: str
    diff: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    call_id: str
    succeeded: bool
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNotice:
    """A notice for people: a text key with its parameters. A `passing` one is shown until the next
    event only."""

    key: str
    facts: Mapping[str, str] = field(default_factory=dict)
    passing: bool = False


AgentEvent: TypeAlias = (
    TextDelta | ThoughtDelta | PlanUpdated | ToolStarted | ToolUpdated | ToolFinished | RunNotice
)


MAX_ANSWER_TOKENS = 16_000
"""Tokens per answer that most models support."""
OFFLINE_NAME = "offline"


class RunPurpose(StrEnum):
    """The reason for a model call; usage is reported by it."""

    PLAN = "plan"
    STEP = "step"
    CHAT = "chat"
    INTENT = "intent"
    HELPER = "helper"
    LOOK = "look"
    COMPACT = "compact"
    MEMORY = "memory"
    HEARTBEAT = "heartbeat"
    EVOLVE = "evolve"
    CHECK = "check"


class WorkerMode(StrEnum):
    """A worker's permissions: PLAN and REVIEW are read-only."""

    PLAN = "plan"
    EXECUTE = "execute"
    REVIEW = "review"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """An image by absolute path."""

    path: Path
    mime: str

    def read(self, max_bytes: int) -> bytes:
        """Return the image; empty if it is missing or too large. Blocking."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return b""
        return data if len(data) <= max_bytes else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server, started by `command` with `env` or reached at `url` with `headers`.

    `oauth` is a client registered by hand: `client_id`, `client_secret`, `scope`. `secrets` are
    values to redact, `readable_paths` more paths that its process needs. `files_hash` covers its
    files in the workspace as an owner allowed them. One with a `withheld` notice is not started."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    readable_paths: tuple[Path, ...] = ()
    files_hash: str = ""
    withheld: RunNotice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits of a run: model calls, output tokens in total and seconds of wall time. Without
    `seconds` a coding CLI has its own limit, and every other backend `default_seconds`."""

    turns: int = 20
    output_tokens: int = 32_000
    seconds: float | None = None
    default_seconds: float = 600.0

    @property
    def wall_seconds(self) -> float:
        return self.default_seconds if self.seconds is None else self.seconds


class BudgetGate(Protocol):
    """Called before every model call.

    `input_tokens` is an upper bound for the call's input. Returns how many tokens the answer may
    have; raises BudgetExceeded if the call would pass a cap, and the call must not be made then."""

    async def __call__(self, model: str, input_tokens: int, spent: TokenUsage) -> int: ...


class SteeringQueue(Protocol):
    """Messages of people to a worker while it runs."""

    @property
    def delivered_count(self) -> int:
        """How many of all messages the run contains, from the first on."""
        ...

    async def take_new(self) -> str:
        """Return the messages that were not delivered yet, for the next model call; empty if there
        are none."""
        ...

    def rewind(self, delivered_count: int) -> None:
        """Go on after so many messages: those that a resumed turn contains."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A request to a backend.

    `history` joins `RunResult.new_history` of the session's earlier runs in order: opaque JSON
    values, portable between model APIs. `result` requests a validated answer of that type; without
    it the answer is text. `language` is the person's (`zh` or `en`). Files may be changed only in
    `workspace`. `facts` are the prompt's contents as data, for the offline backend:
    `{"instruction", "step": {"title", "detail"}, "done": [{"title", "summary", "files"}]}` for a
    step, else `{"text"}`. `gate` enforces spending caps; free backends may ignore it.
    `answer_tokens` limits one answer.

    `permit` is called before each tool call; without it all given tools are allowed. `answers`
    holds decisions, by call ID, on the calls that suspended the session's last run; the run
    continues there, and `prompt` may be empty.

    `on_reply` is awaited with each reply of the model before anything follows from it. With
    `resumed_text` the run continues a turn that was cut off: `history` ends in it, `prompt` is not
    sent, and the calls at its end are made again through `permit`, which answers those that have
    been made. It is the text that the turn has brought so far.

    `steering` brings what people say during a run; model APIs read it with each result of a tool.
    Only model APIs use `checks`.

    For coding CLIs: `persona` selects the home, `external_id` is the session to resume, and
    `on_external` must be awaited with a new session's ID before the first paid call. `servers` are
    the MCP servers to offer; the next request of the same `kept_for` may use the same process."""

    purpose: RunPurpose
    prompt: str
    system: str
    model: str
    language: str
    workspace: Path | None = None
    pictures: tuple[ImageInput, ...] = ()
    history: Sequence[Any] = ()
    tools: tuple[AgentTool, ...] = ()
    result: type[BaseModel] | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    facts: Mapping[str, Any] = field(default_factory=dict)
    gate: BudgetGate | None = None
    mode: WorkerMode = WorkerMode.EXECUTE
    permit: CallAuthorizer | None = None
    answers: Mapping[str, CallDecision] = field(default_factory=dict)
    persona: str = ""
    external_id: str = ""
    on_external: Callable[[str], Awaitable[None]] | None = None
    servers: tuple[McpServer, ...] = ()
    kept_for: str = ""
    answer_tokens: int = MAX_ANSWER_TOKENS
    on_reply: Callable[[PartialTurn], Awaitable[None]] | None = None
    resumed_text: str | None = None
    steering: SteeringQueue | None = None
    checks: WorkChecks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Token usage of a run, over all requests.

    `input_tokens` includes cache reads and writes. `cost` is in US dollars, None if unknown.
    `estimated_input` and `estimated_output` are upper bounds for tokens that an interrupted answer
    left unreported; `cost` excludes them."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: Decimal | None = None
    estimated_input: int = 0
    estimated_output: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return self._combine(other, 1)

    def __sub__(self, other: TokenUsage) -> TokenUsage:
        return self._combine(other, -1)

    def _combine(self, other: TokenUsage, sign: int) -> TokenUsage:
        known = self.cost is not None or other.cost is not None
        return TokenUsage(
            **{
                each.name: max(0, getattr(self, each.name) + sign * getattr(other, each.name))
                for each in fields(self)
                if each.name != "cost"
            },
            cost=(self.cost or Decimal(0)) + sign * (other.cost or Decimal(0)) if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialTurn:
    """One reply of a model within a run. `messages` are those that the run has added to the
    session since its last reply, this one included, none if it is useless; `usage` is this call's
    alone.

    `context_tokens` is the session's length."""

    messages: tuple[Any, ...]
    usage: TokenUsage
    model: str
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a successful run.

    `value` is the validated answer, if requested. `new_history` is what the run has added to the
    session, without what `RunRequest.on_reply` was given. `truncated` means that a text answer
    reached its length limit. `context_tokens` is the session's length, 0 if unknown. `suspended`
    are calls that wait for a decision: `value` is None, and a later run continues with
    `RunRequest.answers`. `writes_calls` means that the model was asked to write its tool calls as
    text, as small ones must be."""

    text: str
    value: BaseModel | None
    model: str
    usage: TokenUsage
    new_history: tuple[Any, ...]
    truncated: bool = False
    context_tokens: int = 0
    suspended: tuple[ToolCall, ...] = ()
    writes_calls: bool = False


class BackendError(Exception):
    """Base of the errors that a run may raise.

    `hint` is the text key of the advice for people; `usage` was spent despite the error.
    `new_history` is what the run added to the session so far; the next run continues from it.
    `failed_backend` is set by the gateway, for what follows in the chain. `answer` is what the
    service answered, in its own words; empty if nothing came."""

    hint = "backend.failed"
    answer = ""
    failed_backend: SelectedBackend | None = None

    def __init__(
        self,
        message: str,
        *,
        usage: TokenUsage | None = None,
        hint: str = "",
        new_history: tuple[Any, ...] = (),
    ) -> None:
        self.usage = usage or TokenUsage()
        self.new_history = new_history
        if hint:
            self.hint = hint
        super().__init__(message)


class OutageKind(StrEnum):
    """Why a service is unavailable."""

    UNREACHABLE = "away"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "broken"


class BackendUnavailable(BackendError):
    """The service is unreachable, overloaded or rate limited; `retry_after` is in seconds, if
    stated."""

    hint = "backend.unavailable"

    def __init__(
        self,
        message: str,
        *,
        usage: TokenUsage | None = None,
        retry_after: float | None = None,
        outage: OutageKind = OutageKind.UNREACHABLE,
    ) -> None:
        self.retry_after = retry_after
        self.outage = outage
        super().__init__(message, usage=usage)


class BackendDenied(BackendError):
    """Permanent failure: bad key, unknown model, no permission or no credit."""

    hint = "backend.denied"


class BackendNotReady(BackendDenied):
    """The backend can't start: not installed, old Node.js or not logged in; nothing was done."""


class InvalidAnswer(BackendError):
    """The answer was empty, refused, truncated or still invalid after one retry; `faults` says
    what is wrong with an invalid one."""

    hint = "backend.bad_answer"

    def __init__(
        self,
        message: str,
        *,
        usage: TokenUsage | None = None,
        hint: str = "",
        new_history: tuple[Any, ...] = (),
        faults: str = "",
    ) -> None:
        self.faults = faults
        super().__init__(message, usage=usage, hint=hint, new_history=new_history)


class AnswerCutByBudget(InvalidAnswer):
    """The answer exceeded the tokens that a `BudgetGate` allowed, and is lost."""


class LimitKind(StrEnum):
    """A limit of `RunLimits`."""

    TURNS = "turns"
    TOKENS = "tokens"
    SECONDS = "seconds"

    @property
    def hint(self) -> str:
        return f"backend.limit_{self.value}"


class RunLimitReached(BackendError):
    """A limit of the run was reached; `hint` says which one."""

    hint = "backend.limit"


class ContextTooLong(RunLimitReached):
    """The input exceeds the model's window: `window` tokens if the service states it, else 0."""

    hint = "backend.too_long"

    def __init__(self, message: str, *, usage: TokenUsage | None = None, window: int = 0) -> None:
        self.window = window
        super().__init__(message, usage=usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedCap:
    """The cap that the next call would pass.

    `scope` is task, person, chat or day; `subject` is the ID within it, empty for the day. Caps
    include granted extensions; 0 means no limit. `cap_micros` and `spent_micros` are in
    micro-dollars. `day` is the cap's date (empty for tasks), `until` the time of its reset."""

    scope: str
    subject: str
    day: str
    cap_micros: int
    cap_tokens: int
    spent_micros: int
    spent_tokens: int
    until: datetime | None


class BudgetExceeded(BackendError):
    """The next call would pass a cap and was not made."""

    hint = "backend.budget"

    def __init__(
        self, cap: ReachedCap, *, usage: TokenUsage | None = None, new_history: tuple[Any, ...] = ()
    ) -> None:
        self.cap = cap
        super().__init__(f"the {cap.scope}'s cap is reached", usage=usage, new_history=new_history)


class BackendRun(Protocol):
    """A running request.

    Callers iterate `events` to the end, then read `result`. Implementers must end the call on the
    wire when the context is left or the task is cancelled."""

    @property
    def events(self) -> AsyncIterator[AgentEvent]: ...

    @property
    def result(self) -> RunResult:
        """Valid once `events` has ended without raising."""
        ...

    @property
    def usage_so_far(self) -> TokenUsage:
        """Usage so far; after the context is left, it includes interrupted calls."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReadiness:
    """An empty `problem` means ready; otherwise it is a text key, with `facts` as parameters.

    `version` is filled by probes only."""

    problem: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


class Backend(Protocol):
    """A backend; `name` is the argument of `/backend`, `models` are the models with known names.

    `accepts_tools` is False for coding CLIs, which use their own tools."""

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> tuple[str, ...]: ...

    @property
    def accepts_tools(self) -> bool: ...

    def run(self, request: RunRequest) -> AbstractAsyncContextManager[BackendRun]:
        """Raises BackendError, here or from `events`, and never a library's exception."""
        ...

    async def check(self) -> BackendReadiness:
        """Check readiness without costs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedBackend:
    """A backend and model; an empty model leaves the choice to the backend.

    For a fallback, `instead_of` is the unavailable choice, `instead_of_label` what people call it
    and `fallback_reason` the text key of its problem. `label` is what they call this one.
    `fallbacks` are the names of those that follow in the chain."""

    backend: Backend
    model: str
    label: str = ""
    instead_of: str = ""
    instead_of_label: str = ""
    fallback_reason: str = ""
    fallbacks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        named = self.model not in {"", self.backend.name}
        return f"{self.backend.name}:{self.model}" if named else self.backend.name

    @property
    def fallback_notice(self) -> RunNotice | None:
        if not self.instead_of:
            return None
        facts = {
            "name": self.instead_of_label or self.instead_of,
            "instead": self.label or self.backend.name,
            "why": self.fallback_reason,
        }
        return RunNotice(key="backend.fell_back", facts=facts)


class BaseRun(ABC):
    """Base of all backend runs; events can be iterated once."""

    def __init__(self) -> None:
        self._result: RunResult | None = None
        self._events = self._run_events()

    @abstractmethod
    def _run_events(self) -> AsyncGenerator[AgentEvent, None]:
        """Execute the run and store its result in `_result`. Raises BackendError."""

    @property
    @abstractmethod
    def usage_so_far(self) -> TokenUsage: ...

    @property
    def events(self) -> AsyncIterator[AgentEvent]:
        return self._events

    @property
    def result(self) -> RunResult:
        if self._result is None:
            raise RuntimeError("the run has not ended: iterate its events first")
        return self._result

    async def aclose(self) -> None:
        await self._events.aclose()
