"""Leave for helpers: they wait for a person live, for a while, and go on without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bot.engine.llm.calls import Leave, Permission, Permit, ToolCall
from storage.agents.calls import CallRepo
from storage.agents.helpers import HelperRepo
from storage.db import Database
from storage.work.asked import withdraw

_NOBODY = "Nobody has decided in time: go on without it, and say so in your report."


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """Satisfies `calls.Permit`. A helper's run is never suspended: what nobody decides within
    `patience` seconds is refused, and nobody is asked about it any more."""

    inner: Permit
    session_id: str
    patience: float
    db: Database
    calls: CallRepo
    repo: HelperRepo
    now: Callable[[], datetime]

    async def __call__(self, call: ToolCall, *, patience: float = 0.0) -> Permission:
        given = await self.inner(call, patience=max(patience, self.patience))
        if given.leave is not Leave.LATER:
            return given
        await self._give_up()
        return Permission(leave=Leave.DENY, text=_NOBODY)

    async def ended(self, call_id: str, *, good: bool, outcome: str, size: int = 0) -> None:
        await self.inner.ended(call_id, good=good, outcome=outcome, size=size)

    async def _give_up(self) -> None:
        async with self.db.write() as tx:
            for row, approval in await self.repo.unasked(tx, self.session_id):
                if approval:
                    await withdraw(tx, approval, why="approval.gone_on", now=self.now())
                await self.calls.cut(tx, row, now=self.now())
