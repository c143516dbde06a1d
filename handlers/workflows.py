"""Handles /workflow: listing, running, checking, trying, saving and deleting workflows."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from cards import formats
from cards.actions import (
    DeleteWorkflow,
    ImportWorkflow,
    InstallWorkflow,
    RollBackWorkflow,
    RunWorkflow,
    SaveTaskAsWorkflow,
    ShowWorkflow,
    ShowWorkflowDiff,
    ShowWorkflowNameForm,
    SubmitWorkflowInputs,
    WorkflowAction,
)
from cards.catalog import TextCatalog
from cards.json_data import task_view_data
from cards.model import notice_card
from cards.views.diagnostics import diagnostic_data, diagnostic_line
from cards.views.dry_runs import (
    cases_card,
    cases_data,
    dry_run_card,
    dry_run_data,
    evaluation_card,
    evaluation_data,
)
from cards.views.task_card import task_card
from cards.views.workflows import (
    NAME_FIELD,
    checked_workflow_data,
    confirm_workflow_delete_card,
    input_line,
    invalid_workflow_card,
    invalid_workflow_data,
    validation_card,
    workflow_card,
    workflow_data,
    workflow_deleted_card,
    workflow_input_form,
    workflow_name_form,
    workflow_saved_card,
    workflows_card,
    workflows_data,
)
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.parsing import find_task
from handlers.personas import persona_for_task
from handlers.projects import resolve_workspace
from handlers.request import CommandRegistry, Reply, Request
from handlers.workflow_exchange import (
    export_command,
    gallery_command,
    handle_exchange_press,
    import_command,
)
from handlers.workflow_inputs import (
    MAX_TEXT,
    InvalidWorkflowInput,
    WorkflowInputValues,
    parse_inputs,
    split_named_values,
)
from handlers.workflow_versions import (
    handle_version_press,
    roll_back_command,
    show_diff,
    show_versions,
    store_workflow,
)
from storage.records.messages import DeliveryUrgency
from storage.records.tasks import NewTask, Task, TaskPriority, TaskStatus
from storage.records.workflows import (
    InvalidWorkflowFile,
    NamedWorkflow,
    WorkflowInput,
    WorkflowInputValue,
    WorkflowRefusalReason,
    WorkflowRefused,
)

log = logging.getLogger(__name__)

_MAX_NAME = 64
_MAX_DETAIL = 200


async def explain_rejection(request: Request, answer: Awaitable[Reply]) -> Reply:
    """Await the answer, or explain a rejected workflow: a broken one on a card, any other reason
    as a UserError."""
    try:
        return await answer
    except WorkflowRefused as refused:
        error = refused
    words, name = request.words, formats.single_line(error.name, _MAX_NAME)
    if error.reason is not WorkflowRefusalReason.BROKEN:
        raise refusal_error(error, words) from error
    found = [diagnostic_data(each, words) for each in error.errors]
    card = invalid_workflow_card(name, error.errors, words)
    data = {"error": card.summary, "name": name, "good": False, "diagnostics": found}
    return Reply(card=card, good=False, data=data)


def refusal_error(refused: WorkflowRefused, words: TextCatalog) -> UserError:
    """The refusal as an error with texts."""
    lines = [diagnostic_line(each, words) for each in refused.errors] or [refused.detail]
    detail = formats.single_line(" · ".join(lines), _MAX_DETAIL)
    name = formats.single_line(refused.name, _MAX_NAME)
    if refused.reason is WorkflowRefusalReason.BROKEN:
        return UserError("workflow_broken", name=name, problems=detail)
    if refused.reason is WorkflowRefusalReason.CHANGED and detail:
        return UserError("workflow_conflict", name=name, detail=detail)
    return UserError(f"workflow_{refused.reason}", name=name, detail=detail)


_MAX_TITLE = 80
_MAX_SHOWN = 60
_RUN_FLAGS = ("p", "priority", "d", "dir")


async def run_workflow(request: Request, name: str, rest: str) -> Reply:
    """Start a workflow, or show the form for missing inputs."""
    if not name:
        raise UsageError("workflow")
    workflow = await request.services.workflows.find(name)
    flags = parse_flags(rest, valued=_RUN_FLAGS)
    word = flags.options.get("p", flags.options.get("priority"))
    priority = TaskPriority.IMPORTANT if word is None else TaskPriority.parse(word)
    if priority is None:
        raise UserError("unknown_priority", word=formats.single_line(word or "", 40))
    free, texts = split_named_values(flags.text)
    submission = SubmitWorkflowInputs(
        name=workflow.name,
        files=request.files,
        model=request.model,
        backend=request.backend,
        priority=priority,
        folder=flags.options.get("d", flags.options.get("dir", "")),
    )
    inputs = parse_inputs(workflow.inputs, texts, free)
    return await _start_or_ask(request, workflow, submission, inputs, source=request.origin)


async def run_by_button(request: Request, name: str) -> Reply:
    """Run a workflow by button; each press runs it again."""
    workflow = await request.services.workflows.find(name)
    inputs, submission = parse_inputs(workflow.inputs, {}), SubmitWorkflowInputs(name=workflow.name)
    return await _start_or_ask(request, workflow, submission, inputs, source=request.source)


async def submit_inputs(
    request: Request, action: SubmitWorkflowInputs, form: Mapping[str, str], card_key: str
) -> Reply:
    """Handle the input form: it stays until all inputs are valid and then creates one task."""
    workflow = await request.services.workflows.find(action.name)
    # Fields of a form from before the workflow was changed are ignored.
    known_names = {each.name for each in workflow.inputs}
    sent = {name: text for name, text in form.items() if name in known_names and text.strip()}
    texts = {name: text for name, text in action.known if name in known_names} | sent
    inputs = parse_inputs(workflow.inputs, texts)
    source = f"start:{card_key}"
    reply = await _start_or_ask(request, workflow, action, inputs, source=source)
    if not inputs.is_complete:
        return Reply(card=reply.card, key=card_key, in_place=True, data=reply.data)
    text = request.words("workflows.started", name=workflow.name)
    await request.services.courier.send(
        request.chat.id, notice_card("", text), key=card_key, urgency=DeliveryUrgency.ANSWER
    )
    return reply


async def _start_or_ask(
    request: Request,
    workflow: NamedWorkflow,
    submission: SubmitWorkflowInputs,
    inputs: WorkflowInputValues,
    *,
    source: str,
) -> Reply:
    if not inputs.is_complete:
        return _ask_for_inputs(request, workflow, submission, inputs)
    task, instruction = await start_workflow(request, submission, inputs.values, source=source)
    if task.instruction != instruction:
        # The message was edited after its task was created.
        raise UserError("already_made", id=task.id)
    view = await request.services.tasks.view(task.id)
    card = task_card(view, request.words, now=request.now)
    return Reply(card=card, key=f"task:{task.id}", data=task_view_data(view))


async def start_workflow(
    request: Request,
    submission: SubmitWorkflowInputs,
    values: Mapping[str, WorkflowInputValue],
    *,
    source: str,
) -> tuple[Task, str]:
    """Create the task of a run with complete inputs and the given instruction, once for each
    `source`."""
    ready = await request.services.workflows.prepare_run(submission.name, values)
    project_dir, in_git = await resolve_workspace(request, submission.folder)
    new = NewTask(
        title=formats.single_line(ready.title, _MAX_TITLE),
        instruction=ready.instruction,
        priority=submission.priority,
        chat_id=request.chat.id,
        created_by=request.person.id,
        source=source,
        reply_to=request.message_id,
        project_dir=project_dir,
        in_git=in_git,
        model=submission.model,
        backend=submission.backend,
        persona=await persona_for_task(request, ""),
        files=submission.files,
    )
    return await request.services.tasks.run_workflow(new, ready.body), ready.instruction


def _ask_for_inputs(
    request: Request,
    workflow: NamedWorkflow,
    submission: SubmitWorkflowInputs,
    parsed: WorkflowInputValues,
) -> Reply:
    """A card with all problems and a form; if a form would not help, an error with the command to
    type."""
    problems = input_problems(request, workflow.inputs, parsed)
    problem_inputs = [each.input for each in parsed.invalid] + list(parsed.missing)
    if not problem_inputs or parsed.unknown:
        lines = "\n".join(f"- {each}" for each in problems)
        raise UserError("workflow_input", name=workflow.name, problems=lines)
    # In the workflow's order, including optional inputs.
    open_ = [
        each for each in workflow.inputs if each in problem_inputs or each.name not in parsed.values
    ]
    action = replace(submission, name=workflow.name, known=tuple(parsed.texts.items()))
    card = workflow_input_form(workflow, open_, action, request.words, problems=problems)
    missing = [each.name for each in problem_inputs]
    data = {"error": card.title, "missing": missing, "problems": list(problems)}
    return Reply(card=card, good=False, data=data)


def input_problems(
    request: Request, inputs: Sequence[WorkflowInput], parsed: WorkflowInputValues
) -> list[str]:
    words = request.words
    names = ", ".join(input_line(each, words) for each in inputs) or words("workflows.no_inputs")
    unknown = [
        words("workflows.unknown_input", name=formats.single_line(name, _MAX_SHOWN), names=names)
        for name in parsed.unknown
    ]
    return [*unknown, *(invalid_input_text(each, words) for each in parsed.invalid)]


def invalid_input_text(invalid: InvalidWorkflowInput, words: TextCatalog) -> str:
    return words(
        f"workflows.wrong.{invalid.key}",
        label=formats.single_line(invalid.input.label, _MAX_SHOWN),
        text=formats.single_line(invalid.text, _MAX_SHOWN),
        options=formats.single_line(" / ".join(invalid.input.options), 200),
        most=MAX_TEXT,
    )


_NAME_PATTERN = re.compile(r"[\w-]{1,64}")
_FENCED_TEXT = re.compile(r"\s*```[^\n]*\n(?P<text>.*?)\n?```\s*", re.DOTALL)
_NON_WORD = re.compile(r"[^\w]+")
_CONFIRM_WORDS = {"yes", "确定", "是"}
_MAX_NAME_LENGTH = 40


async def save_command(request: Request, rest: str) -> Reply:
    """Save a workflow from text, from a file sent along, or from a finished task's plan."""
    request.require_owner()
    before = parse_flags(rest, bare=("replace",), valued=("reason",))
    name, more = split_name_and_text(before.text)
    after = parse_flags(more, bare=("replace",), valued=("reason",))
    if not name:
        raise UsageError("workflow")
    text = await _workflow_text(request, name, more if not after.options else after.text)
    options = {**before.options, **after.options}
    reason = formats.single_line(options.get("reason", ""), _MAX_DETAIL)
    overwrite = "replace" in options
    return await _save_workflow(request, name, text, replace=overwrite, reason=reason)


