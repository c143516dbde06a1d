"""Memory: handbook, profile, entries and candidates, to search, add, edit, pin and forget."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest, form_source, form_text, new_source
from cards import formats
from cards.render.web import render
from cards.views.memory import entry_card, localized_chapter, scope_name, spoken_text
from cards.views.memory_reports import memory_about_card
from handlers.errors import UserError
from handlers.memory_consent import switch_memory
from handlers.ports_workers import HistoryLine, MemoryRequestRejected
from storage.records.memory import (
    MAX_ENTRY_TEXT,
    MemoryDetail,
    MemoryEntry,
    MemoryKind,
    MemoryListFilter,
    MemoryState,
    candidate_digest,
)
from storage.records.people import ChatMemory

PATH = "/dashboard/memory"
_MESSAGES = "messages"
"""Searches what was said, instead of what is remembered."""
_ABOUT = "about"
"""Shows what is known about a name."""
_SCOPES = ("me", "chat", "global")
_MAX_SEARCH = 200
_MAX_FOUND = 40
_MAX_LINE = 240
_MAX_TITLE = 80


async def show_memories(request: DashboardRequest) -> Response:
    query, memory = request.http.query_params, request.services.memory
    kinds = (*map(str, MemoryListFilter), _ABOUT, _MESSAGES)
    kind = query.get("kind", "") if query.get("kind", "") in kinds else str(MemoryListFilter.KNOWN)
    scope = query.get("scope", "") if query.get("scope", "") in _SCOPES else ""
    text = formats.clean_line(query.get("text", ""))[:_MAX_SEARCH].strip()
    rows: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    about, total, later, page = "", 0, "", max(1, request.number("page"))
    if kind == _MESSAGES:
        messages = [_message(each) for each in await _search_messages(request, text)]
        total = len(messages)
    elif kind == _ABOUT:
        groups = await memory.list_about(request.person, request.chat, text)
        total = sum(len(each.entries) for each in groups)
        card = memory_about_card(groups, text, request.words, zone=request.deps.zone)
        about = render(card, request.words).html if text else ""
    elif text:
        wanted = MemoryListFilter(kind)
        found = await memory.search(
            request.person, request.chat, text, kind=wanted, scope=scope, limit=_MAX_FOUND
        )
        rows = [_row(each.entry, request) for each in found]
        total = len(rows)
    else:
        listed = await memory.list(
            request.person, request.chat, MemoryListFilter(kind), scope=scope, page=page
        )
        rows, total = [_row(each, request) for each in listed.entries], listed.total
        if listed.has_more:
            later = "?" + urlencode({"kind": kind, "scope": scope, "page": listed.page + 1})
    return render_page(
        request,
        "memories",
        kind=kind,
        kinds=kinds,
        scope=scope,
        scopes=_SCOPES,
        text=text,
        rows=rows,
        messages=messages,
        about=about,
        total=total,
        later=later,
        new_source=new_source(),
        most=MAX_ENTRY_TEXT,
        mode=request.chat.settings.memory,
    )


async def add_memory(request: DashboardRequest) -> Response:
    """Add an entry, or switch memory in the visitor's chat."""
    form = await request.form()
    if mode := form_text(form, "mode"):
        if mode not in set(ChatMemory):
            raise UserError("form_incomplete", fields=request.words("dashboard.memories.orders"))
        await switch_memory(request.command(form_source(form)), ChatMemory(mode))
        return RedirectResponse(PATH, status_code=303)
    scope = form_text(form, "scope")
    entry = await request.services.memory.add(
        request.person,
        request.chat,
        form_text(form, "text"),
        scope=scope if scope in _SCOPES else "",
        source=form_source(form),
    )
    return RedirectResponse(f"{PATH}/{entry.id}", status_code=303)


async def show_memory(request: DashboardRequest) -> Response:
    return _entry_page(request, await _find(request))


async def change_memory(request: DashboardRequest) -> Response:
    form = await request.form()
    detail = await _find(request)
    entry, memory = detail.entry, request.services.memory
    who, chat, text = request.person, request.chat, form_text(form, "text")
    revision = _read_revision(form_text(form, "revision"))
    match form_text(form, "order"):
        case "edit":
            try:
                await memory.edit(who, chat, entry.id, text, revision=revision)
            except MemoryRequestRejected as rejected:
                if rejected.reason != "changed":
                    raise
                return _entry_page(request, await _find(request), draft=text)
        case "forget":
            source = form_source(form)
            await memory.forget(who, chat, entry.id, source=source, revision=revision)
            return RedirectResponse(PATH, status_code=303)
        case "pin" | "unpin" as order:
            if entry.revision != revision:
                raise MemoryRequestRejected("changed", entry.id)
            await memory.pin(who, chat, entry.id, pinned=order == "pin")
        case "keep" | "drop" as order:
            wording = form_text(form, "wording") or "?"
            await memory.decide(who, chat, entry.id, keep=order == "keep", wording=wording)
        case _:
            raise UserError("form_incomplete", fields=request.words("dashboard.memories.orders"))
    return RedirectResponse(f"{PATH}/{entry.id}", status_code=303)


def _entry_page(request: DashboardRequest, detail: MemoryDetail, *, draft: str = "") -> Response:
    """`draft` was written for an earlier revision: both texts are shown."""
    entry, words = detail.entry, request.words
    card = entry_card(
        entry, words, zone=request.deps.zone, strength=detail.strength, editable=False
    )
    return render_page(
        request,
        "memory",
        entry=entry,
        card=render(card, words).html,
        is_editable=detail.is_editable,
        is_candidate=entry.state is MemoryState.CANDIDATE,
        digest=candidate_digest(entry),
        draft=draft,
        new_source=new_source(),
        most=MAX_ENTRY_TEXT,
        status_code=409 if draft else 200,
    )


def _row(entry: MemoryEntry, request: DashboardRequest) -> dict[str, Any]:
    words, label = request.words, ""
    text = spoken_text(entry)
    if entry.kind is MemoryKind.HANDBOOK:
        label, text = localized_chapter(entry, words)
    return {
        "id": entry.id,
        "label": formats.single_line(label, _MAX_TITLE),
        "text": formats.single_line(text, _MAX_LINE) or entry.id,
        "pinned": entry.pinned,
        "kind": words(f"memory.kind.{entry.kind}"),
        "state": "" if entry.state is MemoryState.ACTIVE else words(f"memory.state.{entry.state}"),
        "scope": scope_name(entry.scope, words),
        "at": entry.said_at,
    }


def _message(line: HistoryLine) -> dict[str, Any]:
    text = formats.single_line(line.text, _MAX_LINE)
    return {"at": line.at, "by_bot": line.by_bot, "text": text, "task": line.task}


async def _search_messages(request: DashboardRequest, text: str) -> list[HistoryLine]:
    if not text:
        return []
    history = request.services.history
    found = await history.search(request.person, request.chat, text.split(), _MAX_FOUND)
    return list(found.lines)


async def _find(request: DashboardRequest) -> MemoryDetail:
    """Raises MemoryRequestRejected also for what may not be seen."""
    entry_id = request.http.path_params["entry_id"]
    return await request.services.memory.show(request.person, request.chat, entry_id)


def _read_revision(text: str) -> int:
    """Never 0, which would mean any revision."""
    usable = text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 - more than there are
    return (int(text) if usable else 0) or -1
