"""Review of candidate memories: sends approval requests for them in batches, to the people who may
decide, and applies the decisions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.engine.memory.change_feed import DeferredPublisher, MemoryChangeFeed
from bot.engine.memory.promotion import QualityCounts, QualityMetrics, supersede
from bot.engine.memory.worker_proposals import is_worker_note
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from storage.approvals import ApprovalRepo, NewApproval, add_approval, withdraw_approval
from storage.db import STORE_RETRY_SECONDS, Database, Transaction
from storage.errors import ConcurrentUpdate, NotAllowed, NotFound, StoreUnavailable, WrongState
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.memory import (
    OFFERED_TO_KEY,
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
    candidate_digest,
    offered_scope,
)
from storage.records.memory_evidence import doubt_of
from storage.records.people import Chat, ChatId, Language, PersonId, PersonRole

ENTRIES_KEY = "entries"
"""Payload key of a request: IDs of its candidates."""
WORDINGS_KEY = "wordings"
"""Payload key of a request: the candidates' texts as shown."""
ASKED_KEY, ASK_AGAIN_KEY = "asked", "anew"
"""Keys in a candidate's `extra`: its current request, and that it needs another one."""
_REVIEW_KEYS = frozenset({ASKED_KEY, ASK_AGAIN_KEY, OFFERED_TO_KEY})


@dataclass(slots=True, kw_only=True)
class CandidateReview(DeferredPublisher):
    """Applies decisions on candidates in the caller's transaction, after the caller has checked
    permissions."""

    entries: MemoryEntryRepo
    cells: CellRepo
    quality: QualityMetrics
    now: Callable[[], datetime]

    async def apply_approval(self, tx: Transaction, approval: Approval) -> None:
        """Confirm or reject every candidate that is still open; an expired request leaves them
        proposed. Raises ConcurrentUpdate if a text has changed since it was shown and NotAllowed if
        the decider may not decide about it."""
        if approval.state is ApprovalState.EXPIRED:
            return
        for entry_id in approval.payload.get(ENTRIES_KEY, ()):
            candidate = await self.cells.find(EntryId(str(entry_id)), tx=tx)
            if candidate is None or candidate.state is not MemoryState.CANDIDATE:
                continue
            if not matches_shown_wording(candidate, approval):
                raise ConcurrentUpdate(
                    f"memory {candidate.id} was changed after it was asked about"
                )
            said_by = candidate_decider(candidate)
            if said_by is not None and said_by != approval.decided_by:
                raise NotAllowed("memory", candidate.id)
            if approval.state is ApprovalState.APPROVED:
                await self.confirm(tx, candidate)
            else:
                await self.reject(tx, candidate)

    async def confirm(self, tx: Transaction, candidate: MemoryEntry) -> MemoryEntry:
        """Save the candidate as long-term memory in place of its source fact, or copy it to the
        scope it was offered to."""
        _require_candidate(candidate)
        to = offered_scope(candidate)
        if to is not None:
            return await self._share(tx, candidate, to)
        now = self.now()
        kept = replace(
            candidate,
            state=MemoryState.ACTIVE,
            origin=MemoryOrigin.MANUAL,
            confidence=1.0,
            tier=MemoryTier.CORE,
            supersedes=None,
            extra=_without_review_keys(candidate),
        )
        kept = await self.entries.update(tx, kept, now=now)
        await self._count(tx, QualityCounts(confirmed=1), kept)
        if candidate.supersedes is None:
            return kept
        fact = await self.cells.find(candidate.supersedes, tx=tx)
        if fact is None or fact.state is not MemoryState.ACTIVE:
            return kept
        await self.cells.copy_sources(tx, fact, kept)
        return await supersede(self.entries, tx, fact, kept, now=now)

    async def _share(self, tx: Transaction, candidate: MemoryEntry, to: MemoryScope) -> MemoryEntry:
        """The copy keeps its confidence and omits who said it."""
        self._changed_scopes.add(candidate.scope)
        for there in await self.entries.list_with_same_text(to, candidate.text, tx=tx):
            if there.state is MemoryState.ACTIVE and there.kind is not MemoryKind.CELL:
                await self.entries.delete(tx, candidate)
                await self._count(tx, QualityCounts(confirmed=1), there)
                return there
        await self.entries.remove_tombstone(tx, to, candidate.text)
        copy = replace(
            candidate,
            state=MemoryState.ACTIVE,
            scope=to,
            person=None,
            chat=None,
            extra=_without_review_keys(candidate),
        )
        await self._count(tx, QualityCounts(confirmed=1), copy)
        return await self.entries.update(tx, copy, now=self.now())

    async def reject(self, tx: Transaction, candidate: MemoryEntry) -> MemoryEntry:
        """Drop the candidate, which is not proposed again. The fact that it was raised from is
        forgotten with the words that it was drawn from; of what was only offered to another scope,
        the fact stays."""
        _require_candidate(candidate)
        rejected = replace(candidate, state=MemoryState.REJECTED)
        await self._count(tx, QualityCounts(rejected=1), candidate)
        rejected = await self.entries.update(tx, rejected, now=self.now())
        if offered_scope(candidate) is None and candidate.supersedes is not None:
            fact = await self.cells.find(candidate.supersedes, tx=tx)
            if fact is not None and not fact.is_protected:
                gone = {fact.id: fact}
                for each in (fact, *await self.entries.list_predecessors(tx, fact)):
                    kin = [each, *await self.cells.list_restatements(tx, each)]
                    gone |= {near.id: near for near in kin if near.scope == fact.scope}
                await self.entries.forget(tx, *gone.values(), now=self.now())
        return rejected

    async def count_undone(self, tx: Transaction, entry: MemoryEntry) -> None:
        """Count that a person reverted an automatic promotion."""
        await self._count(tx, QualityCounts(undone=1), entry)

    async def _count(self, tx: Transaction, figures: QualityCounts, entry: MemoryEntry) -> None:
        self._changed_scopes.add(entry.scope)
        await self.quality.add(tx, figures, today=self.now().date())


