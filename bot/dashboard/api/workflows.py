"""Workflows: list, show, validate and run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiProblem, ApiRoutes, Line, Words
from bot.dashboard.api.tasks import TaskModel
from cards import formats
from handlers.projects import resolve_workspace
from handlers.workflow_inputs import parse_inputs
from handlers.workflows import input_problems
from storage.records.tasks import NewTask, TaskPriority
from storage.records.workflows import (
    InvalidWorkflowFile,
    NamedWorkflow,
    WorkflowInputValue,
)

routes = ApiRoutes("workflows")
_MAX_TITLE = 120


class InputModel(ApiModel):
    name: str
    title: str
    kind: str
    options: list[str]
    default: WorkflowInputValue | None
    required: bool


class WorkflowStepModel(ApiModel):
    id: str
    title: str
    type: str
    persona: str


class WorkflowModel(ApiModel):
    name: str
    title: str
    description: str
    inputs: list[InputModel]
    steps: list[WorkflowStepModel]
    outputs: list[str]


class FaultModel(ApiModel):
    """`key` names the kind of fault; `location` is a node or an edge, `field` a part of it."""

    key: str
    location: str
    field: str


class WorkflowList(ApiModel):
    """`invalid` names files that cannot be run."""

    workflows: list[WorkflowModel]
    invalid: list[str]


class WorkflowTextBody(ApiModel):
    text: Annotated[Words, StringConstraints(min_length=1)]


class ValidationModel(ApiModel):
    workflow: WorkflowModel | None
    faults: list[FaultModel]


class RunBody(ApiModel):
    """`inputs` are texts, as they would be typed."""

    inputs: dict[Line, Words] = Field(default_factory=dict, max_length=100)
    priority: TaskPriority = TaskPriority.IMPORTANT
    project: Line = ""


@routes("GET", "/workflows")
async def list_workflows(call: ApiCall) -> WorkflowList:
    """Saved workflows by name"""
    catalog = await call.request.services.workflows.list_workflows()
    return WorkflowList(
        workflows=[WorkflowModel.model_validate(each) for each in catalog.workflows],
        invalid=[each.name for each in catalog.invalid],
    )


@routes("POST", "/workflows/validate")
async def validate_workflow(call: ApiCall, body: WorkflowTextBody) -> ValidationModel:
    """Check whether a text is a valid workflow; nothing is saved"""
    checked = await call.request.services.workflows.validate(body.text)
    if isinstance(checked, InvalidWorkflowFile):
        faults = [FaultModel.model_validate(each, from_attributes=True) for each in checked.errors]
        return ValidationModel(workflow=None, faults=faults)
    return ValidationModel(workflow=WorkflowModel.model_validate(checked), faults=[])


@routes("GET", "/workflows/{name}")
async def show_workflow(call: ApiCall, name: str) -> WorkflowModel:
    """A saved workflow"""
    return WorkflowModel.model_validate(await call.request.services.workflows.find(name))


@routes("POST", "/workflows/{name}/runs", status=201)
async def run_workflow(call: ApiCall, name: str, body: RunBody) -> TaskModel:
    """Run a saved workflow as a task in your own chat"""
    command, services = call.command, call.request.services
    workflow: NamedWorkflow = await services.workflows.find(name)
    inputs = parse_inputs(workflow.inputs, body.inputs)
    if not inputs.is_complete:
        problems = input_problems(command, workflow.inputs, inputs)
        wrong = tuple({"field": "inputs", "message": each[:200]} for each in problems)
        raise ApiProblem(422, "wrong_fields", fields=wrong, names="inputs")
    ready = await services.workflows.prepare_run(workflow.name, inputs.values)
    project_dir, in_git = await resolve_workspace(command, body.project)
    task = await services.tasks.run_workflow(
        NewTask(
            title=formats.single_line(ready.title, _MAX_TITLE),
            instruction=ready.instruction,
            priority=body.priority,
            chat_id=call.request.chat.id,
            created_by=call.request.person.id,
            source=call.source,
            project_dir=project_dir,
            in_git=in_git,
            persona=call.request.chat.settings.persona,
        ),
        ready.body,
    )
    return TaskModel.model_validate(task)
