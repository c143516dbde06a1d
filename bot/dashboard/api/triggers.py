"""Triggers: what starts a workflow besides people and schedules. For owners."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from bot.dashboard.api.routing import ApiCall, ApiModel, ApiRoutes, Words
from cards.views.triggers import trigger_data
from handlers.triggers import new_trigger
from storage.records.people import PersonRole
from storage.records.triggers import Trigger, TriggerFiring, TriggerKind

routes = ApiRoutes("triggers")


class TriggerModel(ApiModel):
    """`last_note` says why the last event has started nothing."""

    id: str
    kind: TriggerKind
    workflow: str
    chat: str
    enabled: bool
    pattern: str
    by: str
    folder: str
    inputs: dict[str, str]
    last_task: str | None
    last_note: str
    last_fired: str | None


class AddedTrigger(TriggerModel):
    """`address` is that of a webhook, shown only in this answer."""

    address: str = ""


class TriggerList(ApiModel):
    triggers: list[TriggerModel]


class NewTriggerBody(ApiModel):
    """`pattern` and `by` are of messages, `folder` is of files; `inputs` are fixed."""

    kind: TriggerKind
    workflow: Annotated[Words, StringConstraints(min_length=1, max_length=64)]
    pattern: Words = ""
    by: Words = ""
    folder: Words = ""
    inputs: dict[str, Words] = Field(default_factory=dict)


class TriggerChangeBody(ApiModel):
    """`token` gives a webhook another address."""

    action: Literal["on", "off", "token"]


@routes("GET", "/triggers", role=PersonRole.OWNER)
async def list_triggers(call: ApiCall) -> TriggerList:
    """All triggers, oldest first"""
    views = await call.request.services.triggers.list()
    return TriggerList(triggers=[TriggerModel(**_data(each.trigger, each.last)) for each in views])


@routes("POST", "/triggers", status=201, role=PersonRole.OWNER)
async def add_trigger(call: ApiCall, body: NewTriggerBody) -> AddedTrigger:
    """Let messages of your web chat, new files or a webhook start a workflow"""
    own = {"pattern": body.pattern, "by": body.by, "folder": body.folder}
    values = {**body.inputs, **{name: text for name, text in own.items() if text}}
    new = new_trigger(call.command, body.kind, body.workflow, values)
    trigger, address = await call.request.services.triggers.add(new)
    return AddedTrigger(**_data(trigger, None), address=address)


@routes("POST", "/triggers/{trigger_id}", role=PersonRole.OWNER)
async def change_trigger(call: ApiCall, trigger_id: str, body: TriggerChangeBody) -> AddedTrigger:
    """Switch a trigger on or off, or replace a webhook's address"""
    triggers, address = call.request.services.triggers, ""
    if body.action == "token":
        trigger, address = await triggers.renew_token(trigger_id)
    else:
        trigger = await triggers.set_enabled(trigger_id, enabled=body.action == "on")
    return AddedTrigger(**_data(trigger, None), address=address)


@routes("DELETE", "/triggers/{trigger_id}", status=204, role=PersonRole.OWNER)
async def remove_trigger(call: ApiCall, trigger_id: str) -> None:
    """Remove a trigger; tasks that it has started go on"""
    await call.request.services.triggers.remove(trigger_id)


def _data(trigger: Trigger, last: TriggerFiring | None) -> dict[str, Any]:
    return trigger_data(trigger, last)
