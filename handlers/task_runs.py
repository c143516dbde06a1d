"""Handles the run of one task: lists all its nodes, compares its workflow with the present one, and
runs parts of it again."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import asdict

from cards.catalog import TextCatalog
from cards.json_data import step_data, task_data
from cards.views.tasks import task_nodes_card
from cards.views.workflows import run_diff_card
from handlers.errors import UsageError, UserError
from handlers.parsing import find_task, split_id, split_task
from handlers.request import CommandRegistry, Reply, Request
from handlers.tasks import task_changed_reply
from handlers.workflows import refusal_error
from storage.records.tasks import RerunChanges, Task
from storage.records.workflows import WorkflowRefusalReason, WorkflowRefused

run_commands = CommandRegistry("steering")

_MAX_DIGITS = 6

_CHANGE = re.compile(
    r'(?:^|(?<=\s))(?:(?P<node>[\w-]+)\.)?(?P<name>[^\W\d]\w{0,63})=(?P<quoted>"(?:[^"\\]|\\.)*")?'
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@run_commands("steps", aliases=("nodes", "步骤", "节点"), immediate=True)
async def list_steps(request: Request) -> Reply:
    task, rest = await split_task(request, "steps")
    services = request.services
    nodes = await services.tasks.list_nodes(task)
    view = await services.tasks.view(task.id)
    trace = await services.traces.get_task_trace(task.id) if task.started_at else None
    pictures = await services.workflows.save_run_pictures(task, trace, request.words.language)
    page = int(rest) if rest.isdecimal() and len(rest) < _MAX_DIGITS else 1
    card = task_nodes_card(view, nodes, pictures, request.words, page=page, now=request.now)
    data = {**task_data(view.task), "percent": view.percent, "nodes": list(map(step_data, nodes))}
    return Reply(card=card, data=data)


@run_commands("diff", aliases=("差异", "对比"), immediate=True)
async def show_run_diff(request: Request) -> Reply:
    task, _ = await split_task(request, "diff")
    try:
        diff = await request.services.workflows.diff_with_run(task)
    except WorkflowRefused as refused:
        raise run_diff_error(task, refused, request.words) from refused
    card = run_diff_card(task, diff, request.words)
    return Reply(card=card, data={"id": task.id, **asdict(diff)})


def run_diff_error(task: Task, refused: WorkflowRefused, words: TextCatalog) -> UserError:
    if refused.reason is WorkflowRefusalReason.NO_PLAN:
        return UserError("diff_planned", id=task.id)
    return refusal_error(refused, words)


@run_commands("rerun", aliases=("重跑", "从此重做"), immediate=True)
async def rerun_command(request: Request) -> Reply:
    first, rest = split_id(request, "rerun")
    task = await find_task(request, first)
    return await task_changed_reply(request, task, await rerun_task(request, task, rest))


async def rerun_task(request: Request, task: Task, text: str) -> str:
    """Run a task again from a node, with what is changed: `review topic="two words"
    write.result=short`. Describes the effect."""
    node, changes = parse_rerun(text)
    if not node:
        raise UsageError("rerun")
    await request.services.tasks.rerun(task, node, changes, **request.author)
    return request.words("moved.reran", node=node)


def parse_rerun(text: str) -> tuple[str, RerunChanges]:
    """The node, and the changes behind it: `name=value` for an input, `node.field=value` for an
    output. A value extends to the next name unless it is quoted."""
    found = list(_CHANGE.finditer(text))
    inputs: dict[str, str] = {}
    outputs: dict[str, dict[str, str]] = defaultdict(dict)
    for each, following in zip(found, [*found[1:], None], strict=False):
        end = len(text) if following is None else following.start()
        rest, quoted = text[each.end() : end].strip(), each["quoted"]
        value = _ESCAPED.sub(r"\1", quoted[1:-1]) if quoted else rest
        if each["node"]:
            outputs[each["node"]][each["name"]] = value
        else:
            inputs[each["name"]] = value
    node = text[: found[0].start()] if found else text
    return node.strip(), RerunChanges(inputs=inputs, outputs=outputs)
