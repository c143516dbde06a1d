"""Asks people whether to keep for long what has nearly earned it: several at once, on one quiet
card at a time, where nobody reads along who should not."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.deciding import (
    ANEW,
    ASKED,
    ENTRIES,
    WORDINGS,
    is_as_shown,
    whose,
)
from cards import formats
from cards.words import Words, words_for
from storage.approvals import Approvals, NewApproval, add_approval
from storage.db import Database
from storage.errors import NotFound, Overtaken, StoreUnavailable
from storage.ids import Ids
from storage.marks import Marks
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.records.approvals import Approval, ApprovalKind
from storage.records.memory.entries import Entry, EntryId, Scope, ScopeKind
from storage.records.memory.offers import offered_to, wording
from storage.records.people import Chat, ChatId, Language, PersonId, Role
from storage.work.asked import withdraw

log = logging.getLogger(__name__)

MOST = 5
ENOUGH = 3
PATIENCE = timedelta(days=1)
"""Fewer than enough are asked about after this long; and no more than one card comes in it."""
_LOOK = 3600.0
_STORE_REST = 5.0
_SHOWN = 400
_ROOM = 850
"""Characters of a card for all of them: nobody should have to allow what is cut off."""
_LONGEST_NAME = 90
_NAME = 60


class CandidateAsker:
    """`show` puts a request before those who may decide it; `spoken` is the language of whoever
    reads in a chat, and raises NotFound for one that is not there."""

    name = "memory-candidates"

    def __init__(
        self,
        *,
        db: Database,
        entries: EntryRepo,
        cells: Cells,
        approvals: Approvals,
        marks: Marks,
        changed: Changed,
        private: Callable[[Role], Awaitable[Sequence[Chat]]],
        show: Callable[[Approval], Awaitable[None]],
        show_settled: Callable[[Sequence[Approval]], Awaitable[None]],
        spoken: Callable[[ChatId], Awaitable[Language]],
        ids: Ids,
        lifetime: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._db = db
        self._entries = entries
        self._cells = cells
        self._approvals = approvals
        self._marks = marks
        self._changed = changed
        self._private = private
        self._show = show
        self._show_settled = show_settled
        self._spoken = spoken
        self._ids = ids
        self._lifetime = lifetime
        self._now = now
        self._shown_again = False

    async def start(self, stack: AsyncExitStack) -> None:
        """Everything that is asked is a row."""

    async def run(self) -> None:
        news = self._changed.listen()
        while True:
            rest = _LOOK
            try:
                await self.look()
            except StoreUnavailable as error:
                log.warning("candidates wait for the store: %s", error)
                rest = _STORE_REST
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await news.wait()

    async def look(self) -> None:
        """Ask what is to be asked, and take back what nobody has to decide any more."""
        found = {each.id: each for each in await self._cells.proposed()}
        waiting = await self._approvals.open_of(ApprovalKind.MEMORY)
        stand = {each.subject for each in waiting} - await self._tidy(waiting, found)
        if not self._shown_again:
            # A crash may have come between asking and showing.
            for approval in waiting:
                if approval.subject in stand:
                    await self._show(approval)
            self._shown_again = True
        for scope, batches in _by_scope([each for each in found.values() if _is_new(each)]):
            if _subject(scope) in stand:
                continue
            for batch in batches:
                if await self._ask(scope, batch):
                    break

    async def _tidy(
        self, waiting: Sequence[Approval], found: dict[EntryId, Entry]
    ) -> frozenset[str]:
        """Take back what is decided, and what says something else by now than what is shown:
        that is asked about anew. What it was about."""
        over: list[Approval] = []
        for approval in waiting:
            held = [found[each] for each in approval.payload.get(ENTRIES, ()) if each in found]
            if held and all(is_as_shown(each, approval) for each in held):
                continue
            why = "memory.reworded" if held else "memory.decided"
            try:
                async with self._db.write() as tx:
                    await withdraw(tx, approval.id, why=why, now=self._now())
                    for each in held:
                        extra = {name: told for name, told in each.extra.items() if name != ASKED}
                        anew = replace(each, extra={**extra, ANEW: True})
                        found[each.id] = await self._entries.change(tx, anew, now=self._now())
            except Overtaken:
                # Changed once more just now: the next look sees how.
                continue
            over.append(approval)
        if over:
            await self._show_settled([await self._approvals.get(each.id) for each in over])
        return frozenset(each.subject for each in over)

    async def _ask(self, scope: Scope, candidates: Sequence[Entry]) -> bool:
        """Whether it is asked now."""
        now = self._now()
        if not await self._is_time(scope, candidates, now):
            return False
        room, approvers = await self._whom(scope, candidates)
        if room is None:
            return False
        asked = _fitting(candidates)
        try:
            words = words_for(await self._spoken(room))
        except NotFound:
            # It came with a backup of another home: nobody is there to be asked.
            return False
        new = NewApproval(
            kind=ApprovalKind.MEMORY,
            chat_id=room,
            title=_title(asked, words),
            detail=_detail(asked, words),
            subject=_subject(scope),
            expires_at=now + self._lifetime,
            approvers=approvers,
            payload={
                ENTRIES: [each.id for each in asked],
                WORDINGS: {each.id: wording(each) for each in asked},
            },
        )
        try:
            async with self._db.write() as tx:
                approval = await add_approval(tx, new, ids=self._ids, now=now)
                for each in asked:
                    extra = {name: told for name, told in each.extra.items() if name != ANEW}
                    told = replace(each, extra={**extra, ASKED: approval.id})
                    await self._entries.change(tx, told, now=now)
                await self._marks.write(tx, _mark(scope), now.isoformat())
        except Overtaken:
            # Somebody has just decided about one of them: the next look sees what is left.
            return False
        await self._show(approval)
        return True

    async def _is_time(self, scope: Scope, candidates: Sequence[Entry], now: datetime) -> bool:
        if any(ANEW in each.extra for each in candidates):
            return True
        last = await self._marks.get(_mark(scope))
        if last is not None and now - datetime.fromisoformat(str(last)) < PATIENCE:
            return False
        waited = any(now - each.created_at >= PATIENCE for each in candidates)
        return len(candidates) >= ENOUGH or waited

    async def _whom(
        self, scope: Scope, candidates: Sequence[Entry]
    ) -> tuple[ChatId | None, tuple[PersonId, ...]]:
        """Where it is asked, and who decides. What is somebody's own is asked in private, what is
        a group's there, of whoever said it; all else of an owner."""
        match scope.kind:
            case ScopeKind.PERSON:
                person = PersonId(scope.name)
                rooms = [chat for chat in await self._rooms() if chat.person_id == person]
                said_in = {each.chat for each in candidates}
                room = next((chat for chat in rooms if chat.id in said_in), None)
                room = room or next(iter(rooms), None)
                return None if room is None else room.id, (person,)
            case ScopeKind.CHAT:
                said_by = whose(candidates[0])
                return ChatId(scope.name), () if said_by is None else (said_by,)
            case _:
                owners = await self._private(Role.OWNER)
                return (owners[0].id if owners else None), ()

    async def _rooms(self) -> Sequence[Chat]:
        return [chat for role in Role for chat in await self._private(role)]


