"""Lists, adds, switches and removes the triggers of workflows, and starts those of messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from cards.views.task_card import task_card
from cards.views.triggers import (
    trigger_added_card,
    trigger_changed_card,
    trigger_data,
    triggers_card,
)
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request
from handlers.workflow_inputs import split_named_values
from storage.records.triggers import NewTrigger, Trigger, TriggerKind

commands = CommandRegistry("tasks")

OWN_FIELDS: Mapping[TriggerKind, tuple[str, ...]] = {
    TriggerKind.MESSAGE: ("pattern", "by"),
    TriggerKind.FILE: ("folder",),
    TriggerKind.WEBHOOK: (),
}
"""The settings of each kind; the others are fixed inputs."""


@commands("trigger", aliases=("triggers", "触发器", "触发"), immediate=True)
async def manage_triggers(request: Request) -> Reply:
    request.require_owner()
    word, _, rest = request.args.strip().partition(" ")
    subcommand = _SUBCOMMANDS.get(word.casefold())
    if subcommand is None:
        raise UsageError("trigger")
    return await subcommand(request, rest.strip())


async def start_by_message(request: Request) -> Reply | None:
    """Start the workflow that this message triggers. None if there is none."""
    if request.forwarded or not request.args.strip():
        return None
    task = await request.services.triggers.on_message(
        request.args, chat=request.chat.id, by=request.person, source=request.origin
    )
    if task is None:
        return None
    view = await request.services.tasks.view(task.id)
    card = task_card(view, request.words, now=request.now)
    return Reply(card=card, key=f"task:{task.id}")


def new_trigger(
    request: Request, kind: TriggerKind, workflow: str, values: Mapping[str, str]
) -> NewTrigger:
    """A trigger for this chat; what is no setting of its kind is a fixed input."""
    own = OWN_FIELDS[kind]
    sender = values.get("by", "").strip() if "by" in own else ""
    return NewTrigger(
        kind=kind,
        workflow=workflow,
        chat_id=request.chat.id,
        owner_id=request.person.id,
        inputs={name: text for name, text in values.items() if name not in own},
        pattern=values.get("pattern", "") if "pattern" in own else "",
        sender="" if sender.casefold() in {"", "anyone", "所有人"} else sender,
        folder=values.get("folder", "") if "folder" in own else "",
    )


async def _list(request: Request, _rest: str) -> Reply:
    views = await request.services.triggers.list()
    data = {"triggers": [trigger_data(each.trigger, each.last) for each in views]}
    return Reply(card=triggers_card(views, request.words, zone=request.zone), data=data)


async def _add(request: Request, rest: str) -> Reply:
    word, _, rest = rest.partition(" ")
    name, _, rest = rest.strip().partition(" ")
    kind = word.casefold()
    if kind not in set(TriggerKind) or not name:
        raise UsageError("trigger")
    if kind == TriggerKind.WEBHOOK and not request.in_private:
        # Its address is a secret.
        raise UserError("only_in_private", command="trigger")
    free, values = split_named_values(rest)
    if free:
        raise UsageError("trigger")
    new = new_trigger(request, TriggerKind(kind), name, values)
    trigger, address = await request.services.triggers.add(new)
    data = trigger_data(trigger, None) | ({"address": address} if address else {})
    return Reply(card=trigger_added_card(trigger, request.words, address=address), data=data)


async def _renew(request: Request, rest: str) -> Reply:
    if not request.in_private:
        raise UserError("only_in_private", command="trigger")
    trigger, address = await request.services.triggers.renew_token(_id(rest))
    data = trigger_data(trigger, None) | {"address": address}
    return Reply(card=trigger_added_card(trigger, request.words, address=address), data=data)


def _changing(
    change: Callable[[Request, str], Awaitable[Trigger]], news: str
) -> Callable[[Request, str], Awaitable[Reply]]:
    async def handle(request: Request, rest: str) -> Reply:
        trigger = await change(request, _id(rest))
        card = trigger_changed_card(trigger, request.words, news=news)
        return Reply(card=card, data=trigger_data(trigger, None) | {"change": news})

    return handle


def _id(rest: str) -> str:
    if not rest.strip():
        raise UsageError("trigger")
    return rest.strip()


async def _switch_on(request: Request, prefix: str) -> Trigger:
    return await request.services.triggers.set_enabled(prefix, enabled=True)


async def _switch_off(request: Request, prefix: str) -> Trigger:
    return await request.services.triggers.set_enabled(prefix, enabled=False)


async def _remove(request: Request, prefix: str) -> Trigger:
    return await request.services.triggers.remove(prefix)


_SUBCOMMANDS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    **dict.fromkeys(("", "list", "列表"), _list),
    **dict.fromkeys(("add", "添加"), _add),
    **dict.fromkeys(("on", "开", "启用"), _changing(_switch_on, "on")),
    **dict.fromkeys(("off", "关", "停用"), _changing(_switch_off, "off")),
    **dict.fromkeys(("remove", "delete", "删除"), _changing(_remove, "removed")),
    **dict.fromkeys(("token", "令牌"), _renew),
}
