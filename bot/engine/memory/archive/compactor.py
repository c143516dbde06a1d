"""Makes long sessions shorter in the background: a pass at a time, each of them whole."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.engine.memory.archive.guard import Guard, Paused
from bot.engine.memory.archive.passes import Passes, Tools
from bot.engine.memory.archive.plan import next_pass
from storage.errors import StoreUnavailable
from storage.records.memory.archive import Debt
from storage.sessions import Session

log = logging.getLogger(__name__)

REST = 1.0
"""Seconds between two looks: a chat under way is not run after line by line."""
_STORE_REST = 5.0
_MOST_LOOKS = 8
"""In vain, at a session in which something was said."""
_PAUSE = timedelta(seconds=5)
"""Between two sweeps of one session: others come between."""
_BACKOFF = timedelta(minutes=1)
_LONGEST_BACKOFF = timedelta(hours=1)
_AT_ONCE = 8
_WORK = ("chat:", "task:", "helper:")
"""Whose sessions are gone on with."""


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
        self._passes = Passes(tools, self._guard)
        self._growth = growth or Growth()
        self._grown, self._bell = self._growth.sessions, self._growth.bell
        self._looks: dict[str, int] = {}

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
                await self._rung()
                # Whoever rings is still storing what was said.
                await t.sleep(REST)
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
        # What grows meanwhile is left for the next look: it may not be stored yet.
        for session_id in tuple(self._grown):
            self._grown.discard(session_id)
            try:
                self._look_again(session_id, found=await self._look_at(session_id))
            except StoreUnavailable:
                self._grown.add(session_id)
                raise
            except Exception:  # the boundary of one session: its trouble is not all others'
                log.exception("session %s cannot be kept in the archive", session_id)
        for debt in await t.debts.due(t.now(), _AT_ONCE):
            await self._pay(debt)
            self._bell.set()

    def _look_again(self, session_id: str, *, found: bool) -> None:
        """Who rings is about to store what was said, and on a busy machine that takes a while."""
        looks = 0 if found else self._looks.pop(session_id, 0) + 1
        if looks < _MOST_LOOKS:
            self._looks[session_id] = looks
            self._growth.said(session_id)

    async def _look_at(self, session_id: str) -> bool:
        """False where nothing new was found."""
        t = self._tools
        found = await t.reading.catch_up(session_id)
        if not found and session_id in self._looks:
            return False
        session = await t.sessions.get(session_id)
        if session is None or not self._concerns(session):
            return found
        limits = await t.limits_of(session)
        if (await self._passes.state(session, limits)).current > limits.threshold:
            async with t.db.write() as tx:
                await t.debts.owe(tx, session_id, now=t.now())
        return found

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
        limits = await t.limits_of(session)
        until = t.now() + limits.span
        state = await self._passes.state(session, limits)
        if not forced and state.current <= limits.threshold:
            return Swept(passes=0)
        for made in range(limits.passes):
            work = next_pass(state, limits)
            if work is None:
                return Swept(passes=made)
            if t.now() > until:
                return Swept(passes=made, more=True)
            before = state.tokens
            if not await self._passes.make(session, state, work, limits, tries=tries):
                return Swept(passes=made)
            state = await self._passes.state(session, limits)
            if state.tokens >= before:
                return Swept(passes=made + 1)
        more = next_pass(state, limits) is not None
        return Swept(passes=limits.passes, more=more)

    async def _rung(self) -> None:
        """Until something was said, or a debt is due."""
        t = self._tools
        due = await t.debts.next_due()
        wait = None if due is None else max(0.0, (due - t.now()).total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._bell.wait()
