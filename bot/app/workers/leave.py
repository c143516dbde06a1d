"""Leave to use tools: the judge, what is remembered, and who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bot.app.store import Store
from bot.app.workers.guards import build_policy
from bot.config.settings import Settings
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.leave.permits import Leaves
from bot.engine.agent.leave.talks import GoesOn, Stops, Talks
from bot.engine.agent.masking import Masking
from bot.engine.dispatch.requests import Requests
from bot.transports.clock import Clock
from bot.transports.courier import OutboxCourier
from storage.records.approvals import Approval
from storage.records.people import Language
from storage.records.tasks import TaskId
from storage.records.tools import CallRecord, GrantRecord


def build_leaves(
    settings: Settings,
    store: Store,
    clock: Clock,
    bell: Bell,
    show: Callable[[Approval], Awaitable[None]],
    *,
    mask: Callable[[str], str],
    sandboxed: Callable[[], Awaitable[bool]],
) -> Leaves:
    return Leaves(
        db=store.db,
        calls=store.calls,
        grants=store.grants,
        tasks=store.work.tasks,
        asker=store.asker,
        judge=build_policy(settings),
        mask=mask,
        sandboxed=sandboxed,
        bell=bell,
        show=show,
        now=clock.now,
        sleep=asyncio.sleep,
    )


def stops_of(store: Store, stopped: asyncio.Event) -> Stops:
    return Stops(calls=store.calls, asker=store.asker, wake=stopped.set)


def build_talks(
    store: Store,
    clock: Clock,
    *,
    talk: GoesOn,
    courier: OutboxCourier,
    requests: Requests,
    stopped: asyncio.Event,
    language: Language | None,
) -> Talks:
    return Talks(
        db=store.db,
        calls=store.calls,
        asker=store.asker,
        people=store.people,
        talk=talk,
        post=courier,
        news=stopped,
        show=requests.put,
        catch_up=requests.catch_up,
        language=language,
        now=clock.now,
        sleep=asyncio.sleep,
    )


class ToolBookService:
    """Satisfies `handlers.services.toolbook.ToolBook`."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self._mask = Masking(settings.secrets).mask
        self._store = store
        self._clock = clock

    async def grants(self) -> Sequence[GrantRecord]:
        held = await self._store.grants.all()
        return tuple(replace(each, pattern=self._mask(each.pattern)) for each in held)

    async def revoke(self, number: int) -> bool:
        return await self._store.grants.revoke(number, now=self._clock.now())

    async def calls(self, task_id: TaskId, limit: int) -> Sequence[CallRecord]:
        return await self._store.calls.of_task(task_id, limit)
