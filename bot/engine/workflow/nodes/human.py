"""A step for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

from bot.engine.workflow.field_reader import FieldReader, ValidationIssue, duration_issues
from bot.engine.workflow.nodes.contract import (
    EvaluationContext,
    NodeConfig,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeRole,
    NodeShape,
    NodeTypeSpec,
    NodeWait,
)

_MAX_ASSIGNEES = 20


def _as_tuple(stored: object) -> object:
    """Plans of older versions store a single assignee as text."""
    return (stored,) * bool(stored) if isinstance(stored, str) else stored


AssigneeNames: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanConfig(NodeConfig):
    """Any of `assignee` may decide; if it is empty, anyone with permission in the task's chat.
    After `timeout` seconds the step counts as approved with `auto_approve`, and as failed
    without."""

    kind: Literal["human"] = "human"
    assignee: AssigneeNames = ()
    timeout: float | None = None
    auto_approve: bool = False


class HumanNode(NodeTypeSpec[HumanConfig]):
    """Work or a decision that only a person can do. Requests are made in `step_approvals`; this
    class defines how long they stay open and what happens when they expire."""

    name = "human"
    role = NodeRole.HUMAN
    shape = NodeShape.SLANTED
    config = HumanConfig
    default = HumanConfig()
    planner_hint = "work or a decision for a person"
    aliases = ("ask", "approval")
    markdown_names = ("人工", "审批")
    markdown_timeout = "24h"
    shorthand = "assignee"
    shorthand_takes_list = True
    fields = ("assignee", "autoApprove")
    example = """\
nodes:
  - {id: write, name: Write}
  - {id: sign, type: human, name: "Send it?", assignee: "Ann, Bo", timeout: 2d}
"""

    def read(self, block: FieldReader) -> HumanConfig:
        return HumanConfig(
            assignee=_read_assignees(block),
            timeout=block.duration("timeout"),
            auto_approve=block.boolean("autoApprove", default=False),
        )

    def write(self, config: HumanConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"assignee": list(config.assignee), "timeout": config.timeout}
        data["autoApprove"] = config.auto_approve
        return {name: value for name, value in data.items() if value}

    def absorb_timeout(self, config: HumanConfig | None, seconds: float) -> HumanConfig:
        human = config or HumanConfig()
        return human if human.timeout is not None else replace(human, timeout=seconds)

    def check(self, config: HumanConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        return duration_issues(config.timeout, "timeout")

    def enter(self, node: NodeInput[HumanConfig], context: EvaluationContext) -> NodeEffect:
        timeout = node.settings.timeout
        return NodeWait(until=None if timeout is None else context.now + timedelta(seconds=timeout))

    def wake(self, node: NodeInput[HumanConfig], context: EvaluationContext) -> NodeEffect:
        if node.settings.auto_approve:
            return NodeDone(output={"approved": True, "auto": True})
        return NodeFailure(key="workflow.nobody_decided", facts={"name": node.title})

    def asks_people(self, settings: HumanConfig) -> bool:
        return True

    def assignees(self, settings: HumanConfig) -> tuple[str, ...]:
        return settings.assignee

    def answer_timeout(self, settings: HumanConfig) -> float | None:
        return settings.timeout

    def expected_seconds(self, settings: HumanConfig, by_history: float) -> float | None:
        return None


def _read_assignees(block: FieldReader) -> tuple[str, ...]:
    """Names as a list, or separated by commas."""
    people = tuple(dict.fromkeys(filter(None, block.word_list("assignee"))))
    if len(people) > _MAX_ASSIGNEES:
        block.add("too_many_people", "assignee", most=_MAX_ASSIGNEES)
    return people[:_MAX_ASSIGNEES]