def candidate_decider(candidate: MemoryEntry) -> PersonId | None:
    """The only person who may decide: the one it is about, in a group the one who said it. None
    means an owner."""
    match candidate.scope.kind:
        case MemoryScopeKind.PERSON:
            return PersonId(candidate.scope.name)
        case MemoryScopeKind.CHAT:
            return candidate.person
    return None


def matches_shown_wording(candidate: MemoryEntry, approval: Approval) -> bool:
    wordings = approval.payload.get(WORDINGS_KEY)
    shown = wordings.get(candidate.id) if isinstance(wordings, dict) else None
    return shown == candidate_digest(candidate)


def _without_review_keys(candidate: MemoryEntry) -> Mapping[str, object]:
    return {name: told for name, told in candidate.extra.items() if name not in _REVIEW_KEYS}


def _require_candidate(entry: MemoryEntry) -> None:
    if entry.state is not MemoryState.CANDIDATE:
        raise WrongState("memory", entry.id, entry.state.value)


log = logging.getLogger(__name__)

MAX_PER_CARD = 5
MIN_BATCH = 3
MAX_WAIT = timedelta(days=1)
"""Longest wait before a batch smaller than `MIN_BATCH` is requested, and shortest time between two
cards."""
_POLL_SECONDS = 3600.0
_MAX_SHOWN_CHARS = 400
_MAX_CARD_CHARS = 850
"""Limit for all candidates on one card, so that people approve no truncated text."""
_MAX_SUBJECT_CHARS = 90
_MAX_SCOPE_CHARS = 60


