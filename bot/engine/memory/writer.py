"""Changes of memories by people: add, edit, forget, pin, move, confirm and reject, one at a time or
in batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from bot.engine.memory.access import ManualMemory, MemoryEditor, copy_source
from bot.engine.memory.candidate_review import CandidateReview, candidate_decider
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.consolidation import MANUAL_CONFIDENCE, MemoryConsolidator, as_manual
from bot.engine.memory.noise_filter import to_storable_text
from bot.engine.memory.promotion import AUTO_PROMOTED_KEY
from storage.db import Database, Transaction
from storage.errors import ConcurrentUpdate, NotAllowed, NotFound
from storage.memory.bulk_import import EntryBatchWriter
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MAX_ENTRY_TEXT,
    OFFERED_TO_KEY,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryRejectionReason,
    MemoryScope,
    MemoryState,
    MemoryTier,
    NewMemoryEntry,
    candidate_digest,
    candidate_source,
    offer_source,
)
from storage.records.memory_evidence import is_ending

_TEXT_BOUND_KEYS = frozenset(
    {"said", "value", "merges", "admission", "support", "support_all", "context"}
)
"""Keys in an entry's `extra` that are valid only for its current text."""

_T = TypeVar("_T")

TransactionHook: TypeAlias = Callable[[Transaction], Awaitable[None]]
"""Additional work in the same transaction."""
BatchTransactionHook: TypeAlias = Callable[
    [Transaction, Sequence[MemoryEntry | MemoryNotSaved | None]], Awaitable[None]
]


