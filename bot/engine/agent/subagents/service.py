"""Runs sub-agents in the background and recovers them after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from bot.engine.agent.subagents.run import SubagentDeps, SubagentRun
from cards.catalog import catalog_for
from storage.db import STORE_RETRY_SECONDS, retry_until_stored
from storage.errors import StoreUnavailable
from storage.records.tasks import SubagentStatus
from storage.records.workers import Subagent
from storage.tools import cut_off_session_calls

log = logging.getLogger(__name__)

_CANCEL_TIMEOUT = 5.0
_OVERDUE_RETRY_DELAY = 2.0
"""Seconds between attempts to deliver a report to a chat that waits for a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningSubagent:
    run: SubagentRun
    task: asyncio.Task[None]


class SubagentService:
    """Runs all accepted sub-agents.

    `grace` is how many seconds `drain` waits for running ones; `new_incident` creates log
    references for unexpected errors."""

    name = "subagents"

    def __init__(
        self, deps: SubagentDeps, *, new_incident: Callable[[], str], grace: float = 10.0
    ) -> None:
        self._deps = deps
        self._new_incident = new_incident
        self._grace = grace
        self._changed = asyncio.Event()
        self._running: dict[str, _RunningSubagent] = {}
        self._broken: set[str] = set()

    async def start(self, stack: AsyncExitStack) -> None:
        """Requeue sub-agents that were running at shutdown; fail those that had side effects."""
        for helper in await self._deps.repo.list_unfinished():
            if helper.status is SubagentStatus.RUNNING:
                await self._recover(helper)
        stack.push_async_callback(self._stop)
        self.wake()

    async def run(self) -> None:
        owed = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_OVERDUE_RETRY_DELAY if owed else None):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.advance()
                owed = await self._deps.parents.deliver_overdue()
            except StoreUnavailable as error:
                log.warning("no sub-agent can be started: %s", error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
                self.wake()

    async def drain(self) -> None:
        """Start nothing more and wait up to `grace` seconds; the rest continues at the next
        start."""
        self._deps.closing.set()
        working = [each.task for each in self._running.values() if each.run.is_working]
        if working:
            await asyncio.wait(working, timeout=self._grace)

    def wake(self) -> None:
        """Call after a sub-agent has been accepted."""
        self._changed.set()

    def check_needed(self) -> None:
        """Call after a task changed, because its sub-agents may no longer be needed."""
        if self._running:
            self._changed.set()

    async def advance(self) -> None:
        """Start accepted sub-agents and end those no longer needed."""
        for helper in await self._deps.repo.list_unfinished():
            if not await self._is_needed(helper):
                await self._finish(helper, "helpers.stopped")
            elif helper.id not in self._in_progress and not self._deps.closing.is_set():
                subagent_run = await self._create_run(helper)
                work = asyncio.create_task(
                    self._supervise(helper, subagent_run), name=f"sub-agent {helper.id}"
                )
                self._running[helper.id] = _RunningSubagent(run=subagent_run, task=work)

    @property
    def _in_progress(self) -> set[str]:
        """Includes sub-agents that failed unexpectedly, which are not retried before a restart."""
        return self._broken | self._running.keys()

    async def _supervise(self, helper: Subagent, subagent_run: SubagentRun) -> None:
        try:
            await subagent_run.run()
        except StoreUnavailable as error:
            log.warning("sub-agent %s waits for the store: %s", helper.id, error)
            await asyncio.sleep(STORE_RETRY_SECONDS)
            await retry_until_stored(
                lambda: self._recover(helper), asyncio.sleep, f"sub-agent {helper.id}"
            )
        except Exception:
            # Isolate sub-agents from each other; the parent is notified.
            incident = self._new_incident()
            self._broken.add(helper.id)
            log.exception("sub-agent %s failed, incident=%s", helper.id, incident)
            words = catalog_for(await self._deps.parents.language(helper))
            await subagent_run.fail(words("helpers.broke_off", incident=incident))
        finally:
            self._running.pop(helper.id, None)
            self._changed.set()

    async def _is_needed(self, helper: Subagent) -> bool:
        deps = self._deps
        if helper.depth > 1:
            parent = await deps.repo.find_parent(helper)
            if parent is None or parent.status.is_final:
                return False
        return await deps.parents.is_needed(helper)

    async def _recover(self, helper: Subagent) -> None:
        deps = self._deps
        acted = await deps.repo.first_side_effect(helper.session_id)
        async with deps.db.write() as tx:
            await cut_off_session_calls(tx, helper.session_id, now=deps.now())
            if not acted:
                await deps.repo.requeue(tx, helper.id)
        if acted:
            await self._finish(helper, "helpers.cut_off", what=acted)

    async def _finish(self, helper: Subagent, why: str, **facts: str) -> None:
        """Cancel the run if active and fail the sub-agent."""
        running = self._running.get(helper.id)
        if running is not None and running.task is not asyncio.current_task():
            running.task.cancel()
            await asyncio.wait([running.task], timeout=_CANCEL_TIMEOUT)
        words = catalog_for(await self._deps.parents.language(helper))
        await (await self._create_run(helper)).fail(words(why, **facts))

    async def _create_run(self, helper: Subagent) -> SubagentRun:
        return SubagentRun(self._deps, helper, await self._deps.parents.language(helper))

    async def _stop(self) -> None:
        running = [each.task for each in self._running.values()]
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)
