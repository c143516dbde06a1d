"""What kinds of nodes a workflow has, and what each is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, JsonValue


class NodeType(StrEnum):
    """The fourteen. TASK is work for a worker, HUMAN what only a person can do or decide."""

    START = "start"
    END = "end"
    TASK = "task"
    CONDITION = "condition"
    PARALLEL = "parallel"
    JOIN = "join"
    HUMAN = "human"
    DELAY = "delay"
    SCHEDULE = "schedule"
    LOOP = "loop"
    FOREACH = "foreach"
    SWITCH = "switch"
    ASSIGN = "assign"
    SCRIPT = "script"

    @property
    def is_step(self) -> bool:
        """Whether somebody works on it; the others cost nothing but a line in the store."""
        return self in {NodeType.TASK, NodeType.HUMAN}


class OnError(StrEnum):
    """When a node has failed for good: stop the workflow, go on as if it had been left out, or go
    on with the error as its output."""

    FAIL = "fail"
    SKIP = "skip"
    CONTINUE = "continue"


class OnLimit(StrEnum):
    """When a loop has used up its rounds: fail, go on behind it, or ask a person which."""

    FAIL = "fail"
    CONTINUE = "continue"
    ASK = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Tries in all, and milliseconds before the second, each later one so many times longer."""

    max_attempts: int = 3
    backoff_ms: int = 2_000
    multiplier: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """`all` waits for every branch that still can come, `any` for the first, `n` for so many."""

    kind: Literal["join"] = "join"
    mode: Literal["all", "any", "n"] = "all"
    n: int = 0


def _several(stored: object) -> object:
    """Plans of older versions name one person, by a text."""
    return (stored,) * bool(stored) if isinstance(stored, str) else stored


People: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_several)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Human:
    """`assignee` are those who are asked, each of whom may decide; empty for whoever may in the
    task's chat. After `timeout` seconds, if there is one, it counts as approved with
    `auto_approve`, else as failed."""

    kind: Literal["human"] = "human"
    assignee: People = ()
    timeout: float | None = None
    auto_approve: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    kind: Literal["delay"] = "delay"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Goes on at the next time that fits `cron` (five fields), or at `at` (ISO 8601). Where `at`
    has no offset it is read in `timezone`, as is `cron`; empty for the Boss's own."""

    kind: Literal["schedule"] = "schedule"
    cron: str = ""
    at: str = ""
    timezone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Runs its body anew in each round. `while` asks `condition` before a round, `until` after it;
    `for` counts `var` from `init` in strides of `step` for as long as it has not passed `end`.
    `init`, `end` and `step` are expressions, worked out once."""

    kind: Literal["loop"] = "loop"
    mode: Literal["while", "until", "for"]
    body: tuple[str, ...]
    condition: str = ""
    init: str = "0"
    end: str = "0"
    step: str = "1"
    var: str = "i"
    max_iterations: int = 100
    on_limit: OnLimit = OnLimit.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach:
    """Runs its body once for each item of `collection` (an expression, worked out once). More
    items than `max_iterations` are refused. Its output lists what each round brought, in the
    order of the items, whichever was done first."""

    kind: Literal["foreach"] = "foreach"
    collection: str
    body: tuple[str, ...]
    item_var: str = "item"
    index_var: str = "index"
    mode: Literal["sequential", "parallel"] = "sequential"
    max_parallel: int = 3
    max_iterations: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`value` is compared with what the switch's expression gives; a text is also taken as it
    stands."""

    value: JsonValue
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Goes on with one target: that of the first case that fits, else `default`; empty for none,
    which is a dead end."""

    kind: Literal["switch"] = "switch"
    expression: str
    cases: tuple[Case, ...]
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`value` is taken as it stands, or worked out where it is an expression."""

    variable: str
    value: JsonValue
    is_expression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    kind: Literal["assign"] = "assign"
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Works out an expression into a variable, or several assignments. It is no program code."""

    kind: Literal["script"] = "script"
    expression: str = ""
    output: str = ""
    assignments: tuple[Assignment, ...] = ()


Config: TypeAlias = Join | Human | Delay | Schedule | Loop | Foreach | Switch | Assign | Script
"""What nodes of most types are told beyond their common fields; the others have none."""

CONFIGS: dict[NodeType, type[Config]] = {
    NodeType.JOIN: Join,
    NodeType.HUMAN: Human,
    NodeType.DELAY: Delay,
    NodeType.SCHEDULE: Schedule,
    NodeType.LOOP: Loop,
    NodeType.FOREACH: Foreach,
    NodeType.SWITCH: Switch,
    NodeType.ASSIGN: Assign,
    NodeType.SCRIPT: Script,
}
