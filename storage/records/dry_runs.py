"""Dry runs of workflows: what would happen with given outputs, and test cases with what they
expect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from storage.records.tasks import NodeStatus
from storage.records.workflows import Diagnostic


class DryRunEnd(StrEnum):
    """How a dry run ends. It stops at a condition that the given outputs leave open, and where
    it becomes too long."""

    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    UNDECIDED = "undecided"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBounds:
    """The bounds of one attempt: at least its prompt once, at most its limits. The money is in US
    dollars, and None if the price of the model is not known."""

    least_input: int = 0
    most_input: int = 0
    most_output: int = 0
    least: Decimal | None = None
    most: Decimal | None = None

    def __add__(self, other: CostBounds) -> CostBounds:
        return CostBounds(
            least_input=self.least_input + other.least_input,
            most_input=self.most_input + other.most_input,
            most_output=self.most_output + other.most_output,
            least=_sum(self.least, other.least),
            most=_sum(self.most, other.most),
        )


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunNode:
    """One activation of a node. `path` names it in the plan, `label` for people: `fix#2` is the
    second time that `fix` runs, `each[0]/read` the first round of `each`. `is_step` if people see
    it as a step of the plan.

    `taken` are the nodes behind it to which edges were taken. `prompt` and `system` are what its
    worker would be told. `asks` says that a person decides before it or about it. `is_given` is
    False for a step without a given output: its result stands in for the real one. `has_begun` is
    False for one that was cancelled before. `time_limit` are the
    seconds that a sub-workflow may take."""

    path: str
    label: str
    id: str
    type: str
    title: str
    is_step: bool
    status: NodeStatus
    persona: str = ""
    taken: tuple[str, ...] = ()
    output: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    prompt: str = ""
    system: str = ""
    has_begun: bool = True
    asks: bool = False
    waits_until: datetime | None = None
    is_given: bool = True
    time_limit: float | None = None
    cost: CostBounds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDryRun:
    """`nodes` are in the order in which they begin; `skipped` are those that no branch reached.
    `undecided` is the subject of the condition at which it stopped. `outputs` are those of the
    workflow; `missing_outputs` says why others have no value. `cost` is None without steps for
    workers; `model` is who they would ask."""

    name: str
    end: DryRunEnd
    reason: str = ""
    undecided: str = ""
    nodes: tuple[DryRunNode, ...] = ()
    skipped: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    missing_outputs: Mapping[str, str] = field(default_factory=dict)
    cost: CostBounds | None = None
    model: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        """The steps in the order of their start."""
        return tuple(each.label for each in self.nodes if each.is_step and each.has_begun)

    @property
    def not_given(self) -> tuple[str, ...]:
        """The steps whose output would decide more, in order."""
        return tuple(dict.fromkeys(each.id for each in self.nodes if not each.is_given))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDifference:
    """A result that came otherwise than expected. `field` is a part of `expect`, such as `path`."""

    field: str
    expected: str
    got: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One test case. It has passed without differences."""

    name: str
    run: WorkflowDryRun
    differences: tuple[CaseDifference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTestReport:
    """The test cases of one workflow. `faults` are those of the file of cases, or of the workflow:
    with any, no case has run."""

    name: str
    file: str
    cases: tuple[CaseResult, ...] = ()
    faults: tuple[Diagnostic, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not self.faults and not any(each.differences for each in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedExpression:
    """The value of an expression in a stored run. `path` is the activation whose scope was used,
    empty for the outermost one. With an `error` there is no value, and `names` are those that could
    have stood in place of an unknown one."""

    path: str
    value: Any = None
    type: str = ""
    error: str = ""
    names: tuple[str, ...] = ()