@dataclass(kw_only=True)
class MemoryWriter:
    """Every method is one transaction. Raises NotFound for entries the editor cannot see and
    NotAllowed for those they may not change. `redact` removes secrets; `candidate_review` applies
    decisions on candidates."""

    db: Database
    entries: MemoryEntryRepo
    cells: CellRepo
    consolidator: MemoryConsolidator
    candidate_review: CandidateReview
    feed: MemoryChangeFeed
    redact: Callable[[str], str]
    now: Callable[[], datetime]

    async def add(self, memory: ManualMemory, editor: MemoryEditor) -> MemoryEntry:
        """Add a manual entry, also if its text was forgotten before; an existing entry with this
        text becomes manual. Raises MemoryNotSaved."""
        new = self._build_entry(memory, editor)

        async def write(tx: Transaction) -> MemoryEntry:
            return await self.consolidator.add_manual(tx, new, now=self.now())

        return await self._commit(write, new.scope)

    async def add_all(
        self,
        memories: Sequence[ManualMemory],
        editor: MemoryEditor,
        in_transaction: BatchTransactionHook | None = None,
    ) -> Sequence[MemoryEntry | MemoryNotSaved | None]:
        """Add all in one transaction. Results are in order; None means that the text exists and was
        left unchanged."""

        async def write(tx: Transaction) -> Sequence[MemoryEntry | MemoryNotSaved | None]:
            made = [await self._add_if_new(tx, each, editor) for each in memories]
            if in_transaction is not None:
                await in_transaction(tx, made)
            return made

        return await self._commit(write, *{_target_scope(each, editor) for each in memories})

    async def edit(self, entry: MemoryEntry, text: str, editor: MemoryEditor) -> MemoryEntry:
        """Change the text; the entry becomes manual. Raises MemoryNotSaved, and ConcurrentUpdate if
        `entry` is outdated."""
        text = self._clean_text(text)

        async def write(tx: Transaction) -> MemoryEntry:
            held = await self._load_writable(tx, entry.id, editor)
            if held.revision != entry.revision and _visible_state(held) != _visible_state(entry):
                raise ConcurrentUpdate(f"memory {entry.id} was changed meanwhile")
            extra = {
                name: each for name, each in held.extra.items() if name not in _TEXT_BOUND_KEYS
            }
            # A text refused by admission counts once a person wants it.
            refused = held.state is MemoryState.REJECTED
            state = MemoryState.ACTIVE if refused else held.state
            mine = as_manual(held, text=text, abstract="", overview="", extra=extra, state=state)
            return await self.consolidator.change(tx, held, mine, now=self.now())

        return await self._commit(write, entry.scope)

    async def forget(
        self,
        entry: MemoryEntry,
        editor: MemoryEditor,
        *,
        in_transaction: TransactionHook | None = None,
    ) -> int:
        """Delete permanently, with superseded versions and everything derived from it or that it
        alone was derived from, so that the text cannot resurface. What it had only ended holds
        again. Runs `in_transaction` as well.
        Returns the number of entries."""

        async def write(tx: Transaction) -> int:
            held = await self._load_writable(tx, entry.id, editor)
            gone = {held.id: held}
            before = await self.entries.list_predecessors(tx, held)
            ended = [each for each in before if is_ending(held) and each.superseded_by == held.id]
            if ended:
                # What it had ended holds again.
                before = []
            for each in (held, *before, *await self._find_copies(tx, held)):
                kin = [each, *await self.cells.list_restatements(tx, each)]
                gone |= {near.id: near for near in kin if editor.may_write(near.scope)}
            await self.entries.forget(tx, *gone.values(), now=self.now())
            for each in ended:
                await self.entries.restore(tx, each, now=self.now())
            if AUTO_PROMOTED_KEY in held.extra:
                await self.candidate_review.count_undone(tx, held)
            if in_transaction is not None:
                await in_transaction(tx)
            return len(gone)

        return await self._commit(write, entry.scope)

    async def pin(
        self, entry: MemoryEntry, editor: MemoryEditor, *, pinned: bool = True
    ) -> MemoryEntry:
        """Pinned entries are never archived, deleted or superseded automatically."""

        async def write(tx: Transaction) -> MemoryEntry:
            held = await self._load_writable(tx, entry.id, editor)
            if held.pinned == pinned:
                return held
            return await self.entries.update(tx, replace(held, pinned=pinned), now=self.now())

        return await self._commit(write, entry.scope)

    async def move(
        self, entry: MemoryEntry, scope: MemoryScope, editor: MemoryEditor
    ) -> MemoryEntry:
        """Move to another scope; the global scope requires an owner."""
        _require_writable(editor, scope)

        async def write(tx: Transaction) -> MemoryEntry:
            held = await self._load_writable(tx, entry.id, editor)
            extra = {name: each for name, each in held.extra.items() if name != OFFERED_TO_KEY}
            moved = replace(held, scope=scope, origin=MemoryOrigin.MANUAL, extra=extra)
            return await self.consolidator.change(tx, held, moved, now=self.now())

        return await self._commit(write, entry.scope, scope)

    async def categorise(
        self, entry: MemoryEntry, category: MemoryCategory, label: str, editor: MemoryEditor
    ) -> MemoryEntry:
        async def write(tx: Transaction) -> MemoryEntry:
            held = await self._load_writable(tx, entry.id, editor)
            filed = as_manual(held, category=category, label=label)
            return await self.entries.update(tx, filed, now=self.now())

        return await self._commit(write, entry.scope)

    async def confirm(self, candidate: MemoryEntry, editor: MemoryEditor) -> MemoryEntry:
        """Save the candidate as long-term memory. Only its author may decide. Raises
        ConcurrentUpdate if its text has changed."""

        async def write(tx: Transaction) -> MemoryEntry:
            held = await self._load_candidate(tx, candidate, editor)
            return await self.candidate_review.confirm(tx, held)

        return await self._commit(write, candidate.scope)

    async def reject(self, candidate: MemoryEntry, editor: MemoryEditor) -> MemoryEntry:
        """Reject the candidate; it is not proposed again. Raises as `confirm`."""

        async def write(tx: Transaction) -> MemoryEntry:
            return await self.candidate_review.reject(
                tx, await self._load_candidate(tx, candidate, editor)
            )

        return await self._commit(write, candidate.scope)

    async def _load_candidate(
        self, tx: Transaction, candidate: MemoryEntry, editor: MemoryEditor
    ) -> MemoryEntry:
        """Load the current version and check that the editor may decide."""
        held = await self._load_writable(tx, candidate.id, editor)
        if candidate_digest(held) != candidate_digest(candidate):
            raise ConcurrentUpdate(f"memory {held.id} was changed meanwhile")
        if not editor.may_decide(candidate_decider(held)):
            raise NotAllowed("memory", held.id)
        return held

    async def _find_copies(self, tx: Transaction, held: MemoryEntry) -> Sequence[MemoryEntry]:
        """Non-manual entries with the same text in any state, or proposed from this one."""
        said = await self.entries.list_with_same_text(held.scope, held.text, tx=tx)
        found = {each.id: each for each in said if each.id != held.id}
        for source in (candidate_source(held), offer_source(held)):
            proposed = await self.entries.find_by_source(source, tx=tx)
            found |= {} if proposed is None else {proposed.id: proposed}
        return [each for each in found.values() if not each.is_protected]

    async def _add_if_new(
        self, tx: Transaction, memory: ManualMemory, editor: MemoryEditor
    ) -> MemoryEntry | MemoryNotSaved | None:
        try:
            new = self._build_entry(memory, editor)
            if await self.entries.list_with_same_text(new.scope, new.text, tx=tx):
                return None
            return await self.consolidator.add_manual(tx, new, now=self.now())
        except MemoryNotSaved as error:
            return error

    async def _load_writable(
        self, tx: Transaction, entry_id: EntryId, editor: MemoryEditor
    ) -> MemoryEntry:
        held = await self.entries.get(entry_id, editor.scopes, tx=tx)
        _require_writable(editor, held.scope)
        return held

    async def _commit(
        self, write: Callable[[Transaction], Awaitable[_T]], *scopes: MemoryScope
    ) -> _T:
        async with self.db.write() as tx:
            done = await write(tx)
        self.feed.publish(*scopes)
        return done

    def _clean_text(self, text: str) -> str:
        text = self.redact(to_storable_text(text)).strip()
        if not text:
            raise MemoryNotSaved(MemoryRejectionReason.EMPTY)
        if len(text) > MAX_ENTRY_TEXT:
            raise MemoryNotSaved(MemoryRejectionReason.TOO_LONG)
        return text

    def _build_entry(self, memory: ManualMemory, editor: MemoryEditor) -> NewMemoryEntry:
        """Raises MemoryNotSaved, NotFound and NotAllowed."""
        chat = editor.reader.chat if editor.reader is not None else None
        return NewMemoryEntry(
            kind=memory.kind,
            scope=_target_scope(memory, editor),
            text=self._clean_text(memory.text),
            category=memory.category,
            label=self.redact(to_storable_text(memory.label)),
            key=memory.key,
            keywords=tuple(self.redact(to_storable_text(each)) for each in memory.keywords),
            importance=memory.importance,
            confidence=MANUAL_CONFIDENCE,
            tier=MemoryTier.CORE,
            pinned=memory.pinned,
            origin=MemoryOrigin.MANUAL,
            source=memory.source,
            said_at=memory.said_at,
            sender="" if editor.person is None else editor.person.name,
            person=None if editor.person is None else editor.person.id,
            chat=None if chat is None else chat.id,
        )


