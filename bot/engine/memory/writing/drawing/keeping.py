"""Keeps facts beside those that are there, and lets rise what has been said often enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.engine.memory.writing.drawing.alike import jaccard, united
from bot.engine.memory.writing.drawing.facts import KEYED, PERSONAL, Fact
from bot.engine.memory.writing.drawing.gates import Rise, kind_of, rise_of
from bot.engine.memory.writing.drawing.offering import offer
from bot.engine.memory.writing.drawing.sense import Near
from bot.engine.memory.writing.drawing.verdicts import (
    NEAR,
    Case,
    Decision,
    Verdict,
    allowed,
    by_rules,
    merges,
)
from bot.engine.memory.writing.plainly import with_evidence
from bot.engine.memory.writing.quality import AUTO, Figures, Quality
from bot.engine.memory.writing.succession import (
    is_by_hand,
    proposal_of,
    retract,
    supersede,
)
from storage.db import Transaction
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.words import terms
from storage.records.memory.entries import (
    Category,
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    Tier,
)
from storage.records.memory.support import GENERAL, Support, support_of

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
_POOL = 8
_MERGED_SURE = 0.8
_MOST_DETAIL = 1_500
_RISEN_AT = "risen_at"
_OF_RISING = frozenset({AUTO, _RISEN_AT})
_IMPORTANCE = {
    Category.PROFILE: 0.9,
    Category.PREFERENCES: 0.8,
    Category.ENTITIES: 0.7,
    Category.EVENTS: 0.6,
    Category.CASES: 0.8,
    Category.PATTERNS: 0.85,
}
_PLAINLY_SAID = frozenset({"profile:name"})
_REPLIES = "preferences:reply_"


@dataclass(slots=True)
class Kept:
    """What a transaction has done, to be told once it is through."""

    counts: Counter[str] = field(default_factory=Counter)
    scopes: set[Scope] = field(default_factory=set)


class Keeper:
    def __init__(self, *, entries: EntryRepo, cells: Cells, index: Index, quality: Quality) -> None:
        self.entries = entries
        self._cells = cells
        self._index = index
        self._quality = quality

    async def case(
        self, fact: Fact, near: Sequence[Near] = (), *, tx: Transaction | None = None
    ) -> Case:
        """The fact, with what is there in its scope and may be about the same: by its words, by
        what it is about, and what is `near` by its meaning."""
        found = list(await self.entries.same_as(fact.scope, fact.text, tx=tx))
        if fact.key:
            found += await self.entries.by_key(fact.scope, fact.key, tx=tx)
        shares = {each.number: each.share for each in near}
        found += await self.entries.numbered(list(shares), [fact.scope], tx=tx)
        words = dict.fromkeys(terms(fact.text), 1.0)
        hits = await self._index.search([fact.scope], words, _POOL, kinds=DRAWN, tx=tx)
        by_words = await self.entries.numbered([hit.number for hit in hits], [fact.scope], tx=tx)
        found += [each for each in by_words if jaccard(each.text, fact.text) >= NEAR]
        alive = {
            each.id: each for each in found if _is_there(each) and not _is_anothers(each, fact)
        }
        return Case(fact=fact, matches=tuple(alive.values()), shares=shares)

    async def keep(
        self, tx: Transaction, fact: Fact, verdict: Verdict, kept: Kept, *, now: datetime
    ) -> Entry | None:
        """Do what was decided, unless the store has moved on since. The entry that says it now, as
        it was before it rose."""
        verdict = await self._fresh(tx, fact, verdict)
        entry = await self._applied(tx, fact, verdict, kept, now=now)
        if entry is None:
            return None
        kept.scopes.add(entry.scope)
        await self._cells.cite(tx, entry, fact.cells)
        await self.rise(tx, entry, kept, now=now)
        to = fact.offered_to
        if to is not None and await offer(self.entries, tx, entry, to, now=now):
            kept.counts["candidates"] += 1
        return entry

    async def rise(self, tx: Transaction, entry: Entry, kept: Kept, *, now: datetime) -> None:
        """Let it rise as far as it may by itself, or propose it."""
        rise = rise_of(entry)
        if rise is Rise.KEEP and (await self._quality.of(today=now.date(), tx=tx)).is_polluted:
            rise = Rise.ASK
        if rise is Rise.KEEP:
            kept.counts["long_term"] += 1
            risen = replace(
                entry,
                kind=MemoryKind.LONGTERM,
                tier=Tier.CORE,
                extra={**entry.extra, AUTO: entry.kind.value, _RISEN_AT: now.isoformat()},
            )
            await self.entries.change(tx, risen, now=now)
        elif rise is Rise.ASK and await self._propose(tx, entry, now=now):
            kept.counts["candidates"] += 1

    async def demote(self, tx: Transaction, *, now: datetime, since: datetime) -> int:
        """Take back what was kept for long without a person's word since then."""
        found = await self._cells.drawn_longterm(tx)
        auto = [each for each in found if AUTO in each.extra and _risen_at(each) >= since]
        for each in auto:
            was = MemoryKind(str(each.extra[AUTO]))
            extra = {name: told for name, told in each.extra.items() if name not in _OF_RISING}
            back = replace(each, kind=was, tier=Tier.WORKING, extra=extra)
            await self.entries.change(tx, back, now=now)
        return len(auto)

    async def _fresh(self, tx: Transaction, fact: Fact, verdict: Verdict) -> Verdict:
        """People may have edited or forgotten what it was decided about."""
        case = await self.case(fact, tx=tx)
        match = verdict.match
        held = None if match is None else await self._cells.one(match.id, tx=tx)
        if match is not None and (held is None or held.text != match.text or not _is_there(held)):
            verdict, held = Verdict(decision=Decision.CREATE), None
        if case.twin is not None:
            # Said in the same words meanwhile, maybe by another fact of the same answer.
            verdict, held = by_rules(case), case.twin
        told = allowed(case, replace(verdict, match=held))
        keyed = await self._of_its_topic(tx, fact)
        if told.decision is Decision.CREATE and keyed:
            # Never two of the same topic.
            held = keyed[0]
            told = allowed(case, Verdict(decision=Decision.CONTRADICT, match=held))
        return told

    async def _of_its_topic(self, tx: Transaction, fact: Fact) -> Sequence[Entry]:
        """What is told of the same in general; what holds on some days only stands beside it."""
        if not fact.key:
            return ()
        held = await self.entries.by_key(fact.scope, fact.key, tx=tx)
        return [each for each in held if not support_of(each).context]

    async def _applied(
        self, tx: Transaction, fact: Fact, verdict: Verdict, kept: Kept, *, now: datetime
    ) -> Entry | None:
        match = verdict.match
        if verdict.decision is Decision.SKIP or (match is not None and _is_fixed(match)):
            kept.counts["skipped"] += 1
            return None
        match verdict.decision:
            case Decision.SUPPORT if match is not None:
                kept.counts["supported"] += 1
                return await self._supported(tx, match, fact, verdict.context, now=now)
            case Decision.MERGE if match is not None:
                kept.counts["merged"] += 1
                return await self._merged(tx, match, fact, verdict.merged, now=now)
            case Decision.SUPERSEDE if match is not None:
                made = await supersede(self.entries, tx, match, _new(fact), now=now)
                kept.counts["superseded" if made is not None else "skipped"] += 1
                return made
            case Decision.CONTRADICT if match is not None and _is_in_general(fact, verdict):
                # What is there is surer: it stays, and it is known that it was doubted.
                await self._doubted(tx, match, verdict.context, now=now)
                kept.counts["skipped"] += 1
                return None
        new = _new(fact)
        if verdict.context != GENERAL:
            new = replace(new, extra=Support(context=verdict.context).written())
        made = await self.entries.add(tx, new, now=now)
        kept.counts["created" if made is not None else "skipped"] += 1
        if made is not None and match is not None and verdict.decision is not Decision.CREATE:
            await self._cells.link(tx, made, match, f"{verdict.decision.value}s")
            if verdict.decision is Decision.CONTRADICT:
                await self._doubted(tx, match, verdict.context, now=now)
        return made

    async def _supported(
        self, tx: Transaction, held: Entry, fact: Fact, context: str, *, now: datetime
    ) -> Entry:
        evidence = with_evidence(held, list(fact.evidence))
        if evidence == tuple(held.evidence):
            return held
        surer = max(held.confidence, fact.confidence)
        extra = _observed(held, context, holds=True, now=now)
        more = replace(held, evidence=evidence, confidence=surer, extra=extra)
        return await self.entries.change(tx, more, now=now)

    async def _merged(
        self, tx: Transaction, held: Entry, fact: Fact, text: str, *, now: datetime
    ) -> Entry:
        both = replace(
            held,
            text=text,
            overview=united(held.overview, fact.detail)[:_MOST_DETAIL],
            evidence=with_evidence(held, list(fact.evidence)),
            confidence=max(_MERGED_SURE, held.confidence),
            keywords=tuple(dict.fromkeys([*held.keywords, *fact.keywords]))[:8],
            extra={
                **_observed(held, GENERAL, holds=True, now=now),
                "merges": merges(held) + 1,
            },
        )
        await retract(self.entries, tx, held)
        return await self.entries.change(tx, both, now=now)

    async def _doubted(self, tx: Transaction, held: Entry, context: str, *, now: datetime) -> None:
        if not is_by_hand(held):
            doubted = replace(held, extra=_observed(held, context, holds=False, now=now))
            await self.entries.change(tx, doubted, now=now)

    async def _propose(self, tx: Transaction, entry: Entry, *, now: datetime) -> bool:
        """A candidate stands beside what it was made from until a person has decided; it is
        proposed once."""
        candidate = NewEntry(
            kind=MemoryKind.LONGTERM,
            scope=entry.scope,
            text=entry.text,
            category=entry.category,
            label=entry.label,
            overview=entry.overview,
            keywords=entry.keywords,
            importance=entry.importance,
            confidence=entry.confidence,
            tier=Tier.CORE,
            state=EntryState.CANDIDATE,
            key=entry.key,
            origin=entry.origin,
            source=proposal_of(entry),
            evidence=entry.evidence,
            sender=entry.sender,
            thread=entry.thread,
            person=entry.person,
            chat=entry.chat,
            task=entry.task,
            said_at=entry.said_at,
        )
        made = await self.entries.add(tx, candidate, now=now)
        if made is None:
            return False
        await self.entries.change(tx, replace(made, supersedes=entry.id), now=now)
        return True