async def show_name_form(request: Request, task_id: str) -> Reply:
    """Show the form for a workflow's name, from a finished task's card."""
    task = _require_finished(await find_task(request, task_id), "NAME")
    return Reply(card=workflow_name_form(task, request.words, suggested=suggest_name(task)))


async def save_task_workflow(request: Request, task_id: str, name: str, card_key: str) -> Reply:
    """Handle that form."""
    task = _require_finished(await find_task(request, task_id), name or "NAME")
    name = name or suggest_name(task)
    text = await request.services.workflows.export_task_plan(task, name)
    reply = await _save_workflow(request, name, text, replace=False)
    return Reply(card=reply.card, key=card_key, in_place=True, data=reply.data)


async def validate_command(request: Request, rest: str) -> Reply:
    """Validate a workflow by name, text or file."""
    words, workflows = request.words, request.services.workflows
    if not rest and not request.files:
        raise UsageError("workflow")
    if request.files:
        result = await workflows.validate(await workflows.read_file(request.files[0]))
    elif _NAME_PATTERN.fullmatch(rest):
        result = await _validate_by_name(request, rest)
    else:
        result = await workflows.validate(strip_fences(rest))
    card = validation_card(result, words)
    if isinstance(result, InvalidWorkflowFile):
        return Reply(card=card, good=False, data=invalid_workflow_data(result, words))
    return Reply(card=card, data=checked_workflow_data(result, words))


