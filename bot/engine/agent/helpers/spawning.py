"""A worker's wish for a helper: refused with a reason, or on disk before it is told so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime

from bot.engine.agent.tools.sessions_spawn import TOOL, NotSent, Wish
from bot.engine.agent.workbench import Job
from bot.engine.llm.calls import exact_hash
from storage.agents.helpers import HelperRepo
from storage.db import Database, Transaction
from storage.records.helpers import Helper, NewHelper

DEEPEST = 2
"""A worker's helper may send off helpers of its own; those may not."""

MOST_AT_ONCE = 5
MOST_EVER = 20
"""Helpers of one conversation of a worker: at work or waiting, and all together."""

_LONGEST_LABEL = 60
_LONGEST_TASK = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawning:
    """`on_accepted` is called once the row is there; `personas` tells who may be named."""

    db: Database
    repo: HelperRepo
    personas: Callable[[], Awaitable[Collection[str]]]
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    on_accepted: Callable[[], None]

    async def spawn(self, job: Job, wish: Wish) -> Helper:
        """Raises NotSent."""
        new = await self._new(job, wish)
        async with self.db.write() as tx:
            helper = await self._add(tx, new, wish)
        self.on_accepted()
        return helper

    async def _add(self, tx: Transaction, new: NewHelper, wish: Wish) -> Helper:
        if known := await self.repo.same(tx, new):
            return known
        if await self.repo.count_open(tx, parent=new.parent_session) >= MOST_AT_ONCE:
            raise NotSent(f"{MOST_AT_ONCE} of your helpers are at work already: wait for one")
        if await self.repo.count(tx, parent=new.parent_session) >= MOST_EVER:
            raise NotSent(f"you have sent off {MOST_EVER} helpers, and that is all you get")
        number = self.new_id()
        exact = exact_hash(TOOL, wish.arguments)
        call = await self.repo.last_call(tx, new.parent_session, exact) or number
        sourced = replace(new, source=f"{new.parent_session}:{call}")
        return await self.repo.add(tx, sourced, id=number, now=self.now())

    async def _new(self, job: Job, wish: Wish) -> NewHelper:
        if job.depth >= DEEPEST:
            raise NotSent("a helper's helper cannot send off another: do it yourself")
        if job.account.person is None or job.account.chat is None:
            raise NotSent("there is nobody here for whom a helper could work")
        if not wish.task.strip() or len(wish.task) > _LONGEST_TASK:
            raise NotSent(f"say what to do, in at most {_LONGEST_TASK} characters")
        if wish.persona and wish.persona not in await self.personas():
            names = ", ".join(sorted(await self.personas()))
            raise NotSent(f"there is no persona {wish.persona[:60]!r}; there are {names}")
        return NewHelper(
            source="",
            parent_session=job.session.id,
            task_id=job.account.task,
            path=job.path,
            chat_id=job.account.chat,
            person_id=job.account.person,
            depth=job.depth + 1,
            label=(" ".join(wish.label.split()) or wish.task.strip())[:_LONGEST_LABEL],
            prompt=wish.task.strip(),
            persona=wish.persona or job.persona,
            keep=wish.keep,
            turn=job.turn,
        )