def figures(kept: Mapping[str, int], **more: int) -> Figures:
    return Figures(**{name: n for name, n in kept.items() if n}) + Figures(**more)


def _risen_at(entry: Entry) -> datetime:
    at = entry.extra.get(_RISEN_AT)
    return datetime.fromisoformat(at) if isinstance(at, str) else entry.updated_at


def _is_there(entry: Entry) -> bool:
    return entry.state is EntryState.ACTIVE and entry.kind in DRAWN


def _is_anothers(entry: Entry, fact: Fact) -> bool:
    """In a group nobody's tastes and traits have to do with anybody else's."""
    personal = PERSONAL & {entry.category, fact.category}
    return bool(personal) and entry.person is not None and entry.person != fact.person


def _is_fixed(entry: Entry) -> bool:
    """What people have said plainly of how they want to be spoken to is changed by their plain
    word only."""
    plain = entry.key.split("@")[0]
    return plain in _PLAINLY_SAID or plain.startswith(_REPLIES)


def _observed(held: Entry, context: str, *, holds: bool, now: datetime) -> Mapping[str, object]:
    """How often it was said again, and how often something else, under which circumstances."""
    seen = support_of(held).observed(context, holds=holds, at=now)
    return {**held.extra, **seen.written()}


def _is_in_general(fact: Fact, verdict: Verdict) -> bool:
    """Only one of the two can be true."""
    return fact.category in KEYED and verdict.context == GENERAL


def _new(fact: Fact) -> NewEntry:
    kind = kind_of(fact)
    last = fact.last
    return NewEntry(
        kind=kind,
        scope=fact.scope,
        text=fact.text,
        category=fact.category,
        overview=fact.detail,
        keywords=fact.keywords,
        importance=_IMPORTANCE.get(fact.category, 0.8),
        confidence=fact.confidence,
        tier=Tier.WORKING,
        dynamic=fact.dynamic,
        key=fact.key,
        origin=Origin.TASK if last.task is not None else Origin.CHAT,
        evidence=fact.evidence,
        sender=last.sender if fact.person is not None else "",
        thread=last.thread,
        person=fact.person,
        chat=last.chat,
        task=last.task,
        said_at=last.said_at,
        valid_until=fact.valid_until,
    )