async def delete_command(request: Request, rest: str) -> Reply:
    """Delete a workflow, after confirmation unless the command includes it."""
    request.require_owner()
    name, sure = split_name_and_text(rest)
    if not name:
        raise UsageError("workflow")
    catalog = await request.services.workflows.list_workflows()
    names = {each.name for each in catalog.workflows} | {each.name for each in catalog.invalid}
    if name not in names:
        raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
    if sure.strip().casefold() in _CONFIRM_WORDS:
        return await delete_workflow(request, name)
    return Reply(card=confirm_workflow_delete_card(name, request.words))


async def delete_workflow(request: Request, name: str, card_key: str = "") -> Reply:
    """Deleting a missing workflow succeeds, because the request may be repeated."""
    try:
        await remove_workflow(request, name)
    except WorkflowRefused as error:
        if error.reason is not WorkflowRefusalReason.UNKNOWN:
            raise
    card, data = workflow_deleted_card(name, request.words), {"name": name, "deleted": True}
    return Reply(card=card, key=card_key, in_place=bool(card_key), data=data)


async def remove_workflow(request: Request, name: str, *, based_on: str = "") -> None:
    """Delete for an owner, with a line in the log."""
    request.require_owner()
    await request.services.workflows.delete(name, based_on=based_on)
    log.info("Workflow %s was deleted by person %s", name, request.person.id)


