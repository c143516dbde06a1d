"""Workflows: list, show, validate, save, delete and run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import unified_diff
from typing import Annotated, Any

from pydantic import Field, JsonValue, StringConstraints

from bot.dashboard.api.routing import (
    ApiCall,
    ApiModel,
    ApiProblem,
    ApiRoutes,
    Line,
    Words,
    read_if_match,
)
from bot.dashboard.api.tasks import TaskModel
from cards.actions import SubmitWorkflowInputs
from cards.catalog import TextCatalog
from cards.views.diagnostics import MAX_DIAGNOSTICS, diagnostic_data, in_text_order
from cards.views.dry_runs import cases_data, dry_run_data
from cards.views.workflow_versions import versions_data
from handlers.workflow_exchange import apply_import
from handlers.workflow_inputs import parse_inputs
from handlers.workflow_versions import find_texts, parse_version, restore_version, store_workflow
from handlers.workflows import (
    input_problems,
    remove_workflow,
    start_workflow,
)
from storage.records.people import PersonRole
from storage.records.tasks import TaskPriority
from storage.records.workflows import (
    Diagnostic,
    ImportPlan,
    NamedWorkflow,
    WorkflowInputValue,
    WorkflowRefusalReason,
    WorkflowRefused,
)

routes = ApiRoutes("workflows")
_VIA = "api"
_HASH = re.compile("[0-9a-f]{64}")


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
    file: str
    title: str
    description: str
    inputs: list[InputModel]
    steps: list[WorkflowStepModel]
    outputs: list[str]


class DiagnosticModel(ApiModel):
    """`severity` is `error` or `warning`; `code` names the kind. `location` is a node, an edge or
    an input, `field` a part of it. `line` and `column` count from 1 and are 0 where the place is
    not known. `written` is what the author wrote there, `suggestion` what may have been meant.
    `text` holds all of it in words."""

    severity: str
    code: str
    file: str
    line: int
    column: int
    location: str
    field: str
    written: str
    message: str
    suggestion: str
    text: str


class InvalidFileModel(ApiModel):
    name: str
    file: str
    diagnostics: list[DiagnosticModel]


class WorkflowList(ApiModel):
    """`invalid` are files that cannot be run; `foreign` says what else is in the folder."""

    workflows: list[WorkflowModel]
    invalid: list[InvalidFileModel]
    foreign: list[DiagnosticModel]


class WorkflowTextBody(ApiModel):
    text: Annotated[Words, StringConstraints(min_length=1)]


class SaveWorkflowBody(WorkflowTextBody):
    """`reason` is for the list of versions."""

    reason: Line = ""


class WorkflowVersionModel(ApiModel):
    """`state` is written for the text of the file; `via` is the place it came from, `restored` the
    version that it brings back, `ended` why it is no longer used."""

    number: int
    state: str
    parent: int
    author: str
    via: str
    restored: int | None
    reason: str
    ended: str
    created_at: datetime


class WorkflowVersionList(ApiModel):
    """Newest first. `in_use` is the one that a new run takes, null after a deletion."""

    name: str
    in_use: int | None
    versions: list[WorkflowVersionModel]


class WorkflowVersionText(ApiModel):
    """`previous` is the number of the version that `diff` begins at; `diff` is in unified form."""

    number: int
    text: str
    previous: int
    diff: str


class RollbackBody(ApiModel):
    version: int


class ImportBody(WorkflowTextBody):
    """`as_name` is another name for the workflow. Without `apply` nothing is changed; `replace`
    overwrites workflows that have other texts."""

    as_name: Line = ""
    apply: bool = False
    replace: bool = False


class ImportItemModel(ApiModel):
    """`state` is new, same or changed."""

    name: str
    is_test: bool
    state: str
    diagnostics: list[DiagnosticModel]


class ImportNeedModel(ApiModel):
    workflow: str
    step: str
    kind: str
    detail: str


class ImportPlanModel(ApiModel):
    """The outcome of an import; `applied` says whether it was done."""

    name: str
    hash: str
    items: list[ImportItemModel]
    needs: list[ImportNeedModel]
    missing_personas: list[str]
    missing_skills: list[str]
    missing_workflows: list[str]
    applied: bool


class WorkflowDocument(ApiModel):
    """`text` is the document to import elsewhere."""

    name: str
    text: str


class GalleryList(ApiModel):
    workflows: list[WorkflowModel]


class InstallBody(ApiModel):
    name: Line
    as_name: Line = ""


class ValidationModel(ApiModel):
    """The first diagnostics, at most 20; `drawing` is an SVG picture of a valid workflow, empty if
    it is too large."""

    workflow: WorkflowModel | None
    diagnostics: list[DiagnosticModel]
    drawing: str


class WorkflowSourceModel(ApiModel):
    """`hash` is for the header `If-Match` of a change."""

    name: str
    file: str
    text: str
    hash: str


class RunBody(ApiModel):
    """`inputs` are texts, as they would be typed."""

    inputs: dict[Line, Words] = Field(default_factory=dict, max_length=100)
    priority: TaskPriority = TaskPriority.IMPORTANT
    project: Line = ""


@routes("GET", "/workflows")
async def list_workflows(call: ApiCall) -> WorkflowList:
    """Saved workflows by name"""
    request = call.request
    catalog = await request.services.workflows.list_workflows()
    return WorkflowList(
        workflows=[WorkflowModel.model_validate(each) for each in catalog.workflows],
        invalid=[
            InvalidFileModel(
                name=each.name, file=each.file, diagnostics=_models(each.errors, request.words)
            )
            for each in catalog.invalid
        ],
        foreign=_models(catalog.foreign, request.words),
    )


@routes("POST", "/workflows/validate")
async def validate_workflow(call: ApiCall, body: WorkflowTextBody) -> ValidationModel:
    """Check whether a text is a valid workflow; nothing is saved"""
    words = call.request.words
    checked = await call.request.services.workflows.check(body.text, words.language)
    found = (
        WorkflowModel.model_validate(checked.workflow)
        if isinstance(checked.workflow, NamedWorkflow)
        else None
    )
    diagnostics = _models(checked.diagnostics, words)
    return ValidationModel(workflow=found, diagnostics=diagnostics, drawing=checked.svg)


@routes("POST", "/workflows/import", role=PersonRole.OWNER)
async def import_workflow(call: ApiCall, body: ImportBody) -> ImportPlanModel:
    """Show what an exported document would make or change, or import it"""
    command, exchange = call.command, call.request.services.workflow_exchange
    if body.apply:
        plan = await apply_import(
            command, body.text, via=_VIA, as_name=body.as_name, replace=body.replace
        )
    else:
        plan = await exchange.plan_import(body.text, as_name=body.as_name)
    return _plan_model(plan, command.words, applied=body.apply)


@routes("GET", "/workflow-gallery")
async def list_gallery(call: ApiCall) -> GalleryList:
    """The workflows that come with the program"""
    request = call.request
    found = await request.services.workflow_exchange.list_gallery(request.words.language)
    return GalleryList(workflows=[WorkflowModel.model_validate(each.workflow) for each in found])


@routes("POST", "/workflow-gallery", status=201, role=PersonRole.OWNER)
async def install_from_gallery(call: ApiCall, body: InstallBody) -> ImportPlanModel:
    """Save a workflow of the gallery"""
    command, exchange = call.command, call.request.services.workflow_exchange
    item = await exchange.find_in_gallery(body.name, command.words.language)
    plan = await apply_import(command, item.document, via="gallery", as_name=body.as_name)
    return _plan_model(plan, command.words, applied=True)


@routes("GET", "/workflows/{name}/export", role=PersonRole.OWNER)
async def export_workflow(call: ApiCall, name: str) -> WorkflowDocument:
    """A workflow with its test cases and all that it runs as one document"""
    exchange = call.request.services.workflow_exchange
    return WorkflowDocument.model_validate(await exchange.export(name, with_dependencies=True))


@routes("GET", "/workflows/{name}")
async def show_workflow(call: ApiCall, name: str) -> WorkflowModel:
    """A saved workflow"""
    return WorkflowModel.model_validate(await call.request.services.workflows.find(name))


@routes("GET", "/workflows/{name}/source", role=PersonRole.OWNER)
async def show_workflow_source(call: ApiCall, name: str) -> WorkflowSourceModel:
    """The text of a workflow's file, valid or not"""
    source = await call.request.services.workflows.read_source(name)
    return WorkflowSourceModel.model_validate(source)


