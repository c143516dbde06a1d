"""Memory: list, search, add, edit and forget what you may see."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints

from bot.dashboard.api.routing import (
    ApiCall,
    ApiModel,
    ApiProblem,
    ApiRoutes,
    Line,
    PageQuery,
    Words,
    make_cursor,
    read_cursor,
)
from handlers.memory_consent import switch_memory
from handlers.ports_workers import MemoryRequestRejected
from storage.records.memory import MAX_ENTRY_TEXT, MemoryListFilter
from storage.records.people import ChatMemory

routes = ApiRoutes("memory")
_MAX_DIGITS = 18
_Fact = Annotated[Words, StringConstraints(min_length=1, max_length=MAX_ENTRY_TEXT, pattern=r"\S")]


class MemoryModel(ApiModel):
    """`revision` grows with each change: name the one that an edit is based on."""

    id: str
    revision: int
    kind: str
    scope: Annotated[str, BeforeValidator(str)]
    text: str
    category: str
    state: str
    about: str = Field(default="", description="which of several of one name, if asked `about`")
    valid_from: datetime
    valid_until: datetime | None
    pinned: bool
    created_at: datetime
    updated_at: datetime


class MemoryList(ApiModel):
    """`next` is the cursor of the next page, null on the last one; a search has one page."""

    memories: list[MemoryModel]
    total: int
    next: str | None = None


class MemoryQuery(PageQuery):
    text: Line = Field(default="", description="search by words and meaning; without it, a list")
    about: Line = Field(
        default="", description="what names a person, project or place, the past included"
    )
    kind: MemoryListFilter = MemoryListFilter.KNOWN
    scope: Line = ""


class NewMemoryBody(ApiModel):
    """`scope` is `me`, `chat`, `project`, `global` or a scope's name."""

    text: _Fact
    scope: Line = ""


class MemoryModeModel(ApiModel):
    mode: ChatMemory


class MemoryBody(ApiModel):
    text: _Fact
    revision: int = Field(ge=1)


@routes("GET", "/memory")
async def list_memories(call: ApiCall, query: MemoryQuery) -> MemoryList:
    """Memories, newest first, or those that a search finds"""
    request, memory = call.request, call.request.services.memory
    if query.about.strip():
        groups = await memory.list_about(request.person, request.chat, query.about)
        named = [
            MemoryModel.model_validate(each).model_copy(update={"about": group.description})
            for group in groups
            for each in group.entries
        ]
        return MemoryList(memories=named, total=len(named))
    if query.text.strip():
        found = await memory.search(
            request.person, request.chat, query.text, kind=query.kind, scope=query.scope, limit=50
        )
        entries = [MemoryModel.model_validate(each.entry) for each in found]
        return MemoryList(memories=entries, total=len(entries))
    page = await memory.list_newest(
        request.person,
        request.chat,
        query.kind,
        scope=query.scope,
        before=_read_number(query.cursor),
        limit=query.limit,
    )
    return MemoryList(
        memories=[MemoryModel.model_validate(each) for each in page.entries],
        total=page.total,
        next=make_cursor(str(page.entries[-1].number)) if page.has_more else None,
    )


@routes("POST", "/memory", status=201)
async def add_memory(call: ApiCall, body: NewMemoryBody) -> MemoryModel:
    """Remember something"""
    request = call.request
    entry = await request.services.memory.add(
        request.person, request.chat, body.text, scope=body.scope, source=call.source
    )
    return MemoryModel.model_validate(entry)


@routes("GET", "/memory/mode")
async def show_memory_mode(call: ApiCall) -> MemoryModeModel:
    """Whether your chat has memory"""
    return MemoryModeModel(mode=call.request.chat.settings.memory)


@routes("PUT", "/memory/mode")
async def switch_memory_mode(call: ApiCall, body: MemoryModeModel) -> MemoryModeModel:
    """Turn memory on or off in your chat, or go incognito until a new conversation is begun"""
    await switch_memory(call.command, body.mode)
    return body


@routes("GET", "/memory/{entry_id}")
async def show_memory(call: ApiCall, entry_id: str) -> MemoryModel:
    """A memory"""
    request = call.request
    detail = await request.services.memory.show(request.person, request.chat, entry_id)
    return MemoryModel.model_validate(detail.entry)


@routes("PUT", "/memory/{entry_id}")
async def edit_memory(call: ApiCall, entry_id: str, body: MemoryBody) -> MemoryModel:
    """Reword a memory, unless it has changed since that revision"""
    request = call.request
    entry = await request.services.memory.edit(
        request.person, request.chat, entry_id, body.text, revision=body.revision
    )
    return MemoryModel.model_validate(entry)


@routes("DELETE", "/memory/{entry_id}")
async def forget_memory(call: ApiCall, entry_id: str) -> None:
    """Forget a memory for good"""
    request = call.request
    try:
        await request.services.memory.forget(
            request.person, request.chat, entry_id, source=call.source
        )
    except MemoryRequestRejected as rejected:
        # `forgotten` by the same call before, whose answer was lost.
        if rejected.reason != "forgotten":
            raise


def _read_number(cursor: str) -> int | None:
    if not cursor:
        return None
    (number,) = read_cursor(cursor, 1)
    if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS):
        raise ApiProblem(400, "bad_cursor")
    return int(number)
