"""Tasks: list, search, show, create and steer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, JsonValue, StringConstraints

from bot.dashboard.api.routing import (
    ApiCall,
    ApiModel,
    ApiProblem,
    ApiRoutes,
    Line,
    PageQuery,
    Words,
    read_time_cursor,
    time_cursor,
)
from handlers.chat import check_backend_usable
from handlers.parsing import MessageDirectives
from handlers.tasks import new_task
from storage.records.tasks import (
    EventKind,
    RerunChanges,
    Task,
    TaskControl,
    TaskId,
    TaskPhase,
    TaskPriority,
    TaskStatus,
    TaskView,
)
from storage.records.traces import SpanKind, SpanState
from storage.records.workflows import ChangeKind

routes = ApiRoutes("tasks")
_MAX_STEPS = 10
_MAX_CHANGES = 50
_SomeText = Annotated[Words, StringConstraints(min_length=1, pattern=r"\S")]
_SomeLine = Annotated[Line, StringConstraints(min_length=1, pattern=r"\S")]


class TaskModel(ApiModel):
    """A task. Times have a zone."""

    id: str
    title: str
    priority: TaskPriority
    status: TaskStatus
    status_reason: str
    phase: TaskPhase
    control: TaskControl
    created_by: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    stage: str
    outside: bool
    project_dir: str
    model: str
    backend: str
    persona: str
    cap: str
    summary: str


class TaskList(ApiModel):
    """`next` is the cursor of the next page, null on the last one."""

    tasks: list[TaskModel]
    next: str | None


class StepModel(ApiModel):
    path: str
    title: str
    status: str
    kind: str
    depth: int
    summary: str
    error: str
    files: list[str]
    persona: str
    started_at: datetime | None
    ended_at: datetime | None
    waits_until: datetime | None


class NodeList(ApiModel):
    """`percent` is the share of the expected time that is done; 100 only for a completed task."""

    percent: int
    nodes: list[StepModel]


class ChangeModel(ApiModel):
    """`what` is node, edge or setting; `name` is the node's id, or an edge's ends."""

    kind: ChangeKind
    what: str
    name: str
    field: str
    before: str
    after: str


class RunDiffModel(ApiModel):
    name: str
    changes: list[ChangeModel]


class SpentModel(ApiModel):
    """`cost_micros` are millionths of the currency of prices; `unpriced` counts calls without a
    known price."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    unpriced: int


class TaskDetailModel(ApiModel):
    task: TaskModel
    instruction: str
    plan: str
    steps: list[StepModel]
    spent: SpentModel
    tasks_ahead: int


class TaskQuery(PageQuery):
    status: str = Field(default="", max_length=200, description="one or more, with commas")
    text: Line = ""


class NewTaskBody(ApiModel):
    """`project` is a folder on the machine of Shiftboss; empty for a workspace of its own."""

    text: _SomeText
    title: Line = ""
    priority: TaskPriority = TaskPriority.IMPORTANT
    project: Line = ""
    persona: Line = ""
    backend: Line = ""
    model: Line = ""


class ReasonBody(ApiModel):
    reason: Words = ""


class ExpressionBody(ApiModel):
    """`node` is the id, title or path of a node; without it the outermost scope counts."""

    expression: Words
    node: Line = ""


class EvaluationModel(ApiModel):
    path: str
    value: JsonValue
    type: str
    error: str
    names: list[str]


class AnswerBody(ApiModel):
    answer: Words = ""


class TextBody(ApiModel):
    text: _SomeText


class RerunBody(ApiModel):
    """`node` is an id, a title or the path of a node. Values are texts, as in the chat; `outputs`
    has them by node and field. If `node` itself has one, it is done with it and not run."""

    node: _SomeLine
    inputs: dict[str, Words] = Field(default_factory=dict, max_length=_MAX_CHANGES)
    outputs: dict[str, dict[str, Words]] = Field(default_factory=dict, max_length=_MAX_CHANGES)


class PriorityBody(ApiModel):
    priority: TaskPriority


class StepsBody(ApiModel):
    steps: list[_SomeLine] = Field(min_length=1, max_length=_MAX_STEPS)


class EventModel(ApiModel):
    id: int
    task_id: str
    kind: EventKind
    text: str
    at: datetime


class EventList(ApiModel):
    events: list[EventModel]


class VersionQuery(ApiModel):
    version: int | None = Field(default=None, ge=1)