@routes("PUT", "/workflows/{name}", role=PersonRole.OWNER, guarded=True)
async def save_workflow(call: ApiCall, name: str, body: SaveWorkflowBody) -> WorkflowSourceModel:
    """Save a new workflow, or with If-Match a change of one"""
    command, based_on = call.command, read_if_match(call.request.http)
    try:
        await store_workflow(
            command,
            name,
            body.text,
            via=_VIA,
            reason=body.reason,
            replace=based_on == "*",
            based_on=_hash(based_on),
        )
    except WorkflowRefused as refused:
        if refused.reason is not WorkflowRefusalReason.BROKEN:
            raise
        wrong = tuple(
            {"field": f"text:{each.line}:{each.column}", "message": each.text}
            for each in _models(refused.errors, command.words)
        )
        raise ApiProblem(422, "wrong_fields", fields=wrong, names="text") from refused
    source = await command.services.workflows.read_source(name)
    return WorkflowSourceModel.model_validate(source)


@routes("DELETE", "/workflows/{name}", role=PersonRole.OWNER, guarded=True)
async def delete_workflow(call: ApiCall, name: str) -> None:
    """Delete a workflow; its tasks go on"""
    based_on = read_if_match(call.request.http)
    await remove_workflow(call.command, name, based_on=_hash(based_on))


