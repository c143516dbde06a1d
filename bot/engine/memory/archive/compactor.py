"""Makes long sessions shorter in the background: a pass at a time, each of them whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from bot.engine.llm.base import BackendDenied, BackendError
from bot.engine.memory.archive import source
from bot.engine.memory.archive.guard import Guard, Paused
from bot.engine.memory.archive.limits import Limits
from bot.engine.memory.archive.plan import Fold, Leaf, State, next_pass
from bot.engine.memory.archive.reading import Reading
from bot.engine.memory.archive.tokens import tokens
from bot.engine.memory.archive.writing import Wanted, fallback, written
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.memory.archive.debts import DebtRepo
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.memory.archive import Debt, Item, Summary
from storage.sessions import Session, SessionRepo

log = logging.getLogger(__name__)

REST = 1.0
"""Seconds between two looks: a chat under way is not run after line by line."""
_STORE_REST = 5.0
_PAUSE = timedelta(seconds=5)
"""Between two sweeps of one session: others come between."""
_BACKOFF = timedelta(minutes=1)
_LONGEST_BACKOFF = timedelta(hours=1)
_MOST_TRIES = 3
"""After them a model is not waited for where the session is too long to be told."""
_AT_ONCE = 8
_NEIGHBOURS = 2
_WORK = ("chat:", "task:", "helper:")
"""Whose sessions are gone on with."""


class Writer(Protocol):
    """Asks a model on behalf of a session, in silence."""

    def can(self, session: Session) -> bool:
        """False where no model is there to ask."""
        ...

    async def write(self, session: Session, system: str, prompt: str, most: int) -> str:
        """Raises BackendError."""
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """`more` says that there is more to do."""

    passes: int
    more: bool = False


class Growth:
    """Sessions in which something was said, and a bell for whoever looks at them."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.bell = asyncio.Event()

    def said(self, session_id: str) -> None:
        self.sessions.add(session_id)
        self.bell.set()


