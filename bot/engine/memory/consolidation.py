"""The one write path of facts, explicit statements and manual entries: decides whether a proposed
entry is added, supports, extends or supersedes an existing one, or is ignored, and does so in the
caller's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from bot.engine.memory.extraction import KEYED_CATEGORIES, MemoryFact
from bot.engine.memory.fact_matching import (
    MIN_SHARED_TERMS,
    FactComparison,
    FactDecision,
    FactVerdict,
    SimilarEntry,
    decide_by_rules,
    merge_count,
    restrict_verdict,
)
from bot.engine.memory.promotion import FactPromoter, propose_sharing, retract_proposals, supersede
from bot.engine.memory.similarity import merge_lines, term_jaccard
from storage.db import Transaction
from storage.memory.cells import DERIVED_FROM, CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    GENERAL_CONTEXT,
    PERSONAL_CATEGORIES,
    FactSupport,
    MemoryEntry,
    MemoryKind,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryRejectionReason,
    MemoryScope,
    MemoryState,
    NewMemoryEntry,
    support_from_extra,
    text_hash,
)
from storage.records.memory_evidence import GroundingDoubt
from storage.search.inverted_index import InvertedIndex
from storage.search.terms import tokenize

if TYPE_CHECKING:
    from bot.engine.memory.said_endings import EndedClaim

EXTRACTED_KINDS = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
MANUAL_CONFIDENCE = 1.0
_MATCH_POOL = 8
_MERGED_CONFIDENCE = 0.8
_MAX_DETAIL = 1_500
_MAX_EVIDENCE = 20
_MAX_FACTS_READ = 2_000
_EXPLICIT_KEYS = frozenset({"profile:name"})
_REPLY_KEY_PREFIX = "preferences:reply_"
_COUNT_NAMES = {
    FactDecision.SUPPORT: "supported",
    FactDecision.MERGE: "merged",
    FactDecision.SUPERSEDE: "superseded",
}


@dataclass(slots=True)
class ConsolidationResult:
    """Counts and changed scopes of one transaction, to publish after its commit."""

    counts: Counter[str] = field(default_factory=Counter)
    scopes: set[MemoryScope] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedStatement:
    """Result for one explicit statement: its entry, and whether a different manual entry prevented
    the change."""

    entry: MemoryEntry
    blocked_by_manual: bool = False


@dataclass(slots=True, kw_only=True)
class MemoryConsolidator:
    """Every source of entries has one method here. They differ in how they decide and in what an
    existing entry takes over from the new one."""

    entries: MemoryEntryRepo
    cells: CellRepo
    index: InvertedIndex
    promoter: FactPromoter

    async def add_manual(
        self, tx: Transaction, new: NewMemoryEntry, *, now: datetime
    ) -> MemoryEntry:
        """Add what a person wrote, also if its text was forgotten before. An existing entry with
        this text becomes manual; entries with the same key are superseded. Raises
        MemoryNotSaved."""
        await self.entries.remove_tombstone(tx, new.scope, new.text)
        same = await self.entries.list_with_same_text(new.scope, new.text, tx=tx)
        # Active entries before candidates and archived ones.
        for each in sorted(same, key=lambda entry: entry.state is not MemoryState.ACTIVE):
            is_past = each.kind is MemoryKind.CELL or each.state is MemoryState.SUPERSEDED
            if not is_past and new.key in {"", each.key}:
                adopted = as_manual(
                    each,
                    kind=new.kind,
                    text=new.text,
                    state=MemoryState.ACTIVE,
                    invalidated_at=None,
                    pinned=each.pinned or new.pinned,
                )
                # A repeat of the same command is no change.
                return each if adopted == each else await self.entries.update(tx, adopted, now=now)
        made = await self._add_in_place_of(tx, await self._list_by_key(tx, new), new, now=now)
        # Refused only as a repeat under the same source.
        made = made or await self.entries.find_by_source(new.source or "", tx=tx)
        if made is None:
            raise MemoryNotSaved(MemoryRejectionReason.EMPTY)
        return made

    async def add_statement(
        self, tx: Transaction, new: NewMemoryEntry, cell: MemoryEntry, *, is_request: bool
    ) -> NotedStatement | None:
        """Add an explicit statement from `cell`. It supersedes the earlier one with its key, but
        no manual entry. None if it was forgotten, unless the person asked to keep it."""
        older = [
            *(await self._list_by_key(tx, new) if new.key else await self._list_repeats(tx, new)),
            *await self._list_excluded(tx, new, cell),
        ]
        same = [each for each in older if text_hash(each.text) == text_hash(new.text)]
        manual = next((each for each in older if each.is_protected), None)
        if manual is not None:
            return NotedStatement(entry=manual, blocked_by_manual=manual not in same)
        if same:
            made: MemoryEntry | None = await self._support(
                tx, same[0], new, context=None, now=cell.said_at
            )
        else:
            if is_request:
                await self.entries.remove_tombstone(tx, new.scope, new.text)
            made = await self._add_in_place_of(tx, older, new, now=cell.said_at)
        if made is None:
            return None
        await self.cells.link_sources(tx, made, [cell])
        return NotedStatement(entry=made)

    async def end_facts(
        self,
        tx: Transaction,
        endings: Sequence[EndedClaim],
        cell: MemoryEntry,
        zone: tzinfo,
        *,
        made: Sequence[MemoryEntry] = (),
    ) -> Sequence[NotedStatement]:
        """End the facts of the cell's person that its words say are no longer so: an entry with
        these words takes their place. `made` are the statements of the same cell, which hold.
        Manual entries stay. Words that end nothing known are not noted."""
        # Imported on first use: its many patterns cost the start.
        from bot.engine.memory.explicit_statements import build_ending_entry
        from bot.engine.memory.fact_changes import ends_fact

        noted: list[NotedStatement] = []
        kept = {each.id for each in made}
        for clause in dict.fromkeys(each.clause for each in endings):
            said = [each for each in endings if each.clause == clause]
            over = [
                each
                for each in await self._list_of_person(tx, cell)
                if each.id not in kept and any(ends_fact(ended, each) for ended in said)
            ]
            manual = next((each for each in over if each.is_protected), None)
            if manual is not None:
                noted.append(NotedStatement(entry=manual, blocked_by_manual=True))
            over = [each for each in over if not each.is_protected]
            if not over:
                continue
            new = build_ending_entry(cell, said[0], over[0], zone)
            entry = await self._add_in_place_of(tx, over, new, now=cell.said_at)
            if entry is not None:
                await self.cells.link_sources(tx, entry, [cell])
                kept.add(entry.id)
                noted.append(NotedStatement(entry=entry))
        return noted

    async def _list_of_person(self, tx: Transaction, cell: MemoryEntry) -> Sequence[MemoryEntry]:
        """Active facts in the cell's scope that are not about another person."""
        found = await self.entries.list(
            [cell.scope], kinds=EXTRACTED_KINDS, limit=_MAX_FACTS_READ, tx=tx
        )
        return [each for each in found if each.person in {None, cell.person}]

    async def _list_excluded(
        self, tx: Transaction, new: NewMemoryEntry, cell: MemoryEntry
    ) -> Sequence[MemoryEntry]:
        """Facts with other keys that cannot hold beside this statement."""
        from bot.engine.memory.fact_changes import denied_by, ends_fact, excludes
        from bot.engine.memory.preference_statements import SWITCHED

        if not new.key:
            return ()
        denied = denied_by(new.key)
        is_switch = new.extra.get("value") == SWITCHED
        return [
            each
            for each in await self._list_of_person(tx, cell)
            if each.key != new.key
            and (
                excludes(new.key, new.text, each, is_switch=is_switch)
                or (denied is not None and ends_fact(denied, each))
            )
        ]

    async def add_fact(
        self,
        tx: Transaction,
        fact: MemoryFact,
        verdict: FactVerdict,
        result: ConsolidationResult,
        *,
        now: datetime,
    ) -> MemoryEntry | None:
        """Apply a verdict on an extracted fact, revalidated against the current store. Returns the
        resulting entry as it was before promotion."""
        if fact.doubt:
            held = await self._hold_doubtful(tx, fact, now=now)
            result.counts["candidates" if held is not None else "skipped"] += 1
            return None
        verdict = await self._revalidate(tx, fact, verdict)
        made = await self._apply(tx, fact.to_entry(), verdict, now=now)
        if made is not None:
            made = await self._end_by_fact(tx, fact, made, now=now)
        changed = _COUNT_NAMES.get(verdict.decision) if verdict.match else None
        result.counts["skipped" if made is None else changed or "created"] += 1
        if made is None:
            return None
        result.scopes.add(made.scope)
        await self.cells.link_sources(tx, made, fact.cells)
        if made.state is MemoryState.SUPERSEDED:
            return None
        if promotion := await self.promoter.promote(tx, made, now=now):
            result.counts[promotion] += 1
        to = fact.share_scope
        if to is not None and await propose_sharing(self.entries, tx, made, to, now=now):
            result.counts["candidates"] += 1
        return made

    async def _end_by_fact(
        self, tx: Transaction, fact: MemoryFact, made: MemoryEntry, *, now: datetime
    ) -> MemoryEntry:
        """Also a fact that a model has drawn may say that something is no longer so."""
        from bot.engine.memory.fact_changes import ends_fact
        from bot.engine.memory.said_endings import find_told_endings

        endings = find_told_endings(fact.text)
        if not endings or made.state is not MemoryState.ACTIVE:
            return made
        for each in await self._list_of_person(tx, fact.last_cell):
            is_older = each.id != made.id and each.said_at <= fact.last_cell.said_at
            if (
                is_older
                and not each.is_protected
                and any(ends_fact(told, each) for told in endings)
            ):
                made = await supersede(self.entries, tx, each, made, now=now)
        return made

    async def _hold_doubtful(
        self, tx: Transaction, fact: MemoryFact, *, now: datetime
    ) -> MemoryEntry | None:
        """Keep for review what cannot be traced to what was said, once, with the reason. What has
        no word of it is refused, and only kept to be looked at."""
        if await self.entries.list_with_same_text(fact.scope, fact.text, tx=tx):
            return None
        is_unsaid = fact.doubt == GroundingDoubt.UNSAID
        made = await self.entries.add(
            tx,
            replace(
                fact.to_entry(),
                kind=MemoryKind.FACT if is_unsaid else MemoryKind.LONGTERM,
                state=MemoryState.REJECTED if is_unsaid else MemoryState.CANDIDATE,
                key="" if is_unsaid else fact.key,
            ),
            now=now,
        )
        if made is None:
            return None
        for cell in fact.cells:
            # Forgetting the turn then also forgets this entry.
            await self.cells.link(tx, made, cell, DERIVED_FROM)
        return None if is_unsaid else made

    async def change(
        self, tx: Transaction, held: MemoryEntry, changed: MemoryEntry, *, now: datetime
    ) -> MemoryEntry:
        """Write a person's change of `held`, also if the new text was forgotten there before."""
        await self.entries.remove_tombstone(tx, changed.scope, changed.text)
        await retract_proposals(self.entries, tx, held)
        return await self.entries.update(tx, changed, now=now)

    async def compare(
        self,
        fact: MemoryFact,
        similar: Sequence[SimilarEntry] = (),
        *,
        tx: Transaction | None = None,
    ) -> FactComparison:
        """Find active entries in the fact's scope that match it by text, by key, by shared words or
        by embedding (`similar`)."""
        found = list(await self.entries.list_with_same_text(fact.scope, fact.text, tx=tx))
        if fact.key:
            found += await self.entries.list_active_by_key(fact.scope, fact.key, tx=tx)
        shares = {each.number: each.similarity for each in similar}
        found += await self.entries.list_by_numbers(list(shares), [fact.scope], tx=tx)
        words = dict.fromkeys(tokenize(fact.text), 1.0)
        hits = await self.index.search(
            [fact.scope], words, _MATCH_POOL, kinds=EXTRACTED_KINDS, tx=tx
        )
        by_words = await self.entries.list_by_numbers(
            [hit.number for hit in hits], [fact.scope], tx=tx
        )
        found += [
            each for each in by_words if term_jaccard(each.text, fact.text) >= MIN_SHARED_TERMS
        ]
        alive = {
            each.id: each
            for each in found
            if _is_active_fact(each) and not _belongs_to_another(each, fact)
        }
        return FactComparison(fact=fact, matches=tuple(alive.values()), similarities=shares)

    async def _revalidate(
        self, tx: Transaction, fact: MemoryFact, verdict: FactVerdict
    ) -> FactVerdict:
        """Adjust a verdict whose match was edited or forgotten in the meantime."""
        case = await self.compare(fact, tx=tx)
        match = verdict.match
        held = None if match is None else await self.cells.find(match.id, tx=tx)
        if match is not None and (
            held is None or held.text != match.text or not _is_active_fact(held)
        ):
            verdict, held = FactVerdict(decision=FactDecision.CREATE), None
        if case.near_duplicate is not None:
            # The same words were stored in the meantime, maybe by another fact of this answer.
            verdict, held = decide_by_rules(case), case.near_duplicate
        told = restrict_verdict(case, replace(verdict, match=held))
        if told.decision is FactDecision.CREATE and fact.key:
            # At most one unconditional entry per topic.
            [*keyed] = await self._list_by_key(tx, fact.to_entry())
            if keyed and not support_from_extra(keyed[0]).context:
                contradiction = FactVerdict(decision=FactDecision.CONTRADICT, match=keyed[0])
                told = restrict_verdict(case, contradiction)
        if told.match is not None and _is_explicit_statement(told.match):
            return replace(told, decision=FactDecision.SKIP)
        return told

    async def _apply(
        self, tx: Transaction, new: NewMemoryEntry, verdict: FactVerdict, *, now: datetime
    ) -> MemoryEntry | None:
        match, context = verdict.match, verdict.context
        match verdict.decision:
            case FactDecision.SKIP:
                return None
            case FactDecision.SUPPORT if match is not None:
                return await self._support(tx, match, new, context=context, now=now)
            case FactDecision.MERGE if match is not None:
                return await self._merge(tx, match, new, verdict.merged, now=now)
            case FactDecision.SUPERSEDE if match is not None:
                add = self._add_past if _is_outdated(new, match) else self._add_in_place_of
                return await add(tx, [match], new, now=now)
            case FactDecision.CONTRADICT if match is not None and _is_general_conflict(
                new, verdict
            ):
                # The existing entry is more confident: keep it and record the contradiction.
                await self._record_contradiction(tx, match, context, now=now)
                return None
        if context != GENERAL_CONTEXT:
            new = replace(new, extra=FactSupport(context=context).to_extra())
        made = await self.entries.add(tx, new, now=now)
        if made is not None and match is not None and verdict.decision is not FactDecision.CREATE:
            await self.cells.link(tx, made, match, f"{verdict.decision.value}s")
            if verdict.decision is FactDecision.CONTRADICT:
                await self._record_contradiction(tx, match, context, now=now)
        return made

    async def _list_by_key(self, tx: Transaction, new: NewMemoryEntry) -> Sequence[MemoryEntry]:
        """Active entries with the same key, those that hold unconditionally first."""
        if not new.key:
            return ()
        held = await self.entries.list_active_by_key(new.scope, new.key, tx=tx)
        return sorted(held, key=lambda each: bool(support_from_extra(each).context))

    async def _list_repeats(self, tx: Transaction, new: NewMemoryEntry) -> Sequence[MemoryEntry]:
        again = await self.entries.list_with_same_text(new.scope, new.text, tx=tx)
        active = [each for each in again if each.state is MemoryState.ACTIVE]
        return [each for each in active if each.kind is not MemoryKind.CELL]

    async def _add_in_place_of(
        self, tx: Transaction, older: Sequence[MemoryEntry], new: NewMemoryEntry, *, now: datetime
    ) -> MemoryEntry | None:
        """None, changing nothing, if `new` was forgotten or is a repeat."""
        made = await self.entries.add(tx, new, now=now)
        if made is not None:
            for old in older:
                made = await supersede(self.entries, tx, old, made, now=now)
        return made

    async def _add_past(
        self, tx: Transaction, newer: Sequence[MemoryEntry], new: NewMemoryEntry, *, now: datetime
    ) -> MemoryEntry | None:
        """Add what was true until `newer` was said. None if it was forgotten or is a repeat."""
        made = await self.entries.add(tx, new, now=now)
        if made is None:
            return None
        for held in newer:
            past = replace(
                made,
                state=MemoryState.SUPERSEDED,
                superseded_by=held.id,
                valid_until=held.valid_from,
                invalidated_at=now,
            )
            made = await self.entries.update(tx, past, now=now)
        return made

    async def _support(
        self,
        tx: Transaction,
        held: MemoryEntry,
        new: NewMemoryEntry,
        *,
        context: str | None = GENERAL_CONTEXT,
        now: datetime,
    ) -> MemoryEntry:
        """Add the sources of `new`. A repeated statement has no context: it is no observation."""
        evidence = _merge_evidence(held, new)
        if evidence == tuple(held.evidence):
            return held
        more = replace(held, evidence=evidence)
        if context is not None:
            more = replace(
                more,
                confidence=max(held.confidence, new.confidence),
                extra=_with_observation(held, context, holds=True, now=now),
            )
        return await self.entries.update(tx, more, now=now)

    async def _merge(
        self, tx: Transaction, held: MemoryEntry, new: NewMemoryEntry, text: str, *, now: datetime
    ) -> MemoryEntry:
        both = replace(
            held,
            text=text,
            overview=merge_lines(held.overview, new.overview)[:_MAX_DETAIL],
            evidence=_merge_evidence(held, new),
            confidence=max(_MERGED_CONFIDENCE, held.confidence),
            keywords=tuple(dict.fromkeys([*held.keywords, *new.keywords]))[:8],
            extra={
                **_with_observation(held, GENERAL_CONTEXT, holds=True, now=now),
                "merges": merge_count(held) + 1,
            },
        )
        await retract_proposals(self.entries, tx, held)
        return await self.entries.update(tx, both, now=now)

    async def _record_contradiction(
        self, tx: Transaction, held: MemoryEntry, context: str, *, now: datetime
    ) -> None:
        if not held.is_protected:
            doubted = replace(held, extra=_with_observation(held, context, holds=False, now=now))
            await self.entries.update(tx, doubted, now=now)


