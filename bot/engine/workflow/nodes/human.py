"""A step for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

from bot.engine.workflow.field_reader import (
    FieldReader,
    ValidationIssue,
    duration_issues,
    variable_name_issues,
)
from bot.engine.workflow.input_fields import InputDefinition, input_to_data, read_input
from bot.engine.workflow.node_runs import RESERVED_NAMES
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
_MAX_FIELDS = 20
_TAKEN_NAMES = RESERVED_NAMES | {"approved", "decided_by"}


def _as_tuple(stored: object) -> object:
    """Plans of older versions store a single assignee as text."""
    return (stored,) * bool(stored) if isinstance(stored, str) else stored


AssigneeNames: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanConfig(NodeConfig):
    """Any of `assignee` may decide; if it is empty, anyone with permission in the task's chat.
    After `timeout` seconds the step counts as approved with `auto_approve`, and as failed
    without. The fields of `form` are filled in by whoever approves."""

    kind: Literal["human"] = "human"
    assignee: AssigneeNames = ()
    timeout: float | None = None
    auto_approve: bool = False
    form: tuple[InputDefinition, ...] = ()

    @classmethod
    def to_choose(cls, field: str, options: tuple[str, ...]) -> HumanConfig:
        """Whoever approves chooses one of these options."""
        return cls(form=(InputDefinition(name=field, kind="choice", options=options),))


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
    foreign_names = ("form", "manual", "user", "person", "review")
    markdown_timeout = "24h"
    shorthand = "assignee"
    shorthand_takes_list = True
    fields = ("assignee", "autoApprove")
    inline_fields = ("form",)
    telling_fields = ("form", "assignee")
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
            form=_read_form(block),
        )

    def write(self, config: HumanConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"assignee": list(config.assignee), "timeout": config.timeout}
        data["autoApprove"] = config.auto_approve
        data["form"] = [input_to_data(each) for each in config.form]
        return {name: value for name, value in data.items() if value}

    def absorb_timeout(self, config: HumanConfig | None, seconds: float) -> HumanConfig:
        human = config or HumanConfig()
        return human if human.timeout is not None else replace(human, timeout=seconds)

    def check(self, config: HumanConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        yield from duration_issues(config.timeout, "timeout")
        seen: set[str] = set(_TAKEN_NAMES)
        for n, each in enumerate(config.form, 1):
            place, facts = f"form[{n}]", {"name": each.name[:40]}
            if each.name:
                yield from variable_name_issues(each.name, f"{place}.name")
            if each.name in seen:
                yield ValidationIssue(key="bad_form_field", field=f"{place}.name", facts=facts)
            seen |= {each.name} - {""}
            if each.kind == "choice" and not each.options:
                yield ValidationIssue(key="missing", field=f"{place}.options")
            if each.must_be_given and config.auto_approve:
                yield ValidationIssue(key="form_without_default", field=place, facts=facts)

    def enter(self, node: NodeInput[HumanConfig], context: EvaluationContext) -> NodeEffect:
        timeout = node.settings.timeout
        return NodeWait(until=None if timeout is None else context.now + timedelta(seconds=timeout))

    def wake(self, node: NodeInput[HumanConfig], context: EvaluationContext) -> NodeEffect:
        if node.settings.auto_approve:
            defaults = {each.name: each.default for each in node.settings.form}
            return NodeDone(output={**defaults, "approved": True, "auto": True})
        return NodeFailure(key="workflow.nobody_decided", facts={"name": node.title})

    def asks_people(self, settings: HumanConfig) -> bool:
        return True

    def assignees(self, settings: HumanConfig) -> tuple[str, ...]:
        return settings.assignee

    def form(self, settings: HumanConfig) -> tuple[InputDefinition, ...]:
        return settings.form

    def answer_timeout(self, settings: HumanConfig) -> float | None:
        return settings.timeout

    def expected_seconds(self, settings: HumanConfig, by_history: float) -> float | None:
        return None


def _read_form(block: FieldReader) -> tuple[InputDefinition, ...]:
    fields = []
    for n, each in enumerate(block.named_mappings("form", key="name", plain="type"), 1):
        each.where, each.path = block.where, f"{block.path}.form[{n}]"
        fields.append(read_input(each))
    if len(fields) > _MAX_FIELDS:
        block.add("out_of_range", "form", least=0, most=_MAX_FIELDS)
    return tuple(fields[:_MAX_FIELDS])


def _read_assignees(block: FieldReader) -> tuple[str, ...]:
    """Names as a list, or separated by commas."""
    people = tuple(dict.fromkeys(filter(None, block.word_list("assignee"))))
    if len(people) > _MAX_ASSIGNEES:
        block.add("too_many_people", "assignee", most=_MAX_ASSIGNEES)
    return people[:_MAX_ASSIGNEES]
