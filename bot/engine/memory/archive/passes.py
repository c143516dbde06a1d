"""One pass over a long session: its oldest messages, or summaries, become one summary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.engine.llm.base import BackendDenied, BackendError
from bot.engine.memory.archive import source
from bot.engine.memory.archive.guard import Guard
from bot.engine.memory.archive.limits import Limits
from bot.engine.memory.archive.plan import Fold, Leaf, State
from bot.engine.memory.archive.tokens import tokens
from bot.engine.memory.archive.words import Reading
from bot.engine.memory.archive.writing import Wanted, fallback, written
from storage.db import Database
from storage.memory.archive.debts import DebtRepo
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.memory.archive import Item, Summary
from storage.sessions import Session, SessionRepo

_MOST_TRIES = 3
"""After them a model is not waited for where the session is too long to be told."""
_NEIGHBOURS = 2


class Writer(Protocol):
    """Asks a model on behalf of a session, in silence."""

    def can(self, session: Session) -> bool:
        """False where no model is there to ask."""
        ...

    async def write(self, session: Session, system: str, prompt: str, most: int) -> str:
        """Raises BackendError."""
        ...


async def _unknown(_session: Session) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What making sessions shorter takes. `keeps` says of a backend whether its sessions live
    here: a coding CLI keeps its own."""

    db: Database
    sessions: SessionRepo
    said: ArchiveRepo
    summaries: SummaryRepo
    debts: DebtRepo
    reading: Reading
    writer: Writer
    keeps: Callable[[str], bool]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    sleep: Callable[[float], Awaitable[None]]
    zone: ZoneInfo
    limits: Limits
    window: Callable[[Session], Awaitable[int]] = _unknown
    """How many tokens its model can take all together; 0 where that is not known."""

    async def limits_of(self, session: Session) -> Limits:
        return self.limits.within(await self.window(session))


class Passes:
    """Nothing is kept but whole passes; what fails leaves everything as it was."""

    def __init__(self, tools: Tools, guard: Guard) -> None:
        self._tools = tools
        self._guard = guard

    async def state(self, session: Session, limits: Limits) -> State:
        t = self._tools
        items = await t.summaries.items(session.id)
        after = items[-1].through if items else 0
        newest = max((each.summary.created_at for each in items), default=None)
        # What a backend counted before the last summary was made is no longer true.
        fresh = newest is None or session.last_used_at > newest
        # It also counts what stands beside the session: of a small context that is much.
        reported = session.tokens if fresh and limits.context == t.limits.context else 0
        sizes = await t.said.sizes(session.id, after=after)
        return State(items=items, messages=sizes, reported=reported)

    async def make(
        self, session: Session, state: State, work: Leaf | Fold, limits: Limits, *, tries: int
    ) -> bool:
        """False where somebody was faster."""
        wanted, draft = await self._wanted(session, state, work)
        try:
            text, by_model = await self._written(session, wanted, limits)
        except BackendError as error:
            hopeless = isinstance(error, BackendDenied) or tries >= _MOST_TRIES
            if state.current <= limits.context or not hopeless:
                raise
            # It must not grow beyond what a model can be told: better a poor summary than none.
            text, by_model = fallback(wanted, limits), False
        size = tokens(text)
        if size >= work.tokens:
            return False
        summary = replace(draft, content=text, tokens=size, model=session.model if by_model else "")
        return await self._keep(session, state, work, summary)

    async def _written(self, session: Session, wanted: Wanted, limits: Limits) -> tuple[str, bool]:
        t = self._tools
        if wanted.source and not t.writer.can(session):
            raise BackendDenied("no model is there to summarise")

        async def write(system: str, prompt: str, most: int) -> str:
            self._guard.call(session.id, t.now())
            try:
                text = await t.writer.write(session, system, prompt, most)
            except BackendDenied:
                self._guard.refused(t.now())
                raise
            self._guard.answered()
            return text

        return await written(wanted, write, limits)

    async def _wanted(
        self, session: Session, state: State, work: Leaf | Fold
    ) -> tuple[Wanted, Summary]:
        t = self._tools
        draft = Summary(
            id=t.new_id(),
            session_id=session.id,
            depth=0,
            content="",
            tokens=0,
            earliest_at=t.now(),
            latest_at=t.now(),
            descendants=0,
            descendant_tokens=0,
            source_tokens=work.tokens,
            model="",
            created_at=t.now(),
        )
        if isinstance(work, Fold):
            return self._fold(draft, state.items, work)
        first, last = work.messages[0].message, work.messages[-1].message
        parts = await t.said.parts(session.id, first, last)
        before = [each.summary for each in state.items[-_NEIGHBOURS:]]
        wanted = Wanted(
            source=source.of_messages(parts, t.zone),
            size=work.tokens,
            depth=0,
            before=source.of_summaries(before, t.zone),
        )
        return wanted, replace(draft, earliest_at=parts[0].at, latest_at=parts[-1].at)

    def _fold(self, draft: Summary, items: Sequence[Item], work: Fold) -> tuple[Wanted, Summary]:
        t = self._tools
        parts = [each.summary for each in work.parts]
        before = [
            each.summary
            for each in items
            if each.ordinal < work.parts[0].ordinal and each.summary.depth == work.depth
        ]
        wanted = Wanted(
            source=source.of_summaries(parts, t.zone),
            size=work.tokens,
            depth=work.depth,
            before=source.of_summaries(before[-_NEIGHBOURS:], t.zone) if work.depth == 1 else "",
        )
        return wanted, replace(
            draft,
            depth=work.depth,
            earliest_at=parts[0].earliest_at,
            latest_at=parts[-1].latest_at,
            descendants=sum(each.descendants + 1 for each in parts),
            descendant_tokens=sum(each.descendant_tokens + each.tokens for each in parts),
            source_tokens=sum(each.source_tokens for each in parts),
        )

    async def _keep(
        self, session: Session, state: State, work: Leaf | Fold, summary: Summary
    ) -> bool:
        """All of a pass or nothing; nothing where the session is another by now."""
        t = self._tools
        async with t.db.write() as tx:
            items = await t.summaries.items(summary.session_id, tx=tx)
            if [each.summary.id for each in items] != [each.summary.id for each in state.items]:
                return False
            if isinstance(work, Fold):
                await t.summaries.fold(tx, summary, work.parts)
            else:
                messages = [each.message for each in work.messages]
                await t.summaries.add_leaf(tx, summary, messages)
            left = state.tokens - work.tokens + summary.tokens
            await t.sessions.shorten(tx, session, left)
        return True