def as_manual(entry: MemoryEntry, **changes: Any) -> MemoryEntry:
    """The entry, changed by a person."""
    return replace(entry, origin=MemoryOrigin.MANUAL, confidence=MANUAL_CONFIDENCE, **changes)


def _merge_evidence(held: MemoryEntry, new: NewMemoryEntry) -> tuple[str, ...]:
    """Distinct sources, limited to the newest."""
    return tuple(dict.fromkeys([*held.evidence, *new.evidence]))[-_MAX_EVIDENCE:]


def _is_active_fact(entry: MemoryEntry) -> bool:
    return entry.state is MemoryState.ACTIVE and entry.kind in EXTRACTED_KINDS


def _belongs_to_another(entry: MemoryEntry, fact: MemoryFact) -> bool:
    """In a group, tastes and traits of different people never match."""
    personal = PERSONAL_CATEGORIES & {entry.category, fact.category}
    return bool(personal) and entry.person is not None and entry.person != fact.person


def _is_explicit_statement(entry: MemoryEntry) -> bool:
    """Explicit statements on how to be addressed change only by another explicit statement."""
    plain = entry.key.split("@")[0]
    return plain in _EXPLICIT_KEYS or plain.startswith(_REPLY_KEY_PREFIX)


def _with_observation(
    held: MemoryEntry, context: str, *, holds: bool, now: datetime
) -> Mapping[str, object]:
    """Count one more confirmation or contradiction, with its circumstances."""
    seen = support_from_extra(held).with_observation(context, holds=holds, at=now)
    return {**held.extra, **seen.to_extra()}


def _is_outdated(new: NewMemoryEntry, held: MemoryEntry) -> bool:
    """Whether `new` was said before `held`, as where a job was tried again, and holds no longer."""
    if new.said_at is None or new.said_at >= held.said_at:
        return False
    return (new.valid_from or new.said_at) <= held.valid_from


def _is_general_conflict(new: NewMemoryEntry, verdict: FactVerdict) -> bool:
    """Whether both cannot be true at once."""
    return new.category in KEYED_CATEGORIES and verdict.context == GENERAL_CONTEXT