def _is_new(candidate: Entry) -> bool:
    """What does not fit on a card is decided where all of it is read."""
    return ASKED not in candidate.extra and len(candidate.text) <= _SHOWN


def _by_scope(found: Sequence[Entry]) -> Iterator[tuple[Scope, Sequence[Sequence[Entry]]]]:
    """Of each scope what may stand on one card together: what the same person decides about, for
    the same others. The oldest first."""
    scopes: dict[Scope, dict[object, list[Entry]]] = {}
    for each in sorted(found, key=lambda each: (each.scope, each.number)):
        together = whose(each), offered_to(each)
        scopes.setdefault(each.scope, {}).setdefault(together, []).append(each)
    for scope, batches in scopes.items():
        yield scope, tuple(batches.values())


def _title(asked: Sequence[Entry], words: Words) -> str:
    to = offered_to(asked[0])
    if to is None:
        return words("memory.ask_title", n=len(asked))
    return words("memory.share_title", n=len(asked), scope=_named(to, words))


def _detail(asked: Sequence[Entry], words: Words) -> str:
    lines = (f"{n}. {_line(each)}" for n, each in enumerate(asked, start=1))
    to = offered_to(asked[0])
    if to is None:
        return "\n".join([*lines, "", words("memory.ask_hint")])
    hint = words(f"memory.share_hint_{to.kind}", scope=_named(to, words))
    return "\n".join([*lines, "", hint])


def _named(scope: Scope, words: Words) -> str:
    name = scope.name.rstrip("/").rpartition("/")[2] or scope.name
    return words(f"memory.scope.{scope.kind}", name=formats.verbatim(name, _NAME))


def _fitting(candidates: Sequence[Entry]) -> Sequence[Entry]:
    """As many as can be read on one card; the others come another day."""
    kept: list[Entry] = []
    room = _ROOM
    for each in candidates[:MOST]:
        room -= len(_line(each))
        if kept and room < 0:
            break
        kept.append(each)
    return kept


def _line(entry: Entry) -> str:
    return formats.verbatim(formats.line(entry.text, _SHOWN), _SHOWN)


def _subject(scope: Scope) -> str:
    name = str(scope)
    if len(name) > _LONGEST_NAME:
        # The path of a project may be longer than a name can be.
        name = f"{scope.kind}:{hashlib.sha256(name.encode()).hexdigest()}"
    return f"memory:{name}"


def _mark(scope: Scope) -> str:
    return f"asked:{_subject(scope)}"
