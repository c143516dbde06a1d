"""The workflow data model: nodes, edges, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema

from bot.engine.workflow.nodes.contract import (
    BodyConfig,
    LoopTypeSpec,
    NodeConfig,
    NodeRole,
    NodeTypeSpec,
    OnLimit,
)
from bot.engine.workflow.nodes.registry import CONFIG_TYPES, NodeType, spec_of


class OnError(StrEnum):
    """Reaction to a node that failed for good: stop the workflow, continue as if the node were
    skipped, or continue with the error as its output."""

    FAIL = "fail"
    SKIP = "skip"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Attempts in total, and the delay before the second one; each later delay is `multiplier`
    times longer."""

    max_attempts: int = 3
    backoff_ms: int = 2_000
    multiplier: float = 2.0


class _StoredConfig:
    """Tells pydantic that a config is any registered config type, distinguished by `kind`."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(reduce(or_, CONFIG_TYPES))


FORMAT_VERSION = "2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowNode:
    """One step of a workflow.

    `repeatable`: running it again after a crash is safe. `given`: a person added it, so planners
    must keep it. `persona`: who does the work; empty for the task's own worker. `detail`: a
    template with the worker's instructions. `auto_wait`: ask a person for approval before the step
    runs. `deliverables`: workspace paths of files that must exist afterwards. `timeout`: seconds
    per attempt. `config` is optional for types with a default; without `retry` the global retry
    rules apply.
    """

    id: str
    title: str
    detail: str = ""
    repeatable: bool = True
    type: str = NodeType.TASK
    given: bool = False
    persona: str = ""
    config: Annotated[NodeConfig, _StoredConfig] | None = None
    timeout: float | None = None
    on_error: OnError = OnError.FAIL
    retry: RetryPolicy | None = None
    auto_wait: bool = False
    deliverables: tuple[str, ...] = ()

    @property
    def spec(self) -> NodeTypeSpec[Any]:
        """The specification of the node's type; the task type's if the type is unknown."""
        return spec_of(self.type)

    @property
    def role(self) -> NodeRole:
        return self.spec.role

    @property
    def settings(self) -> Any:
        """`config`, or the default of the type; None if neither exists."""
        spec = self.spec
        fits = spec.config is not None and isinstance(self.config, spec.config)
        return self.config if fits else spec.default

    @property
    def body(self) -> tuple[str, ...]:
        """The nodes that this node runs in rounds; empty unless it is a loop."""
        return self.config.body if isinstance(self.config, BodyConfig) else ()

    @property
    def loop(self) -> LoopTypeSpec[Any]:
        """The specification of a loop type; call it only for nodes with a body."""
        spec = self.spec
        assert isinstance(spec, LoopTypeSpec)
        return spec

    @property
    def targets(self) -> tuple[str, ...]:
        """Nodes that the settings name as targets; empty for most types."""
        return () if self.settings is None else self.spec.targets(self.settings)

    @property
    def has_parallel_rounds(self) -> bool:
        settings = self.settings
        return settings is not None and self.spec.has_parallel_rounds(settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowEdge:
    """Makes `target` wait for `source`.

    The edge is taken if `condition` holds. Without a condition it is always taken, or, next to
    conditional edges, only if none of them holds. A back edge is taken at most `max_loops` times;
    `on_limit` decides what happens then.
    """

    source: str
    target: str
    id: str = ""
    condition: str = ""
    max_loops: int | None = None
    on_limit: OnLimit = OnLimit.CONTINUE
    label: str = ""

    @property
    def name(self) -> str:
        """The id, or a name derived from the two nodes."""
        return self.id or f"{self.source}→{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDefinition:
    """One input of a workflow. `options` lists the allowed values of a choice; an input without a
    `default` must be given."""

    name: str
    title: str = ""
    kind: Literal["text", "number", "bool", "choice"] = "text"
    options: tuple[str, ...] = ()
    default: JsonValue = None
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A complete workflow.

    `plan` is the approach in words; `answer` is set if no node is needed. `served` is the journal
    number of the last replan request that was handled. `variables` holds initial values, `values`
    the values given for `inputs`, and `outputs` the expressions that produce the results. `timeout`
    limits the whole run in seconds; `parallel` limits concurrent steps.
    """

    plan: str
    nodes: tuple[WorkflowNode, ...] = ()
    edges: tuple[WorkflowEdge, ...] = ()
    answer: str = ""
    served: int = 0
    version: str = FORMAT_VERSION
    name: str = ""
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    inputs: tuple[InputDefinition, ...] = ()
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    parallel: int = 1

    @property
    def nodes_by_id(self) -> Mapping[str, WorkflowNode]:
        return {node.id: node for node in self.nodes}


def may_ask_people(workflow: Workflow) -> bool:
    """Whether the workflow has steps for people or loops that ask a person at their limit."""
    return any(node.spec.asks_people(node.settings) for node in workflow.nodes) or any(
        edge.on_limit is OnLimit.ASK for edge in workflow.edges
    )
