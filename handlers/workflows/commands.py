"""/workflow: named workflows listed, shown, run, checked, kept and thrown away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from cards.views.workflows.data import shelf_data, workflow_data
from cards.views.workflows.forms import NAME
from cards.views.workflows.shelf import shelf_card, workflow_card
from cards.workflow_actions import (
    AskWorkflowName,
    DeleteWorkflow,
    FillWorkflow,
    KeepWorkflow,
    RunWorkflow,
    ShowWorkflow,
    WorkflowAction,
)
from handlers.errors import Usage
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.workflows import keeping, running
from handlers.workflows.keeping import split
from handlers.workflows.refusals import answered
from storage.records.people import ChatKind, Role

commands = Commands("tasks")

_WORDS = {
    **dict.fromkeys(("list", "ls", "列表"), "list"),
    **dict.fromkeys(("show", "get", "查看", "显示"), "show"),
    **dict.fromkeys(("run", "start", "运行", "执行", "启动"), "run"),
    **dict.fromkeys(("save", "keep", "保存", "存为"), "save"),
    **dict.fromkeys(("validate", "check", "检查", "校验"), "validate"),
    **dict.fromkeys(("delete", "remove", "rm", "删除"), "delete"),
}
_FOLDER = "workflows"


@commands(
    "workflow",
    usage="[list | show|run|validate|delete name | save name [task]] [input=value …]",
    aliases=("workflows", "流程", "工作流"),
    verbatim=True,
)
async def workflow(request: Request) -> Reply:
    """List named workflows, run one, or keep a finished task's plan as one."""
    return await answered(request, _ordered(request))


async def pressed(
    request: Request, action: WorkflowAction, card_key: str, form: Mapping[str, str]
) -> Reply:
    """A button or form about workflows; whether this person may press it was checked."""
    return await answered(request, _pressed(request, action, card_key, form))


async def _pressed(
    request: Request, action: WorkflowAction, card_key: str, form: Mapping[str, str]
) -> Reply:
    match action:
        case ShowWorkflow(name=name):
            return await _show(request, name)
        case RunWorkflow(name=name):
            return await running.pressed(request, name)
        case FillWorkflow():
            return await running.filled(request, action, form, card_key)
        case AskWorkflowName(task_id=task_id):
            return await keeping.ask_name(request, task_id)
        case KeepWorkflow(task_id=task_id):
            return await keeping.keep(request, task_id, form.get(NAME, "").strip(), card_key)
        case DeleteWorkflow(name=name):
            return await keeping.deleted(request, name, card_key)
        case _:
            assert_never(action)


async def _ordered(request: Request) -> Reply:
    first, rest = split(request.args)
    word = _WORDS.get(first.casefold(), "") if first else "list"
    if word not in _ORDERS:
        # A name alone says what is meant by it.
        return await running.run(request, first, rest)
    return await _ORDERS[word](request, rest)


async def _list(request: Request, _rest: str = "") -> Reply:
    shelf = await request.services.workflows.shelf()
    private = request.chat.kind is ChatKind.PRIVATE and request.person.role.allows(Role.OWNER)
    card = shelf_card(shelf, request.words, folder=shelf.folder if private else _FOLDER)
    return Reply(card=card, data=shelf_data(shelf, request.words))


async def _run(request: Request, rest: str) -> Reply:
    return await running.run(request, *split(rest))


async def _show(request: Request, rest: str) -> Reply:
    name, _ = split(rest)
    if not name:
        raise Usage("workflow")
    found = await request.services.workflows.find(name)
    drawn = await request.services.workflows.drawn(name, request.words.language)
    owner = request.person.role.allows(Role.OWNER)
    card = workflow_card(found, drawn, request.words, owner=owner)
    return Reply(card=card, data={**workflow_data(found), "mermaid": drawn.mermaid})


_ORDERS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "list": _list,
    "show": _show,
    "run": _run,
    "save": keeping.save,
    "validate": keeping.validate,
    "delete": keeping.delete,
}
