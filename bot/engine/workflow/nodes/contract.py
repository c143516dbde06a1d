"""The contract of a node type: settings, file format, validation, execution and display."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from bot.engine.llm.tool_calls import CallKind
from bot.engine.workflow.expressions.evaluator import (
    evaluate,
    evaluate_answer,
    evaluate_condition,
    split_condition,
)
from bot.engine.workflow.expressions.operations import (
    UnclearAnswer,
    value_as_text,
)
from bot.engine.workflow.field_reader import (
    FieldReader,
    ValidationIssue,
)
from bot.engine.workflow.input_fields import InputDefinition

_MAX_SHOWN = 80
_MAX_ANSWER = 900
_CALL_SECONDS = 10.0


class NodeRole(StrEnum):
    """The role of a node in a workflow, independent of its type."""

    START = "start"
    END = "end"
    TASK = "task"
    CALL = "call"
    HUMAN = "human"
    TIMER = "timer"
    CHOICE = "choice"
    FORK = "fork"
    JOIN = "join"
    LOOP = "loop"
    VALUE = "value"

    @property
    def is_step(self) -> bool:
        """Whether a worker or a person does it, or a tool is called; the scheduler executes all
        other roles itself."""
        return self in {NodeRole.TASK, NodeRole.CALL, NodeRole.HUMAN}

    @property
    def is_counted(self) -> bool:
        """Whether people see it as a step of the plan."""
        return self.is_step or self is NodeRole.TIMER

    @property
    def is_terminal(self) -> bool:
        return self in {NodeRole.START, NodeRole.END}

    @property
    def is_branching(self) -> bool:
        """Whether branches split or meet there, so that edges must be written explicitly."""
        return self in {NodeRole.CHOICE, NodeRole.FORK, NodeRole.JOIN}


class EdgeRule(StrEnum):
    """Which outgoing edges are taken: all whose condition holds, only the first of them, or those
    to the node that the execution chose."""

    ALL_HOLDING = "all holding"
    FIRST_HOLDING = "first holding"
    CHOSEN = "chosen"


class NodeShape(StrEnum):
    """The outline of a node in drawings."""

    BOX = "box"
    PILL = "pill"
    DIAMOND = "diamond"
    BAR = "bar"
    SLANTED = "slanted"
    ROUNDED = "rounded"
    FRAME = "frame"


class OnLimit(StrEnum):
    """Reaction when a loop reaches its limit: fail, continue after the loop, or ask a person."""

    FAIL = "fail"
    CONTINUE = "continue"
    ASK = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The type-specific settings of a node. `kind` is the type's name and identifies it in stored
    plans."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyConfig(NodeConfig):
    """The settings of a loop type. `body` lists the nodes that run in each round."""

    body: tuple[str, ...]


class UndecidedCondition(Exception):
    """A worker's answer leaves a condition open. A person has to say whether `subject` is so."""

    def __init__(self, subject: str, why: str) -> None:
        self.subject = subject
        super().__init__(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext:
    """The environment of a node's execution. `names` are available to expressions; `zone` is the
    Boss's time zone; `warn` receives warnings about expressions. `answer` returns what a person has
    said about the subject of a condition that could not be decided: yes, no, or one of the choices.
    """

    now: datetime
    zone: ZoneInfo
    names: Mapping[str, Any]
    warn: Callable[[str], None]
    answer: Callable[[str], bool | str | None] = lambda _subject: None

    def evaluate(self, expression: str) -> Any:
        """Raises ExpressionError."""
        return evaluate(expression, self.names)

    def evaluate_answer(self, expression: str) -> Any:
        """Raises UnclearAnswer if a worker's answer leaves the value open, ExpressionError for
        other reasons."""
        return evaluate_answer(expression, self.names)

    def is_true(self, condition: str) -> bool:
        """False if the condition cannot be evaluated. Raises UndecidedCondition if a worker's
        answer leaves it open."""
        subject, holds_if = split_condition(condition)
        if (said := self.answer(subject)) is not None:
            return bool(said) is holds_if
        try:
            return evaluate_condition(condition, self.names, self.warn)
        except UnclearAnswer as error:
            raise UndecidedCondition(subject, str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDone:
    """The node is finished. `variables` are set for the whole workflow; `next_node` is the chosen
    target of a node with the edge rule CHOSEN."""

    output: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    next_node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWait:
    """The node waits until `until`, or until its rounds are finished; `iteration` holds the values
    that the rounds iterate over."""

    until: datetime | None = None
    output: Mapping[str, Any] = field(default_factory=dict)
    iteration: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """The node failed. `key` names a text of the catalogue, filled with `facts`; a fact may be the
    error of an expression."""

    key: str
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuestion:
    """The node continues once a person approves or, with a `subject`, has said whether it is true.
    `key` names a text of the catalogue; `detail` is shown below it.
    """

    key: str
    facts: Mapping[str, object] = field(default_factory=dict)
    subject: str = ""
    detail: str = ""
    choices: tuple[str, ...] = ()

    @classmethod
    def about_condition(
        cls, title: str, subject: str, output: Any, choices: tuple[str, ...] = ()
    ) -> NodeQuestion:
        """Ask about a condition whose value a node's output leaves open: whether its subject is
        true, or which of the choices it is.
        """
        return cls(
            choices=choices,
            key="workflow.ask_choice" if choices else "workflow.ask_condition",
            facts={"name": title[:_MAX_SHOWN], "subject": subject[:_MAX_SHOWN].replace("`", "'")},
            subject=subject,
            detail=value_as_text(output)[-_MAX_ANSWER:],
        )


NodeEffect: TypeAlias = NodeDone | NodeWait | NodeFailure

C = TypeVar("C", bound=NodeConfig | None)
B = TypeVar("B", bound=BodyConfig)
_Settings_co = TypeVar("_Settings_co", covariant=True)


class NodeInput(Protocol[_Settings_co]):
    """The part of a node that its execution needs. Node types do not import the workflow module."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def settings(self) -> _Settings_co: ...


class NodeTypeSpec(Generic[C]):
    """One node type. The docstring of each subclass is its documentation; its label is
    `graph.type.<type>` in the catalogue. Types without settings have `config = None` and receive
    None as `settings`; types with optional settings have a `default`."""

    name: str
    role: NodeRole
    shape: NodeShape
    example: str
    """YAML of a workflow that uses the type."""

    planner_hint = ""
    """Explains the type to the planner; empty for types that it should not use."""

    config: type[C] | None = None
    default: C | None = None
    edge_rule = EdgeRule.ALL_HOLDING

    aliases: tuple[str, ...] = ()
    """Alternative names of the type in files."""
    markdown_names: tuple[str, ...] = ()
    """Alternative names in Markdown only."""
    foreign_names: tuple[str, ...] = ()
    """What other programs call such a node: not accepted, but this type is suggested."""
    markdown_timeout = ""
    """Default timeout of such nodes in Markdown."""
    shorthand = ""
    """The field that a plain value sets if it replaces the block."""
    shorthand_takes_list = False
    fields: tuple[str, ...] = ()
    """Settings that may also stand directly in the node, and as lines in Markdown."""
    node_fields: tuple[str, ...] = ()
    """Those of `fields` that name one node."""
    body_fields: tuple[str, ...] = ()
    """Those of `fields` that name several nodes."""
    inline_fields: tuple[str, ...] = ()
    """Settings that may also stand directly in the node, but not in Markdown."""
    telling_fields: tuple[str, ...] = ()
    """Those that no other type has: a node with one but without a type lacks this one."""

    def read(self, block: FieldReader) -> C:
        """Read the settings; issues are added to the reader."""
        raise NotImplementedError

    def write(self, config: C) -> dict[str, Any]:
        """The settings in the format that `read` accepts."""
        raise NotImplementedError

    def absorb_timeout(self, config: C | None, seconds: float) -> C | None:
        """Return the settings with the node's timeout, or None if the timeout limits one attempt,
        as for most types."""
        return None

    def check(self, config: C, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        """Yield issues of the settings, each with its field."""
        yield from ()

    def warnings(self, config: C) -> Iterator[ValidationIssue]:
        """Yield likely mistakes in valid settings, each with its field."""
        yield from ()

    def check_incoming(self, config: C, incoming: int) -> Iterator[ValidationIssue]:
        """Yield issues that depend on the number of incoming edges."""
        yield from ()

    def expressions(self, config: C) -> Iterable[tuple[str, str]]:
        """The expressions in the settings that will be evaluated, each with its field."""
        return ()

    def deciding_expressions(self, config: C) -> Iterable[tuple[str, str]]:
        """The expressions that decide how the run continues, each with its field."""
        return ()

    def compared_values(self, config: C) -> tuple[str, tuple[JsonValue, ...]]:
        """An expression in the settings, and the values in the field `cases` that it is compared
        with.
        """
        return "", ()

    def choices_of(self, config: C, subject: str) -> tuple[str, ...]:
        """The possible answers about a subject that cannot be decided; empty for yes and no."""
        return ()

    def named_workflow(self, config: C) -> str:
        """The name of the workflow that it runs; empty if none."""
        return ""

    def assigned_variables(self, config: C) -> Iterable[str]:
        """Names of the variables that the node sets."""
        return ()

    def round_variables(self, config: C) -> Iterable[str]:
        """Names that are defined only inside the body."""
        return ()

    def targets(self, config: C) -> tuple[str, ...]:
        """Ids of the nodes that the settings name as targets."""
        return ()

    def fallback_target(self, config: C) -> str:
        """The target to use when the edge to the chosen one has reached its loop limit."""
        return ""

    def target_label(self, config: C, target: str) -> str:
        """The label of the branch to `target`, if the settings give one."""
        return ""

    def rewrite(self, config: C, text: Callable[[str], str], node: Callable[[str], str]) -> C:
        """Return the settings with `text` applied to every expression and `node` to every node
        id."""
        return config

    def needed_inputs(self, settings: C) -> int | None:
        """Incoming edges that must be taken before the node starts; None for all that still can
        be."""
        return None

    def cancels_others(self, settings: C) -> bool:
        """Whether the node, when it starts, cancels the branches that have not arrived."""
        return False

    def enter(self, node: NodeInput[C], context: EvaluationContext) -> NodeEffect:
        """Execute the node. Steps for workers are executed elsewhere."""
        return NodeDone()

    def wake(self, node: NodeInput[C], context: EvaluationContext) -> NodeEffect:
        """Continue when the wait is over."""
        return self.enter(node, context)

    def asks_people(self, settings: C) -> bool:
        """Whether the workflow may have to wait for a person at this node."""
        return False

    def assignees(self, settings: C) -> tuple[str, ...]:
        """Names of the people who are asked; empty for anyone who may decide."""
        return ()

    def form(self, settings: C) -> tuple[InputDefinition, ...]:
        """Fields that the person who approves fills in."""
        return ()

    def answer_timeout(self, settings: C) -> float | None:
        """Seconds that a person has to answer; None for no limit."""
        return None

    def is_repeatable(self, settings: C) -> bool:
        """Whether the node can safely run again after a crash, unless its author says otherwise."""
        return True

    def expected_seconds(self, settings: C, by_history: float) -> float | None:
        """The expected duration in seconds; None if unknown. `by_history` is the mean of similar
        earlier nodes.
        """
        return by_history

    def has_parallel_rounds(self, settings: C) -> bool:
        """Whether several rounds of the body may run at once."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallArguments:
    """The call of a tool that a node stands for, as permissions and approvals judge it."""

    tool: str
    kind: CallKind
    arguments: Mapping[str, Any]


class CallTypeSpec(NodeTypeSpec[C]):
    """A node type whose nodes call one tool, without a model."""

    role = NodeRole.CALL
    shape = NodeShape.BOX
    changes_files = False
    """Whether it may change files of the workspace, and so waits for others that do."""

    def fill(self, config: C, context: EvaluationContext) -> C:
        """The settings with their placeholders filled in. Raises ExpressionError."""
        raise NotImplementedError

    def call(self, config: C) -> CallArguments:
        """The call of filled settings."""
        raise NotImplementedError

    def describe(self, config: C) -> str:
        """Describe exactly what the call does, for the people who approve it."""
        raise NotImplementedError

    def expected_seconds(self, settings: C, by_history: float) -> float | None:
        return min(by_history, _CALL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProgress:
    """The state of a running loop: the values it iterates over, the result of each finished round
    by its number, the number of rounds opened, whether a person ended it, and how many rounds its
    limit does not count because the task was tried again after them.
    """

    iteration: Mapping[str, Any]
    results: Mapping[int, Any]
    opened_rounds: int
    ended_by_person: bool = False
    used_limit: int = 0

    @property
    def running(self) -> int:
        return self.opened_rounds - len(self.results)


class LoopTypeSpec(NodeTypeSpec[B]):
    """A node type that runs its body in rounds, counted from 0."""

    role = NodeRole.LOOP
    shape = NodeShape.FRAME
    body_fields: tuple[str, ...] = ("bodyNodes",)
    runs_workflow = False
    """Whether the body is a whole workflow, with variables of its own; it runs in one round."""

    def used_version(self, config: B) -> tuple[str, int] | None:
        """The named workflow that the node runs, with its version number if that is known."""
        return None

    def time_limit(self, config: B) -> float | None:
        """Seconds after which the node fails together with what still runs inside it; None for no
        limit.
        """
        return None

    def wake(self, node: NodeInput[B], context: EvaluationContext) -> NodeEffect:
        return NodeWait()

    def round_names(
        self, node: NodeInput[B], iteration: Mapping[str, Any], index: int
    ) -> Mapping[str, Any]:
        """Names that the round defines for the nodes of the body. Raises LookupError if `iteration`
        has no value for that round."""
        raise NotImplementedError

    def round_result(self, node: NodeInput[B], result: Any, context: EvaluationContext) -> Any:
        """The result of a finished round, from that of its last node; `context` is that of the
        round."""
        return result

    def next_action(
        self, node: NodeInput[B], rounds: RoundProgress, context: EvaluationContext
    ) -> NodeEffect | NodeQuestion | None:
        """Decide after each change. NodeWait opens one more round; None waits for the running
        ones."""
        raise NotImplementedError

    def partial_output(
        self, iteration: Mapping[str, Any], results: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        """The output of a loop that was cut short after these rounds."""
        raise NotImplementedError

    def total_rounds(self, config: B, iteration: Mapping[str, Any]) -> int | None:
        """The number of rounds, if it is known before the last one."""
        return None

    def shown_limit(self, config: B) -> int | None:
        """The maximum number of rounds, if people should see it while `total_rounds` is unknown."""
        return None