def _target_scope(wanted: ManualMemory, editor: MemoryEditor) -> MemoryScope:
    """Raises NotFound and NotAllowed."""
    scope = wanted.scope or (editor.reader.write_scope if editor.reader is not None else None)
    if scope is None:
        raise NotFound("memory", "scope")
    _require_writable(editor, scope)
    return scope


def _require_writable(editor: MemoryEditor, scope: MemoryScope) -> None:
    if not editor.may_write(scope):
        raise NotAllowed("memory", str(scope))


def _visible_state(entry: MemoryEntry) -> tuple[object, ...]:
    return entry.text, entry.state, entry.scope


_UNMOVABLE_KINDS = frozenset((MemoryKind.CELL, MemoryKind.EPISODE, MemoryKind.HANDBOOK))
"""Kinds that are bound to their place."""


class MemoryWriteBatch(MemoryWriter):
    """A writer whose changes share one transaction. For a few dozen changes at most, so that other
    writers get their turn."""

    def __init__(self, writer: MemoryWriter) -> None:
        vars(self).update(vars(writer))
        self._stack = AsyncExitStack()
        self._touched_scopes: set[MemoryScope] = set()

    async def __aenter__(self) -> Self:
        self._tx = await self._stack.enter_async_context(self.db.write())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)
        if error is None:
            self.feed.publish(*self._touched_scopes)

    async def add_new_lines(
        self,
        memories: Sequence[ManualMemory],
        scope: MemoryScope,
        editor: MemoryEditor,
        lines: EntryBatchWriter,
    ) -> Sequence[MemoryEntry | MemoryNotSaved]:
        """As `add` for each, all in one scope, with new texts inserted at once."""
        done: dict[int, MemoryEntry | MemoryNotSaved] = {}
        rows: dict[str, tuple[int, NewMemoryEntry]] = {}
        for at, each in enumerate(memories):
            try:
                new = self._build_entry(each, editor)
            except MemoryNotSaved as refusal:
                done[at] = refusal
            else:
                if not each.key and not each.source:
                    rows.setdefault(new.text, (at, new))

        async def write(tx: Transaction) -> Sequence[MemoryEntry]:
            there = await lines.filter_existing_texts(tx, scope, rows)
            fresh = [new for text, (_, new) in rows.items() if text not in there]
            return await lines.add(tx, scope, fresh, now=self.now())

        for made in await self._commit(write, scope):
            done[rows[made.text][0]] = made
        for at, each in enumerate(memories):
            if at not in done:
                done[at] = await self.add(each, editor)
        return [done[at] for at in range(len(memories))]

    async def merge_moved(
        self, entry: MemoryEntry, target: MemoryEntry, editor: MemoryEditor
    ) -> None:
        """`entry` was moved and `target` was created from its text at the new place: `entry` takes
        its place with all its history. If that is impossible, `entry` alone is forgotten."""

        async def write(tx: Transaction) -> None:
            held = await self._load_writable(tx, entry.id, editor)
            copy = await self._load_writable(tx, target.id, editor)
            is_copy = copy.source == copy_source(entry.id)
            if not is_copy or {held.kind, copy.kind} & _UNMOVABLE_KINDS:
                await self.entries.forget(tx, held, now=self.now())
                return
            await self.entries.delete(tx, copy)
            mine = _moved_entry(held, copy, scope=copy.scope, said_at=copy.said_at)
            await self.consolidator.change(tx, held, mine, now=self.now())

        await self._commit(write, entry.scope, target.scope)

    async def move_here(
        self, entry_id: EntryId, memory: ManualMemory, editor: MemoryEditor
    ) -> MemoryEntry | None:
        """Move the active entry with exactly this text and scope to where `memory` puts it. None,
        with nothing changed, if there is none."""
        text, scope = memory.text.strip(), memory.scope

        async def write(tx: Transaction) -> MemoryEntry | None:
            for held in await self.entries.list_by_ids([entry_id], editor.scopes, tx=tx):
                is_it = held.text == text and held.scope == scope
                bound = {held.kind, memory.kind} & _UNMOVABLE_KINDS
                if is_it and held.state is MemoryState.ACTIVE and not bound:
                    said_at = memory.said_at or self.now()
                    mine = _moved_entry(held, memory, scope=held.scope, said_at=said_at)
                    return await self.entries.update(tx, mine, now=self.now())
            return None

        return await self._commit(write, *(() if scope is None else (scope,)))

    async def _commit(
        self, write: Callable[[Transaction], Awaitable[_T]], *scopes: MemoryScope
    ) -> _T:
        self._touched_scopes.update(scopes)
        return await write(self._tx)


def _moved_entry(
    held: MemoryEntry, to: MemoryEntry | ManualMemory, *, scope: MemoryScope, said_at: datetime
) -> MemoryEntry:
    about = to if to.label or to.category is not MemoryCategory.OTHER else held
    return replace(
        held,
        scope=scope,
        kind=to.kind,
        text=to.text.strip(),
        category=about.category,
        label=about.label,
        said_at=said_at if to.kind is MemoryKind.FACT else held.said_at,
        origin=MemoryOrigin.MANUAL,
        pinned=held.pinned or to.pinned,
        extra={name: each for name, each in held.extra.items() if name != OFFERED_TO_KEY},
    )