def suggest_name(task: Task) -> str:
    """A workflow name derived from the task's title."""
    plain = _NON_WORD.sub("-", task.title.casefold().replace("_", "-")).strip("-")
    return plain[:_MAX_NAME_LENGTH].strip("-") or task.id


def split_name_and_text(text: str) -> tuple[str, str]:
    """The first word, and the rest with its line breaks and the indentation of its first line."""
    first, *rest = text.strip().split(maxsplit=1) or [""]
    after = text.strip()[len(first) :] if rest else ""
    return first, after.strip(" \t").strip("\r\n")


def strip_fences(text: str) -> str:
    """The text without the code fences around it."""
    fenced_text = _FENCED_TEXT.fullmatch(text)
    return fenced_text["text"] if fenced_text else text


async def _save_workflow(
    request: Request, name: str, text: str, *, replace: bool, reason: str = ""
) -> Reply:
    workflow = await store_workflow(request, name, text, replace=replace, reason=reason)
    return Reply(card=workflow_saved_card(workflow, request.words), data=workflow_data(workflow))


async def _workflow_text(request: Request, name: str, more: str) -> str:
    if request.files:
        return await request.services.workflows.read_file(request.files[0])
    if more and not _NAME_PATTERN.fullmatch(more):
        return strip_fences(more)
    if more:
        task = _require_finished(await find_task(request, more), name)
    else:
        task = await _find_last_finished(request, name)
    return await request.services.workflows.export_task_plan(task, name)


def _require_finished(task: Task, name: str) -> Task:
    if task.status is not TaskStatus.COMPLETED:
        raise UserError("workflow_not_done", name=formats.single_line(name, 64), id=task.id)
    return task


async def _find_last_finished(request: Request, name: str) -> Task:
    page = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=TaskStatus.COMPLETED, page=1, size=1
    )
    if not page.tasks:
        raise UserError("workflow_none_done", name=formats.single_line(name, 64))
    return page.tasks[0]


async def _validate_by_name(request: Request, name: str) -> NamedWorkflow | InvalidWorkflowFile:
    catalog = await request.services.workflows.list_workflows()
    every: tuple[NamedWorkflow | InvalidWorkflowFile, ...] = (*catalog.invalid, *catalog.workflows)
    workflow = next((each for each in every if each.name == name), None)
    return workflow or await request.services.workflows.find(name)


commands = CommandRegistry("tasks")

_WORKFLOWS_FOLDER = "workflows"


@commands("workflow", aliases=("workflows", "流程", "工作流"), verbatim=True)
async def manage_workflows(request: Request) -> Reply:
    return await explain_rejection(request, _dispatch_subcommand(request))


async def handle_workflow_press(
    request: Request, action: WorkflowAction, card_key: str, form: Mapping[str, str]
) -> Reply:
    """Handle a button or form about workflows; the caller has checked permission."""
    return await explain_rejection(request, _perform_press(request, action, card_key, form))


async def _perform_press(  # noqa: PLR0911 - one line for each action of the closed union
    request: Request, action: WorkflowAction, card_key: str, form: Mapping[str, str]
) -> Reply:
    match action:
        case ShowWorkflow(name=name):
            return await _show_workflow(request, name)
        case RunWorkflow(name=name):
            return await run_by_button(request, name)
        case SubmitWorkflowInputs():
            return await submit_inputs(request, action, form, card_key)
        case ShowWorkflowNameForm(task_id=task_id):
            return await show_name_form(request, task_id)
        case SaveTaskAsWorkflow(task_id=task_id):
            return await save_task_workflow(
                request, task_id, form.get(NAME_FIELD, "").strip(), card_key
            )
        case DeleteWorkflow(name=name):
            return await delete_workflow(request, name, card_key)
        case ShowWorkflowDiff() | RollBackWorkflow():
            return await handle_version_press(request, action)
        case ImportWorkflow() | InstallWorkflow():
            return await handle_exchange_press(request, action)
        case _:
            assert_never(action)


