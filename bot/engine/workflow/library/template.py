"""From a task's plan to a workflow that can be kept, and from that to the plan of a new task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from bot.engine.workflow.graph import PLANNING, dump_workflow
from bot.engine.workflow.model.shape import Input, Workflow
from storage.records.tasks import Task
from storage.records.workers.workflows import ReadyWorkflow, Value

TASK_INPUT = "task"
"""What the task was that a kept plan was made for; whoever runs it may say something else."""

_TITLE = 80
_SHOWN_VALUE = 200


def template_of(task: Task, workflow: Workflow) -> Workflow:
    """Without what it was given, what people had put in by name, and what became of it."""
    nodes = tuple(
        replace(node, given=False) for node in workflow.nodes if not node.id.startswith(PLANNING)
    )
    asked = Input(name=TASK_INPUT, title="", default=task.instruction, required=False)
    return replace(
        workflow,
        nodes=nodes,
        name=workflow.name or task.title,
        inputs=workflow.inputs or (asked,),
        values={},
        answer="",
        served=0,
    )


def ready(name: str, workflow: Workflow, values: Mapping[str, Value]) -> ReadyWorkflow:
    """Inputs that were not given have their defaults; without one they are empty."""
    given: dict[str, JsonValue] = {
        each.name: values.get(each.name, each.default) for each in workflow.inputs
    }
    title = workflow.name or name
    shown = _first_line(values)
    return ReadyWorkflow(
        title=(f"{title}: {shown}" if shown else title)[:_TITLE],
        instruction=_instruction(title, workflow, given),
        body=dump_workflow(replace(workflow, values=given)),
    )


def _first_line(values: Mapping[str, Value]) -> str:
    """What tells this run from others."""
    texts = (" ".join(str(value).split()) for value in values.values())
    return " · ".join(filter(None, texts))[:_SHOWN_VALUE]


def _instruction(title: str, workflow: Workflow, given: Mapping[str, JsonValue]) -> str:
    task = given.get(TASK_INPUT)
    rest = {name: value for name, value in given.items() if name != TASK_INPUT or not task}
    lines = [f"- {name}: {value}" for name, value in rest.items() if value is not None]
    head = str(task) if task else workflow.plan or title
    return "\n\n".join(filter(None, (head, "\n".join(lines))))
