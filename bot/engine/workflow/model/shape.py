"""A workflow as data: nodes, edges, and what it takes in and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from bot.engine.workflow.model.nodes import (
    Config,
    Foreach,
    Loop,
    NodeType,
    OnError,
    OnLimit,
    Retry,
)

VERSION = "2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step. `repeatable` says that running it again after a crash does no harm; `given` that
    people have put it in, so that no planner may drop it; `persona` is who does it, empty for the
    task's own worker. `detail` is what its worker is told, a template. `auto_wait` asks a person
    first, whatever the words are. `deliverables` are files that must be there when it is done, by
    their paths in the workspace. `timeout` is seconds for one try. A node of a kind that works
    with its defaults needs no `config`; `retry` is None for the program's own rules."""

    id: str
    title: str
    detail: str = ""
    repeatable: bool = True
    type: str = NodeType.TASK
    given: bool = False
    persona: str = ""
    config: Config | None = None
    timeout: float | None = None
    on_error: OnError = OnError.FAIL
    retry: Retry | None = None
    auto_wait: bool = False
    deliverables: tuple[str, ...] = ()

    @property
    def body(self) -> tuple[str, ...]:
        """The nodes that it runs in rounds of their own; empty for most."""
        return self.config.body if isinstance(self.config, Loop | Foreach) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`target` waits for `source`. It is taken where `condition` holds; without one always, or,
    beside edges with conditions, where none of those holds. An edge that leads back is taken at
    most `max_loops` times; `on_limit` says what then."""

    source: str
    target: str
    id: str = ""
    condition: str = ""
    max_loops: int | None = None
    on_limit: OnLimit = OnLimit.CONTINUE
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called where it has no id."""
        return self.id or f"{self.source}→{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What the workflow is given at its start. `options` are all that may be chosen for a choice;
    without a `default` it has to be given."""

    name: str
    title: str = ""
    kind: Literal["text", "number", "bool", "choice"] = "text"
    options: tuple[str, ...] = ()
    default: JsonValue = None
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """`plan` is the approach in words; `answer` is set where no node is needed. `served` is the
    last order for a new plan that has been seen to, by its number in the journal.

    `variables` are what they are at the start, `values` what its `inputs` were given. `outputs`
    are expressions for what it gives back in the end. `timeout` is seconds from its first step to
    its last; `parallel` how many of its steps may run at once."""

    plan: str
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    answer: str = ""
    served: int = 0
    version: str = VERSION
    name: str = ""
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    parallel: int = 1

    @property
    def by_id(self) -> Mapping[str, Node]:
        return {node.id: node for node in self.nodes}


def asks_people(workflow: Workflow) -> bool:
    """Whether it has steps for people, or may ask them how to go on."""
    return any(
        node.type == NodeType.HUMAN
        or (isinstance(node.config, Loop) and node.config.on_limit is OnLimit.ASK)
        for node in workflow.nodes
    ) or any(edge.on_limit is OnLimit.ASK for edge in workflow.edges)
