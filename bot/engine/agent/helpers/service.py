"""Helpers at work in the background, over deaths of the program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from bot.engine.agent.helpers.errand import Errand, HelperKit
from cards.words import words_for
from storage.errors import StoreUnavailable
from storage.records.helpers import Helper
from storage.records.helping import HelperStatus

log = logging.getLogger(__name__)

_STORE_REST = 5.0
_LAST_WORDS = 5.0
_OWED_REST = 2.0
"""A chat that waits for a decision is looked at again so often, while it is owed a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    errand: Errand
    work: asyncio.Task[None]


class HelperService:
    """Runs whatever is accepted in the store. `grace` is how long a stop waits for those at work;
    `new_incident` makes the ids under which what nobody foresaw is logged."""

    name = "helpers"

    def __init__(
        self, kit: HelperKit, *, new_incident: Callable[[], str], grace: float = 10.0
    ) -> None:
        self._kit = kit
        self._new_incident = new_incident
        self._grace = grace
        self._changed = asyncio.Event()
        self._running: dict[str, _Running] = {}
        self._broken: set[str] = set()

    async def start(self, stack: AsyncExitStack) -> None:
        """What was at work when the program died begins anew, unless it had done something
        already that is not to be done twice."""
        for helper in await self._kit.repo.open_ones():
            if helper.status is HelperStatus.RUNNING:
                await self._take_up(helper)
        stack.push_async_callback(self._stop)
        self.wake()

    async def run(self) -> None:
        owed = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_OWED_REST if owed else None):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.turn()
                owed = await self._kit.parents.catch_up()
            except StoreUnavailable as error:
                log.warning("no helper can be started: %s", error)
                await asyncio.sleep(_STORE_REST)
                self.wake()

    async def drain(self) -> None:
        """Begin nothing more, and wait a while for those at work; the next start takes up the
        others."""
        self._kit.closing.set()
        working = [each.work for each in self._running.values() if each.errand.is_working]
        if working:
            await asyncio.wait(working, timeout=self._grace)

    def wake(self) -> None:
        """Call it when one has been accepted."""
        self._changed.set()

    def look(self) -> None:
        """Call it when something has changed about tasks: some may have no use for theirs."""
        if self._running:
            self._changed.set()

    async def turn(self) -> None:
        """Begin what is accepted, and end what nobody wants any more."""
        for helper in await self._kit.repo.open_ones():
            if not await self._wanted(helper):
                await self._end(helper, "helpers.stopped")
            elif helper.id not in self._known and not self._kit.closing.is_set():
                errand = await self._errand(helper)
                work = asyncio.create_task(self._one(helper, errand), name=f"helper {helper.id}")
                self._running[helper.id] = _Running(errand=errand, work=work)

    @property
    def _known(self) -> set[str]:
        """What broke off and could not even be ended costs nothing more in this life."""
        return self._broken | self._running.keys()

    async def _one(self, helper: Helper, errand: Errand) -> None:
        try:
            await errand.run()
        except StoreUnavailable as error:
            log.warning("helper %s waits for the store: %s", helper.id, error)
            await asyncio.sleep(_STORE_REST)
            await self._again(helper)
        except Exception:
            # The boundary between one helper and all others: whatever it is, its parent is told.
            incident = self._new_incident()
            self._broken.add(helper.id)
            log.exception("helper %s broke off, incident=%s", helper.id, incident)
            words = words_for(await self._kit.parents.language(helper))
            await errand.fail(words("helpers.broke_off", incident=incident))
        finally:
            self._running.pop(helper.id, None)
            self._changed.set()

    async def _wanted(self, helper: Helper) -> bool:
        kit = self._kit
        if helper.depth > 1:
            parent = await kit.repo.parent_of(helper)
            if parent is None or parent.status.is_final:
                return False
        return await kit.parents.wants(helper)

    async def _again(self, helper: Helper) -> None:
        while True:
            try:
                return await self._take_up(helper)
            except StoreUnavailable:
                await asyncio.sleep(_STORE_REST)

    async def _take_up(self, helper: Helper) -> None:
        kit = self._kit
        acted = await kit.repo.has_acted(helper.session_id)
        async with kit.db.write() as tx:
            await kit.repo.cut_calls(tx, helper.session_id, now=kit.now())
            if not acted:
                await kit.repo.put_back(tx, helper.id)
        if acted:
            await self._end(helper, "helpers.cut_off", what=acted)

    async def _end(self, helper: Helper, why: str, **facts: str) -> None:
        """Cancel it where it is at work, and say why."""
        running = self._running.get(helper.id)
        if running is not None and running.work is not asyncio.current_task():
            running.work.cancel()
            await asyncio.wait([running.work], timeout=_LAST_WORDS)
        words = words_for(await self._kit.parents.language(helper))
        await (await self._errand(helper)).fail(words(why, **facts))

    async def _errand(self, helper: Helper) -> Errand:
        return Errand(self._kit, helper, await self._kit.parents.language(helper))

    async def _stop(self) -> None:
        running = [each.work for each in self._running.values()]
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)