class DiscardedRunModel(ApiModel):
    """A result that counts no more, because the task ran again from a node before it."""

    path: str
    status: str
    output: dict[str, Any]
    error: str
    started_at: datetime | None
    ended_at: datetime | None


class GraphModel(ApiModel):
    """A version of a task's plan: nodes and edges as they are stored, and the results that were
    discarded with it."""

    version: int
    author: str
    reason: str
    body: dict[str, Any]
    discarded: list[DiscardedRunModel]


class SpanModel(ApiModel):
    id: str
    parent: str
    name: str
    kind: SpanKind
    state: SpanState
    started_at: datetime
    ended_at: datetime | None
    error: str
    depth: int
    spent: SpentModel


class TraceModel(ApiModel):
    id: str
    taken_at: datetime
    spans: list[SpanModel]


@routes("GET", "/tasks")
async def list_tasks(call: ApiCall, query: TaskQuery) -> TaskList:
    """Tasks that you may see, newest first"""
    request = call.request
    after = read_time_cursor(query.cursor)
    before = (after[0], TaskId(after[1])) if after else None
    found = await request.services.tasks.list_newest(
        by=request.person,
        chat=request.chat.id,
        statuses=_read_statuses(query.status),
        text=query.text.strip(),
        before=before,
        limit=query.limit + 1,
    )
    shown = found[: query.limit]
    more = len(found) > len(shown)
    return TaskList(
        tasks=[TaskModel.model_validate(each) for each in shown],
        next=time_cursor(shown[-1].created_at, shown[-1].id) if more else None,
    )


@routes("POST", "/tasks", status=201)
async def create_task(call: ApiCall, body: NewTaskBody) -> TaskDetailModel:
    """Create a task in your own chat"""
    command = call.command
    await check_backend_usable(command, body.backend)
    directives = MessageDirectives(model=body.model, backend=body.backend)
    new = await new_task(
        command,
        body.text,
        body.priority,
        directives,
        source=call.source,
        title=body.title,
        folder=body.project,
        persona=body.persona,
    )
    return await _detail(call, await call.request.services.tasks.create(new))


@routes("GET", "/tasks/{task_id}")
async def show_task(call: ApiCall, task_id: str) -> TaskDetailModel:
    """A task with its steps and cost"""
    return await _detail(call, await find_task(call, task_id))


@routes("POST", "/tasks/{task_id}/pause")
async def pause_task(call: ApiCall, task_id: str, body: ReasonBody) -> TaskModel:
    """Pause at the next step boundary"""
    task = await find_task(call, task_id)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.pause(task, **call.author, reason=body.reason))


@routes("POST", "/tasks/{task_id}/resume")
async def resume_task(call: ApiCall, task_id: str, body: AnswerBody) -> TaskModel:
    """Continue; the answer reaches the worker"""
    task = await find_task(call, task_id)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.resume(task, **call.author, answer=body.answer))


@routes("POST", "/tasks/{task_id}/stop")
async def stop_task(call: ApiCall, task_id: str) -> TaskModel:
    """Stop for good; what is done stays"""
    task = await find_task(call, task_id)
    return TaskModel.model_validate(await call.request.services.tasks.stop(task, **call.author))


@routes("POST", "/tasks/{task_id}/retry")
async def retry_task(call: ApiCall, task_id: str) -> TaskModel:
    """Try a failed, blocked or stopped task again, keeping finished steps"""
    task = await find_task(call, task_id)
    return TaskModel.model_validate(await call.request.services.tasks.retry(task, **call.author))


@routes("POST", "/tasks/{task_id}/rerun")
async def rerun_task(call: ApiCall, task_id: str, body: RerunBody) -> TaskModel:
    """Run again from a node, with changed inputs or outputs; what came before it stays"""
    task = await find_task(call, task_id)
    changes = RerunChanges(inputs=body.inputs, outputs=body.outputs)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.rerun(task, body.node, changes, **call.author))


@routes("POST", "/tasks/{task_id}/priority")
async def set_priority(call: ApiCall, task_id: str, body: PriorityBody) -> TaskModel:
    """Change the priority"""
    task = await find_task(call, task_id)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.set_priority(task, body.priority, **call.author))


@routes("POST", "/tasks/{task_id}/messages")
async def send_message(call: ApiCall, task_id: str, body: TextBody) -> TaskModel:
    """Send the worker a message for its next step"""
    task = await find_task(call, task_id)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.send_message(task, body.text, **call.author))


