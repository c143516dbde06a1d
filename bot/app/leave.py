"""Leave to use tools: the judge, what is remembered, and who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.leave.permits import Leaves
from bot.engine.agent.masking import Masking
from bot.engine.agent.policy.policy import Policy
from bot.transports.clock import Clock
from storage.records.approvals import Approval


def build_leaves(
    settings: Settings,
    store: Store,
    clock: Clock,
    bell: Bell,
    show: Callable[[Approval], Awaitable[None]],
    *,
    sandboxed: bool,
) -> Leaves:
    return Leaves(
        db=store.db,
        calls=store.calls,
        grants=store.grants,
        tasks=store.work.tasks,
        asker=store.asker,
        judge=Policy(),
        mask=Masking(settings.secrets).mask,
        sandboxed=sandboxed,
        bell=bell,
        show=show,
        now=clock.now,
        sleep=asyncio.sleep,
    )