@routes("GET", "/workflows/{name}/versions", role=PersonRole.OWNER)
async def list_workflow_versions(call: ApiCall, name: str) -> WorkflowVersionList:
    """The versions of a workflow that are kept"""
    found = await call.request.services.workflow_history.list_versions(name)
    return WorkflowVersionList.model_validate(versions_data(found))


@routes("GET", "/workflows/{name}/versions/{version}", role=PersonRole.OWNER)
async def show_workflow_version(call: ApiCall, name: str, version: str) -> WorkflowVersionText:
    """The text of a version, and what it changes"""
    found = await call.request.services.workflow_history.list_versions(name)
    (previous, before), (number, text) = find_texts(found, [parse_version(name, version)])
    diff = unified_diff(before.splitlines(), text.splitlines(), f"{previous}", f"{number}", n=2)
    return WorkflowVersionText(number=number, text=text, previous=previous, diff="\n".join(diff))


@routes("POST", "/workflows/{name}/rollback", role=PersonRole.OWNER, guarded=True)
async def roll_back_workflow(call: ApiCall, name: str, body: RollbackBody) -> WorkflowSourceModel:
    """Make the text of an earlier version the newest"""
    based_on = _hash(read_if_match(call.request.http))
    await restore_version(call.command, name, body.version, via=_VIA, based_on=based_on)
    source = await call.request.services.workflows.read_source(name)
    return WorkflowSourceModel.model_validate(source)


class DryRunBody(ApiModel):
    """`inputs` are texts, as they would be typed. `given` is YAML or JSON: what each step brings,
    and decisions about open conditions."""

    inputs: dict[Line, Words] = Field(default_factory=dict, max_length=100)
    given: Words = ""


class DryRunStepModel(ApiModel):
    """`taken` are the nodes to which edges were taken, `prompt` is what its worker would be
    told."""

    label: str
    id: str
    type: str
    title: str
    status: str
    taken: list[str]
    prompt: str
    error: str
    asks: bool
    is_given: bool


class DryRunModel(ApiModel):
    """`end` is completed, failed, blocked,
    cancelled, undecided or too_long; `undecided` the condition at
    which it stopped. `not_given` are steps whose output would decide more. Costs are bounds for
    one attempt at each step, in tokens and, where the price is known, US dollars."""

    end: str
    reason: str
    undecided: str
    path: list[str]
    nodes: list[DryRunStepModel]
    skipped: list[str]
    not_given: list[str]
    outputs: dict[str, JsonValue]
    least_input_tokens: int
    most_input_tokens: int
    most_output_tokens: int
    least_dollars: str | None
    most_dollars: str | None