@dataclass(slots=True, kw_only=True)
class CandidateApprovalRequester:
    """A service that requests decisions on candidates. `show_approval` publishes a request to its
    approvers; `language_of` raises NotFound for an unknown chat."""

    name = "memory-candidates"

    db: Database
    entries: MemoryEntryRepo
    cells: CellRepo
    approvals: ApprovalRepo
    key_values: KeyValueStore
    feed: MemoryChangeFeed
    private_chats_of: Callable[[PersonRole], Awaitable[Sequence[Chat]]]
    show_approval: Callable[[Approval], Awaitable[None]]
    show_settled_approvals: Callable[[Sequence[Approval]], Awaitable[None]]
    language_of: Callable[[ChatId], Awaitable[Language]]
    ids: IdGenerator
    lifetime: timedelta
    now: Callable[[], datetime]
    _reshown: bool = field(default=False, init=False)

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None:
        news = self.feed.subscribe()
        while True:
            rest = _POLL_SECONDS
            try:
                await self.request_due()
            except StoreUnavailable as error:
                log.warning("candidates wait for the store: %s", error)
                rest = STORE_RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await news.wait()

    async def request_due(self) -> None:
        """Send due requests and withdraw those that no longer need a decision."""
        found = {each.id: each for each in await self.cells.list_candidates()}
        waiting = await self.approvals.list_waiting_of_kind(ApprovalKind.MEMORY)
        stand = {each.subject for each in waiting} - await self._withdraw_stale(waiting, found)
        if not self._reshown:
            # A crash may have happened between storing a request and showing it.
            for approval in waiting:
                if approval.subject in stand:
                    await self.show_approval(approval)
            self._reshown = True
        for scope, batches in _group_by_scope(
            [each for each in found.values() if _is_unasked(each)]
        ):
            if _approval_subject(scope) in stand:
                continue
            for batch in batches:
                if await self._request(scope, batch):
                    break

    async def _withdraw_stale(
        self, waiting: Sequence[Approval], found: dict[EntryId, MemoryEntry]
    ) -> frozenset[str]:
        """Withdraw requests whose candidates are decided or have changed text; changed ones are
        requested again. Returns the IDs concerned."""
        over: list[Approval] = []
        for approval in waiting:
            held = [found[each] for each in approval.payload.get(ENTRIES_KEY, ()) if each in found]
            if held and all(matches_shown_wording(each, approval) for each in held):
                continue
            why = "memory.reworded" if held else "memory.decided"
            try:
                async with self.db.write() as tx:
                    await withdraw_approval(tx, approval.id, reason_key=why, now=self.now())
                    for each in held:
                        extra = {
                            name: told for name, told in each.extra.items() if name != ASKED_KEY
                        }
                        anew = replace(each, extra={**extra, ASK_AGAIN_KEY: True})
                        found[each.id] = await self.entries.update(tx, anew, now=self.now())
            except ConcurrentUpdate:
                # Changed concurrently; the next pass handles it.
                continue
            over.append(approval)
        if over:
            await self.show_settled_approvals([await self.approvals.get(each.id) for each in over])
        return frozenset(each.subject for each in over)

    async def _request(self, scope: MemoryScope, candidates: Sequence[MemoryEntry]) -> bool:
        """Returns whether a request was sent."""
        now = self.now()
        if not await self._is_due(scope, candidates, now):
            return False
        room, approvers = await self._find_approvers(scope, candidates)
        if room is None:
            return False
        asked = _fit_on_card(candidates)
        try:
            words = catalog_for(await self.language_of(room))
        except NotFound:
            # The scope was restored from another installation's backup and has no approver here.
            return False
        new = NewApproval(
            kind=ApprovalKind.MEMORY,
            chat_id=room,
            title=_card_title(asked, words),
            detail=_card_detail(asked, words),
            subject=_approval_subject(scope),
            expires_at=now + self.lifetime,
            approvers=approvers,
            payload={
                ENTRIES_KEY: [each.id for each in asked],
                WORDINGS_KEY: {each.id: candidate_digest(each) for each in asked},
            },
        )
        try:
            async with self.db.write() as tx:
                approval = await add_approval(tx, new, ids=self.ids, now=now)
                for each in asked:
                    extra = {
                        name: told for name, told in each.extra.items() if name != ASK_AGAIN_KEY
                    }
                    told = replace(each, extra={**extra, ASKED_KEY: approval.id})
                    await self.entries.update(tx, told, now=now)
                await self.key_values.write(tx, _last_asked_key(scope), now.isoformat())
        except ConcurrentUpdate:
            # One candidate was decided concurrently; the next pass handles the rest.
            return False
        await self.show_approval(approval)
        return True

    async def _is_due(
        self, scope: MemoryScope, candidates: Sequence[MemoryEntry], now: datetime
    ) -> bool:
        if any(ASK_AGAIN_KEY in each.extra for each in candidates):
            return True
        last = await self.key_values.get(_last_asked_key(scope))
        if last is not None and now - datetime.fromisoformat(str(last)) < MAX_WAIT:
            return False
        waited = any(now - each.created_at >= MAX_WAIT for each in candidates)
        return len(candidates) >= MIN_BATCH or waited

    async def _find_approvers(
        self, scope: MemoryScope, candidates: Sequence[MemoryEntry]
    ) -> tuple[ChatId | None, tuple[PersonId, ...]]:
        """Chat and approvers of a request: a person's own candidates go to their private chat, a
        group's to the group and the people who said them, all others to an owner."""
        match scope.kind:
            case MemoryScopeKind.PERSON:
                person = PersonId(scope.name)
                rooms = [chat for chat in await self._private_chats() if chat.person_id == person]
                said_in = {each.chat for each in candidates}
                room = next((chat for chat in rooms if chat.id in said_in), None)
                room = room or next(iter(rooms), None)
                return None if room is None else room.id, (person,)
            case MemoryScopeKind.CHAT:
                said_by = candidate_decider(candidates[0])
                return ChatId(scope.name), () if said_by is None else (said_by,)
            case _:
                owners = await self.private_chats_of(PersonRole.OWNER)
                return (owners[0].id if owners else None), ()

    async def _private_chats(self) -> Sequence[Chat]:
        return [chat for role in PersonRole for chat in await self.private_chats_of(role)]