class Compactor:
    """A service, see `bot.app.lifecycle`. Nothing that fails here is lost: the session is told as
    it was, and tried again later."""

    name = "archive"

    def __init__(self, tools: Tools, growth: Growth | None = None) -> None:
        self._tools = tools
        self._guard = Guard()
        self._growth = growth or Growth()
        self._grown, self._bell = self._growth.sessions, self._growth.bell

    def grown(self, session_id: str) -> None:
        """Something was said there; it is looked at soon."""
        self._growth.said(session_id)

    async def wanted(self, session_id: str) -> None:
        """Somebody wants it shorter, however short it still is."""
        t = self._tools
        async with t.db.write() as tx:
            await t.debts.owe(tx, session_id, now=t.now(), forced=True)
        self._bell.set()

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to open."""

    async def run(self) -> None:
        t = self._tools
        looked_back = False
        while True:
            self._bell.clear()
            try:
                if not looked_back:
                    await self._look_back()
                    looked_back = True
                await self.look()
                await t.sleep(REST)
                await self._rung()
            except StoreUnavailable as error:
                log.warning("the archive waits for the store: %s", error)
                await t.sleep(_STORE_REST)

    async def _look_back(self) -> None:
        """What was said in a life before this one."""
        t = self._tools
        self._grown.update(await t.debts.overgrown(t.limits.threshold))
        self._grown.update(await t.said.behind())

    async def look(self) -> None:
        """Everything there is to do now."""
        t = self._tools
        while self._grown:
            session_id = self._grown.pop()
            try:
                await self._look_at(session_id)
            except StoreUnavailable:
                self._grown.add(session_id)
                raise
            except Exception:  # the boundary of one session: its trouble is not all others'
                log.exception("session %s cannot be kept in the archive", session_id)
        for debt in await t.debts.due(t.now(), _AT_ONCE):
            await self._pay(debt)
            self._bell.set()

    async def _look_at(self, session_id: str) -> None:
        t = self._tools
        await t.reading.catch_up(session_id)
        session = await t.sessions.get(session_id)
        if session is None or not self._concerns(session):
            return
        if (await self._state(session)).current > t.limits.threshold:
            async with t.db.write() as tx:
                await t.debts.owe(tx, session_id, now=t.now())

    def _concerns(self, session: Session) -> bool:
        work = session.key.startswith(_WORK)
        return work and session.is_open and self._tools.keeps(session.backend)

    async def _pay(self, debt: Debt) -> None:
        t = self._tools
        try:
            session = await t.sessions.get(debt.session_id)
            if session is not None and self._concerns(session):
                swept = await self.sweep(session, forced=debt.forced, tries=debt.tries)
                if swept.more:
                    later = t.now() + _PAUSE
                    # What is begun is brought to its end, also below the threshold.
                    begun = replace(debt, forced=True)
                    await self._put_off(begun, later, "it goes on", failed=False)
                    return
            else:
                self._guard.forget(debt.session_id)
        except Paused as paused:
            await self._put_off(debt, paused.until, str(paused), failed=False)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one debt's trouble is not all others'
            log.warning("session %s could not be made shorter: %s", debt.session_id, error)
            wait = min(_BACKOFF * 2**debt.tries, _LONGEST_BACKOFF)
            await self._put_off(debt, t.now() + wait, str(error), failed=True)
        else:
            async with t.db.write() as tx:
                await t.debts.settle(tx, debt, now=t.now())

    async def _put_off(self, debt: Debt, until: datetime, why: str, *, failed: bool) -> None:
        t = self._tools
        async with t.db.write() as tx:
            await t.debts.put_off(tx, debt, until=until, why=why, failed=failed)

    async def sweep(self, session: Session, *, forced: bool = False, tries: int = 0) -> Swept:
        """Pass by pass until nothing is left to do, or it is enough for once; `tries` have failed
        before. Raises BackendError and Paused, with all passes before kept."""
        t = self._tools
        until = t.now() + t.limits.span
        state = await self._state(session)
        if not forced and state.current <= t.limits.threshold:
            return Swept(passes=0)
        for made in range(t.limits.passes):
            work = next_pass(state, t.limits)
            if work is None:
                return Swept(passes=made)
            if t.now() > until:
                return Swept(passes=made, more=True)
            before = state.tokens
            if not await self._make(session, state, work, tries):
                return Swept(passes=made)
            state = await self._state(session)
            if state.tokens >= before:
                return Swept(passes=made + 1)
        more = next_pass(state, t.limits) is not None
        return Swept(passes=t.limits.passes, more=more)

    async def _state(self, session: Session) -> State:
        t = self._tools
        items = await t.summaries.items(session.id)
        after = items[-1].through if items else 0
        newest = max((each.summary.created_at for each in items), default=None)
        # What a backend counted before the last summary was made is no longer true.
        reported = session.tokens if newest is None or session.last_used_at > newest else 0
        sizes = await t.said.sizes(session.id, after=after)
        return State(items=items, messages=sizes, reported=reported)

    async def _make(self, session: Session, state: State, work: Leaf | Fold, tries: int) -> bool:
        """False where somebody was faster."""
        t = self._tools
        wanted, draft = await self._wanted(session, state, work)
        try:
            text, by_model = await self._written(session, wanted)
        except BackendError as error:
            hopeless = isinstance(error, BackendDenied) or tries >= _MOST_TRIES
            if state.current <= t.limits.context or not hopeless:
                raise
            # It must not grow beyond what a model can be told: better a poor summary than none.
            text, by_model = fallback(wanted, t.limits), False
        size = tokens(text)
        if size >= work.tokens:
            return False
        summary = replace(draft, content=text, tokens=size, model=session.model if by_model else "")
        return await self._keep(session, state, work, summary)

    async def _written(self, session: Session, wanted: Wanted) -> tuple[str, bool]:
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

        return await written(wanted, write, t.limits)

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

    async def _rung(self) -> None:
        """Until something was said, or a debt is due."""
        t = self._tools
        due = await t.debts.next_due()
        wait = None if due is None else max(0.0, (due - t.now()).total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._bell.wait()