async def _dispatch_subcommand(request: Request) -> Reply:
    first, rest = split_name_and_text(request.args)
    subcommand = _SUBCOMMANDS.get(first.casefold() or "list")
    # A name alone means running it.
    return await (subcommand(request, rest) if subcommand else run_workflow(request, first, rest))


async def _list_workflows(request: Request, _rest: str) -> Reply:
    catalog = await request.services.workflows.list_workflows()
    private = request.in_private and request.by_owner
    card = workflows_card(
        catalog, request.words, folder=catalog.folder if private else _WORKFLOWS_FOLDER
    )
    return Reply(card=card, data=workflows_data(catalog, request.words))


async def _run_subcommand(request: Request, rest: str) -> Reply:
    return await run_workflow(request, *split_name_and_text(rest))


async def _show_workflow(request: Request, rest: str) -> Reply:
    name, _ = split_name_and_text(rest)
    if not name:
        raise UsageError("workflow")
    workflow = await request.services.workflows.find(name)
    diagram = await request.services.workflows.render_diagram(name, request.words.language)
    card = workflow_card(workflow, diagram, request.words, owner=request.by_owner)
    return Reply(card=card, data={**workflow_data(workflow), "mermaid": diagram.mermaid})


async def dry_run_command(request: Request, rest: str) -> Reply:
    """Describe a run with these inputs; a file sent along gives the outputs of steps."""
    name, _, more = rest.strip().partition(" ")
    if not name:
        raise UsageError("workflow")
    workflow = await request.services.workflows.find(name)
    free, texts = split_named_values(more)
    inputs = parse_inputs(workflow.inputs, texts, free)
    if not inputs.is_complete:
        wrong = [each.input.label for each in inputs.invalid]
        names = [*inputs.unknown, *wrong, *(each.label for each in inputs.missing)]
        problems = "\n".join(f"- {each[:60]}" for each in names)
        raise UserError("workflow_input", name=workflow.name, problems=problems)
    given = ""
    if request.files:
        given = await request.services.workflows.read_file(request.files[0])
    run = await request.services.dry_runs.dry_run(
        workflow.name, inputs.values, given, request.words.language
    )
    return Reply(card=dry_run_card(run, request.words), data=dry_run_data(run))


async def test_command(request: Request, rest: str) -> Reply:
    """Run the test cases of a workflow."""
    name = rest.strip()
    if not name:
        raise UsageError("workflow")
    report = await request.services.dry_runs.test(name, request.words.language)
    card = cases_card(report, request.words)
    return Reply(card=card, good=report.has_passed, data=cases_data(report, request.words))


async def evaluate_command(request: Request, rest: str) -> Reply:
    """Evaluate an expression in the scope of a task's run, or of one of its nodes."""
    flags = parse_flags(rest, valued=("task", "node"))
    if not flags.text or not flags.options.get("task"):
        raise UserError("eval_usage")
    task = await find_task(request, flags.options["task"])
    found = await request.services.run_expressions.evaluate(
        task, flags.text, request.words.language, flags.options.get("node", "")
    )
    data = evaluation_data(found)
    return Reply(card=evaluation_card(found, request.words), good=not found.error, data=data)


_SUBCOMMANDS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    **dict.fromkeys(("list", "ls", "列表"), _list_workflows),
    **dict.fromkeys(("show", "get", "查看", "显示"), _show_workflow),
    **dict.fromkeys(("run", "start", "运行", "执行", "启动"), _run_subcommand),
    **dict.fromkeys(("save", "keep", "保存", "存为"), save_command),
    **dict.fromkeys(("validate", "check", "检查", "校验"), validate_command),
    **dict.fromkeys(("dry-run", "dryrun", "试运行"), dry_run_command),
    **dict.fromkeys(("test", "tests", "测试"), test_command),
    **dict.fromkeys(("eval", "求值"), evaluate_command),
    **dict.fromkeys(("delete", "remove", "rm", "删除"), delete_command),
    **dict.fromkeys(("versions", "history", "版本", "历史"), show_versions),
    **dict.fromkeys(("export", "导出"), export_command),
    **dict.fromkeys(("import", "导入"), import_command),
    **dict.fromkeys(("gallery", "templates", "模板"), gallery_command),
    **dict.fromkeys(("diff", "对比", "差异"), show_diff),
    **dict.fromkeys(("rollback", "restore", "回滚"), roll_back_command),
}