def _is_unasked(candidate: MemoryEntry) -> bool:
    """Candidates too long for a card are decided in the full list instead."""
    return ASKED_KEY not in candidate.extra and len(candidate.text) <= _MAX_SHOWN_CHARS


def _group_by_scope(
    found: Sequence[MemoryEntry],
) -> Iterator[tuple[MemoryScope, Sequence[Sequence[MemoryEntry]]]]:
    """Candidates of each scope grouped by approver and offered scope, oldest first."""
    scopes: dict[MemoryScope, dict[object, list[MemoryEntry]]] = {}
    for each in sorted(found, key=lambda each: (each.scope, each.number)):
        together = candidate_decider(each), offered_scope(each)
        scopes.setdefault(each.scope, {}).setdefault(together, []).append(each)
    for scope, batches in scopes.items():
        yield scope, tuple(batches.values())


def _card_title(asked: Sequence[MemoryEntry], words: TextCatalog) -> str:
    to = offered_scope(asked[0])
    if to is None:
        return words("memory.ask_title", n=len(asked))
    return words("memory.share_title", n=len(asked), scope=_scope_label(to, words))


def _card_detail(asked: Sequence[MemoryEntry], words: TextCatalog) -> str:
    lines = []
    for n, each in enumerate(asked, start=1):
        line = f"{n}. {_card_line(each)}{_doubt_note(each, words)}"
        by_worker = is_worker_note(each)
        lines.append(words("memory.proposed_by", text=line, task=each.task) if by_worker else line)
    to = offered_scope(asked[0])
    if to is None:
        return "\n".join([*lines, "", words("memory.ask_hint")])
    hint = words(f"memory.share_hint_{to.kind}", scope=_scope_label(to, words))
    return "\n".join([*lines, "", hint])


def _doubt_note(entry: MemoryEntry, words: TextCatalog) -> str:
    doubt = doubt_of(entry)
    return "" if doubt is None else f" ({words(f'memory.doubt.{doubt}')})"


def _scope_label(scope: MemoryScope, words: TextCatalog) -> str:
    name = scope.name.rstrip("/").rpartition("/")[2] or scope.name
    return words(f"memory.scope.{scope.kind}", name=formats.escape_markdown(name, _MAX_SCOPE_CHARS))


def _fit_on_card(candidates: Sequence[MemoryEntry]) -> Sequence[MemoryEntry]:
    """As many candidates as fit on one card; the rest follow later."""
    kept: list[MemoryEntry] = []
    room = _MAX_CARD_CHARS
    for each in candidates[:MAX_PER_CARD]:
        room -= len(_card_line(each))
        if kept and room < 0:
            break
        kept.append(each)
    return kept


def _card_line(entry: MemoryEntry) -> str:
    return formats.escape_markdown(
        formats.single_line(entry.text, _MAX_SHOWN_CHARS), _MAX_SHOWN_CHARS
    )


def _approval_subject(scope: MemoryScope) -> str:
    name = str(scope)
    if len(name) > _MAX_SUBJECT_CHARS:
        # A project path may exceed the length limit of a name.
        name = f"{scope.kind}:{hashlib.sha256(name.encode()).hexdigest()}"
    return f"memory:{name}"


def _last_asked_key(scope: MemoryScope) -> str:
    return f"asked:{_approval_subject(scope)}"