@routes("POST", "/tasks/{task_id}/steps")
async def inject_steps(call: ApiCall, task_id: str, body: StepsBody) -> TaskModel:
    """Insert steps after the running one"""
    task = await find_task(call, task_id)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.inject(task, tuple(body.steps), **call.author))


@routes("POST", "/tasks/{task_id}/replan")
async def replan_task(call: ApiCall, task_id: str, body: ReasonBody) -> TaskModel:
    """Plan the remaining work again"""
    task = await find_task(call, task_id)
    tasks = call.request.services.tasks
    return TaskModel.model_validate(await tasks.replan(task, body.reason, **call.author))


@routes("POST", "/tasks/{task_id}/eval")
async def evaluate_expression(call: ApiCall, task_id: str, body: ExpressionBody) -> EvaluationModel:
    """The value of an expression in the run's scope, or in the one that a node saw. If it has none,
    `error` says why and `names` what there is"""
    task = await find_task(call, task_id)
    runs, language = call.request.services.run_expressions, call.request.words.language
    found = await runs.evaluate(task, body.expression, language, body.node)
    return EvaluationModel.model_validate(found)


@routes("GET", "/tasks/{task_id}/events")
async def list_task_events(call: ApiCall, task_id: str) -> EventList:
    """The newest hundred events of a task, oldest first"""
    task = await find_task(call, task_id)
    events = await call.request.services.tasks.events(task.id, 100)
    return EventList(events=[EventModel.model_validate(each) for each in events])


@routes("GET", "/tasks/{task_id}/graph")
async def show_graph(call: ApiCall, task_id: str, query: VersionQuery) -> GraphModel:
    """A plan, the current one without `version`; version 0 while there is none"""
    task, tasks = await find_task(call, task_id), call.request.services.tasks
    graph = await tasks.get_graph(task, version=query.version)
    if graph is None:
        return GraphModel(version=0, author="", reason="", body={}, discarded=[])
    discarded = await tasks.list_discarded(task, graph.version)
    return GraphModel(
        version=graph.version,
        author=graph.author,
        reason=graph.reason,
        body=dict(graph.body),
        discarded=[DiscardedRunModel.model_validate(each) for each in discarded],
    )


@routes("GET", "/tasks/{task_id}/nodes")
async def list_nodes(call: ApiCall, task_id: str) -> NodeList:
    """All nodes of the current plan, those to come too"""
    task, tasks = await find_task(call, task_id), call.request.services.tasks
    nodes = [StepModel.model_validate(each) for each in await tasks.list_nodes(task)]
    return NodeList(percent=(await tasks.view(task.id)).percent, nodes=nodes)


@routes("GET", "/tasks/{task_id}/diff")
async def show_diff(call: ApiCall, task_id: str) -> RunDiffModel:
    """Show what was changed in its workflow since the task began"""
    task = await find_task(call, task_id)
    return RunDiffModel.model_validate(await call.request.services.workflows.diff_with_run(task))


@routes("GET", "/tasks/{task_id}/trace")
async def show_trace(call: ApiCall, task_id: str) -> TraceModel:
    """The spans of a task, each after its parent"""
    task = await find_task(call, task_id)
    return TraceModel.model_validate(await call.request.services.traces.get_task_trace(task.id))


async def find_task(call: ApiCall, task_id: str) -> Task:
    """By id or a unique prefix. Raises NotFound also for tasks that may not be seen."""
    request = call.request
    return await request.services.tasks.find(task_id, by=request.person, chat=request.chat.id)


async def _detail(call: ApiCall, task: Task) -> TaskDetailModel:
    view: TaskView = await call.request.services.tasks.view(task.id)
    return TaskDetailModel(
        task=TaskModel.model_validate(view.task),
        instruction=view.task.instruction,
        plan=view.plan,
        steps=[StepModel.model_validate(each) for each in view.steps],
        spent=SpentModel.model_validate(view.spent),
        tasks_ahead=view.tasks_ahead,
    )


def _read_statuses(text: str) -> tuple[TaskStatus, ...]:
    names = [each.strip() for each in text.split(",") if each.strip()]
    try:
        return tuple(map(TaskStatus, names))
    except ValueError as error:
        allowed = ", ".join(TaskStatus)
        wrong = ({"field": "status", "message": f"one of {allowed}"},)
        raise ApiProblem(422, "wrong_fields", fields=wrong, names="status") from error
