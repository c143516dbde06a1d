"""Memories written, changed, kept and forgotten by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from cards import formats
from cards.model import Tone
from cards.views.errors import notice_card
from cards.views.memory.lines import scope_name
from handlers.errors import UserError
from handlers.flags import flags_of
from handlers.memory.refusals import said
from handlers.request import Reply, Request
from handlers.services.memory import MemoryRefused

_LONGEST_ID = 20


async def add(request: Request, rest: str) -> Reply:
    flags = flags_of(rest, valued=("scope", "for"))
    if not flags.text:
        raise UserError("memory_empty")
    entry = await request.services.memory.add(
        request.person,
        request.chat,
        flags.text,
        scope=flags.options.get("scope", flags.options.get("for", "")),
        source=request.source,
    )
    return said(request, "memory.added", entry)


async def edit(request: Request, rest: str) -> Reply:
    entry_id, text = _id_and(rest)
    if not text:
        raise UserError("memory_how_edit", id=entry_id)
    return await edited(request, entry_id, text)


async def edited(request: Request, entry_id: str, text: str, *, revision: int = 0) -> Reply:
    entry = await request.services.memory.edit(
        request.person, request.chat, entry_id, text, revision=revision
    )
    return said(request, "memory.edited", entry)


async def forget(request: Request, rest: str) -> Reply:
    return await forget_one(request, _id_and(rest)[0])


async def forget_one(request: Request, entry_id: str, *, revision: int = 0) -> Reply:
    try:
        entry = await request.services.memory.forget(
            request.person, request.chat, entry_id, source=request.source, revision=revision
        )
    except MemoryRefused as refusal:
        if refusal.reason != "forgotten":
            raise
        # This very order did it, and died before its answer.
        text = request.words("memory.gone", id=formats.line(entry_id, _LONGEST_ID))
        return Reply(card=notice_card("", text, tone=Tone.GOOD))
    # Without its words: what is answered is kept.
    return said(request, "memory.gone", entry)


async def forgotten(
    request: Request, entry_ids: Sequence[str], revisions: Sequence[int] = ()
) -> Reply:
    """All of them, as they were shown; some may have gone with others, or before. MemoryRefused
    where one says something else by now, or none is left."""
    said_last: Reply | None = None
    for each, revision in zip_longest(entry_ids, revisions, fillvalue=0):
        try:
            said_last = await forget_one(request, str(each), revision=int(revision))
        except MemoryRefused as refusal:
            if refusal.reason == "changed" or (said_last is None and each == entry_ids[-1]):
                raise
    if len(entry_ids) == 1 or said_last is None:
        return said_last or Reply()
    text = request.words("memory.forgotten_all", n=len(entry_ids))
    return replace(said_last, card=notice_card("", text, tone=Tone.GOOD))


async def pinned(request: Request, rest: str) -> Reply:
    return await pin(request, _id_and(rest)[0], pinned=True)


async def unpinned(request: Request, rest: str) -> Reply:
    return await pin(request, _id_and(rest)[0], pinned=False)


async def pin(request: Request, entry_id: str, *, pinned: bool) -> Reply:
    entry = await request.services.memory.pin(request.person, request.chat, entry_id, pinned=pinned)
    return said(request, "memory.pinned" if pinned else "memory.unpinned", entry)


async def move(request: Request, rest: str) -> Reply:
    entry_id, scope = _id_and(rest)
    if not scope:
        raise UserError("memory_how_move", id=entry_id)
    entry = await request.services.memory.move(request.person, request.chat, entry_id, scope)
    return said(request, "memory.moved", entry, scope=scope_name(entry.scope, request.words))


async def decide(request: Request, entry_id: str, *, keep: bool, wording: str = "") -> Reply:
    entry = await request.services.memory.decide(
        request.person, request.chat, entry_id.strip(), keep=keep, wording=wording
    )
    return said(request, "memory.kept" if keep else "memory.dropped", entry)


def _id_and(rest: str) -> tuple[str, str]:
    entry_id, *more = rest.split(maxsplit=1) or [""]
    if not entry_id:
        raise UserError("memory_which")
    return entry_id, "".join(more).strip()
