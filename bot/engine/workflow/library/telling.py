"""A workflow as people see it, and its faults."""

from __future__ import annotations

from collections.abc import Iterable

from bot.engine.workflow.model.faults import Fault
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Input, Workflow
from storage.records.workers.workflows import (
    NamedWorkflow,
    Value,
    WorkflowFault,
    WorkflowInput,
    WorkflowStep,
)


def told(name: str, file: str, workflow: Workflow) -> NamedWorkflow:
    return NamedWorkflow(
        name=name,
        file=file,
        title=workflow.name,
        description=workflow.plan,
        inputs=tuple(map(_input, workflow.inputs)),
        steps=tuple(
            WorkflowStep(id=node.id, title=node.title, type=str(node.type), persona=node.persona)
            for node in workflow.nodes
            if node.type not in {NodeType.START, NodeType.END}
        ),
        outputs=tuple(workflow.outputs),
    )


def faults_told(faults: Iterable[Fault]) -> tuple[WorkflowFault, ...]:
    return tuple(
        WorkflowFault(key=each.key, where=each.where, field=each.field, facts=each.facts)
        for each in faults
    )


def default_of(given: Input) -> Value | None:
    """A default that is no plain value is shown as text."""
    default = given.default
    if default is None or isinstance(default, str | int | float | bool):
        return default
    return str(default)


def _input(given: Input) -> WorkflowInput:
    return WorkflowInput(
        name=given.name,
        title=given.title,
        kind=given.kind,
        options=given.options,
        default=default_of(given),
        required=given.required,
    )
