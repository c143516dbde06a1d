"""Handles the versions of named workflows: /workflow versions, diff and rollback."""

from __future__ import annotations

import logging

from cards import formats
from cards.actions import RollBackWorkflow, ShowWorkflowDiff
from cards.views.prompts import prompt_diff_card
from cards.views.workflow_versions import (
    find_parent,
    versions_data,
    workflow_rolled_back_card,
    workflow_versions_card,
)
from handlers.errors import UsageError, UserError
from handlers.parsing import split_first_word
from handlers.request import Reply, Request
from storage.records.prompt_versions import WorkflowVersions
from storage.records.workflows import NamedWorkflow, WorkflowRefusalReason, WorkflowRefused

log = logging.getLogger(__name__)

_MAX_NUMBER = 9
_COMPARED = 2
_MAX_SHOWN = 40


async def store_workflow(
    request: Request,
    name: str,
    text: str,
    *,
    via: str = "",
    reason: str = "",
    replace: bool = False,
    based_on: str = "",
) -> NamedWorkflow:
    """Save for an owner, with a line in the log. Parameters are those of the port; `via` is the
    chat's platform by default."""
    request.require_owner()
    saved = await request.services.workflow_history.save(
        name,
        text,
        by=request.person,
        via=via or str(request.chat.channel),
        reason=reason,
        replace=replace,
        based_on=based_on,
    )
    log.info("Workflow %s was saved by person %s", name, request.person.id)
    return saved


async def restore_version(
    request: Request, name: str, number: int, *, via: str = "", based_on: str = ""
) -> NamedWorkflow:
    """Roll back for an owner, with a line in the log. Parameters are those of the port."""
    request.require_owner()
    saved = await request.services.workflow_history.roll_back(
        name,
        number,
        by=request.person,
        via=via or str(request.chat.channel),
        based_on=based_on,
    )
    if saved is None:
        raise UserError("workflow_same_version", name=name, number=number)
    log.info("Workflow %s was rolled back to %d by person %s", name, number, request.person.id)
    return saved


async def show_versions(request: Request, rest: str) -> Reply:
    name, more = split_first_word(rest)
    if not name or more:
        raise UsageError("workflow")
    found = await _find(request, name)
    card = workflow_versions_card(found, request.words, zone=request.zone, owner=request.by_owner)
    return Reply(card=card, data=versions_data(found))


async def show_diff(request: Request, rest: str) -> Reply:
    """Without numbers the change of the newest version, with one that of this version, with two the
    difference between them."""
    name, *numbers = rest.split() or [""]
    if not name or len(numbers) > _COMPARED:
        raise UsageError("workflow")
    found = await _find(request, name)
    old, new = find_texts(found, [parse_version(name, each) for each in numbers])
    card = prompt_diff_card(name, old, new, request.words)
    return Reply(card=card, data={"name": found.name, "old": old[0], "new": new[0]})


async def roll_back_command(request: Request, rest: str) -> Reply:
    request.require_owner()
    name, number = split_first_word(rest)
    if not number:
        raise UsageError("workflow")
    return await _roll_back(request, name, parse_version(name, number))


async def handle_version_press(
    request: Request, action: ShowWorkflowDiff | RollBackWorkflow
) -> Reply:
    if isinstance(action, RollBackWorkflow):
        return await _roll_back(request, action.name, action.number)
    return await show_diff(request, f"{action.name} {action.number}")


async def _roll_back(request: Request, name: str, number: int) -> Reply:
    await restore_version(request, name, number)
    found = await _find(request, name)
    newest = found.versions[0].number
    card = workflow_rolled_back_card(name, number, newest, request.words)
    return Reply(card=card, data={"name": name, "restored": number, "version": newest})


def find_texts(
    found: WorkflowVersions, numbers: list[int]
) -> tuple[tuple[int, str], tuple[int, str]]:
    """The two texts to compare, each with its number. Raises WorkflowRefused."""
    wanted = numbers or [found.versions[0].number]
    version = found.find(wanted[-1])
    if version is None:
        raise WorkflowRefused(WorkflowRefusalReason.NO_VERSION, found.name, str(wanted[-1]))
    new = (version.number, version.content)
    if len(wanted) == 1:
        return find_parent(found, version) or (version.parent, ""), new
    other = found.find(wanted[0])
    if other is None:
        raise WorkflowRefused(WorkflowRefusalReason.NO_VERSION, found.name, str(wanted[0]))
    return (other.number, other.content), new


def parse_version(name: str, text: str) -> int:
    """Raises WorkflowRefused for what is no number."""
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_NUMBER:
        shown = formats.single_line(text, _MAX_SHOWN)
        raise WorkflowRefused(WorkflowRefusalReason.NO_VERSION, name, shown)
    return int(text)


async def _find(request: Request, name: str) -> WorkflowVersions:
    try:
        # In another case it is the same workflow; a broken or deleted one has versions too.
        name = (await request.services.workflows.find(name)).name
    except WorkflowRefused as refused:
        if refused.reason is WorkflowRefusalReason.BROKEN:
            name = refused.name
    return await request.services.workflow_history.list_versions(name)
