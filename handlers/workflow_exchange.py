"""Handles workflows as single documents, and the gallery: /workflow export, import and gallery."""

from __future__ import annotations

import logging

from cards import formats
from cards.actions import ImportWorkflow, InstallWorkflow
from cards.views.workflow_exchange import (
    export_card,
    gallery_card,
    gallery_workflow_card,
    import_card,
    import_data,
    imported_card,
)
from cards.views.workflows import workflow_data
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.parsing import split_first_word
from handlers.request import Reply, Request
from storage.records.people import Language
from storage.records.workflows import ImportPlan, WorkflowRefusalReason, WorkflowRefused

log = logging.getLogger(__name__)

_INSTALL_WORDS = {"install", "add", "安装"}
_SHOW_WORDS = {"show", "查看"}
_MAX_SHOWN = 40


async def export_command(request: Request, rest: str) -> Reply:
    """For owners: it shows the whole text of a workflow."""
    request.require_owner()
    flags = parse_flags(rest, bare=("with-dependencies", "all"))
    name, more = split_first_word(flags.text)
    after = parse_flags(more, bare=("with-dependencies", "all"))
    if not name or after.text:
        raise UsageError("workflow")
    whole = bool({**flags.options, **after.options})
    found = await request.services.workflow_exchange.export(name, with_dependencies=whole)
    data = {"name": found.name, "text": found.text}
    return Reply(card=export_card(found, request.words), data=data)


async def import_command(request: Request, rest: str) -> Reply:
    """Show what the document would do; with `--yes` do it."""
    request.require_owner()
    flags = parse_flags(rest, bare=("yes", "replace"), valued=("as",))
    text, file = flags.text, next(iter(request.files), "")
    if file:
        text = await request.services.workflows.read_file(file)
    if not text.strip():
        raise UsageError("workflow")
    as_name = flags.options.get("as", "")
    if "yes" in flags.options:
        replace = "replace" in flags.options
        return await _apply(request, text, as_name=as_name, replace=replace)
    plan = await request.services.workflow_exchange.plan_import(text, as_name=as_name)
    action = None
    if file and not plan.is_broken:
        action = ImportWorkflow(
            file=file, hash=plan.hash, as_name=as_name, replace=plan.has_conflicts
        )
    card = import_card(plan, request.words, action=action)
    return Reply(card=card, good=not plan.is_broken, data=import_data(plan, request.words))


async def import_by_button(request: Request, action: ImportWorkflow) -> Reply:
    """The document is the one that was shown."""
    request.require_owner()
    text = await request.services.workflows.read_file(action.file)
    return await _apply(
        request,
        text,
        as_name=action.as_name,
        replace=action.replace,
        expected=action.hash,
    )


async def gallery_command(request: Request, rest: str) -> Reply:
    word, more = split_first_word(rest)
    exchange, language = request.services.workflow_exchange, request.words.language
    if not word:
        found = await exchange.list_gallery(language)
        data = {"workflows": [workflow_data(each.workflow) for each in found]}
        card = gallery_card([each.workflow for each in found], request.words)
        return Reply(card=card, data=data)
    if word.casefold() in _INSTALL_WORDS:
        name, rest = split_first_word(more)
        flags = parse_flags(rest, valued=("lang",))
        chosen = flags.options.get("lang", "")
        spoken = Language(chosen) if chosen in set(Language) else language
        return await install(request, name, flags.text, spoken)
    if word.casefold() in _SHOW_WORDS:
        word = more
    item = await exchange.find_in_gallery(word, language)
    card = gallery_workflow_card(item, request.words, owner=request.by_owner)
    return Reply(card=card, data={**workflow_data(item.workflow), "text": item.text})


async def install(
    request: Request, name: str, as_name: str = "", language: Language | None = None
) -> Reply:
    """Save a workflow of the gallery; again, it changes nothing."""
    request.require_owner()
    if not name:
        raise UsageError("workflow")
    language = language or request.words.language
    item = await request.services.workflow_exchange.find_in_gallery(name, language)
    return await _apply(request, item.document, via="gallery", as_name=as_name)


async def apply_import(
    request: Request,
    text: str,
    *,
    via: str,
    as_name: str = "",
    replace: bool = False,
    expected: str = "",
) -> ImportPlan:
    """Import for an owner, with a line in the log. Parameters are those of the port."""
    request.require_owner()
    plan = await request.services.workflow_exchange.apply_import(
        text,
        by=request.person,
        via=via,
        as_name=as_name,
        replace=replace,
        expected=expected,
    )
    log.info("Workflow %s was imported by person %s", plan.name, request.person.id)
    return plan


async def _apply(
    request: Request,
    text: str,
    *,
    via: str = "import",
    as_name: str = "",
    replace: bool = False,
    expected: str = "",
) -> Reply:
    try:
        plan = await apply_import(
            request, text, via=via, as_name=as_name, replace=replace, expected=expected
        )
    except WorkflowRefused as refused:
        if refused.reason is not WorkflowRefusalReason.EXISTS:
            raise
        name = formats.single_line(refused.name, _MAX_SHOWN)
        key = "workflow_install_exists" if via == "gallery" else "workflow_import_exists"
        raise UserError(key, name=name) from refused
    workflow = await request.services.workflows.find(plan.name)
    card = imported_card(plan, workflow, request.words)
    return Reply(card=card, data={**import_data(plan, request.words), "imported": True})


async def handle_exchange_press(
    request: Request, action: ImportWorkflow | InstallWorkflow
) -> Reply:
    if isinstance(action, ImportWorkflow):
        return await import_by_button(request, action)
    return await install(request, action.name)