class DifferenceModel(ApiModel):
    field: str
    expected: str
    got: str


class CaseModel(ApiModel):
    name: str
    passed: bool
    end: str
    path: list[str]
    differences: list[DifferenceModel]


class TestReportModel(ApiModel):
    """With `diagnostics`, the file of cases can't be read."""

    name: str
    file: str
    passed: bool
    diagnostics: list[DiagnosticModel]
    cases: list[CaseModel]


@routes("POST", "/workflows/{name}/dry-run")
async def dry_run_workflow(call: ApiCall, name: str, body: DryRunBody) -> DryRunModel:
    """Say what a run would do with given outputs; no model is asked and nothing is stored"""
    services = call.request.services
    workflow = await services.workflows.find(name)
    inputs = parse_inputs(workflow.inputs, body.inputs)
    if not inputs.is_complete:
        names = [*inputs.unknown, *(each.input.name for each in inputs.invalid)]
        names += [each.name for each in inputs.missing]
        wrong = tuple({"field": "inputs", "message": each[:200]} for each in names)
        raise ApiProblem(422, "wrong_fields", fields=wrong, names="inputs")
    run = await services.dry_runs.dry_run(
        workflow.name, inputs.values, body.given, call.request.words.language
    )
    data = dry_run_data(run)
    cost = data.pop("cost") or {
        **dict.fromkeys(("least_input_tokens", "most_input_tokens", "most_output_tokens"), 0),
        **dict.fromkeys(("least_dollars", "most_dollars")),
    }
    data["nodes"] = [_fields_of(DryRunStepModel, each) for each in data["nodes"]]
    return DryRunModel.model_validate(_fields_of(DryRunModel, {**data, **cost}))


@routes("POST", "/workflows/{name}/tests")
async def test_workflow(call: ApiCall, name: str) -> TestReportModel:
    """Run the test cases of a workflow"""
    request = call.request
    report = await request.services.dry_runs.test(name, request.words.language)
    return TestReportModel.model_validate(cases_data(report, request.words))


@routes("POST", "/workflows/{name}/runs", status=201)
async def run_workflow(call: ApiCall, name: str, body: RunBody) -> TaskModel:
    """Run a saved workflow as a task in your own chat"""
    command = call.command
    workflow: NamedWorkflow = await call.request.services.workflows.find(name)
    inputs = parse_inputs(workflow.inputs, body.inputs)
    if not inputs.is_complete:
        problems = input_problems(command, workflow.inputs, inputs)
        wrong = tuple({"field": "inputs", "message": each[:200]} for each in problems)
        raise ApiProblem(422, "wrong_fields", fields=wrong, names="inputs")
    submission = SubmitWorkflowInputs(
        name=workflow.name, priority=body.priority, folder=body.project
    )
    task, _ = await start_workflow(command, submission, inputs.values, source=call.source)
    return TaskModel.model_validate(task)


def _fields_of(model: type[ApiModel], data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in model.model_fields}


def _models(found: Sequence[Diagnostic], words: TextCatalog) -> list[DiagnosticModel]:
    return [
        DiagnosticModel(**diagnostic_data(each, words))
        for each in in_text_order(found)[:MAX_DIAGNOSTICS]
    ]


def _plan_model(plan: ImportPlan, words: TextCatalog, *, applied: bool) -> ImportPlanModel:
    return ImportPlanModel(
        name=plan.name,
        hash=plan.hash,
        items=[
            ImportItemModel(
                name=each.name,
                is_test=each.is_test,
                state=each.state,
                diagnostics=_models(each.errors, words),
            )
            for each in plan.items
        ],
        needs=[ImportNeedModel.model_validate(each) for each in plan.needs],
        missing_personas=list(plan.missing_personas),
        missing_skills=list(plan.missing_skills),
        missing_workflows=list(plan.missing_workflows),
        applied=applied,
    )


def _hash(based_on: str) -> str:
    """Empty for any text; anything else that is no hash becomes one that matches nothing."""
    if based_on in {"", "*"}:
        return ""
    return based_on if _HASH.fullmatch(based_on) else "?"
