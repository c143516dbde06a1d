"""Makes this process one of those that share the store, for as long as it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from socket import gethostname
from typing import TYPE_CHECKING, Any

from bot.app.container import Container
from bot.app.preflight import explain_start_failures
from bot.config.settings import Settings
from bot.engine.tasks.processes import ProcessLost, ProcessMembership
from bot.transports.ports import SystemClock
from storage.data_directory import identify_home
from storage.db import Database, Transaction
from storage.home_files import remove_home
from storage.records.processes import ProcessSituation, WorkerProcess
from storage.worker_processes import WorkerProcessRepo

if TYPE_CHECKING:
    from bot.engine.tasks.shared_dispatch import StoreListener


@dataclass(slots=True)
class Membership:
    """`is_lost` once others took this process for dead."""

    service: ProcessMembership
    is_lost: bool = False

    @property
    def is_shared(self) -> bool:
        return self.service.is_shared

    async def hold(self, service: str) -> bool:
        return await self.service.hold(service)


@asynccontextmanager
async def belong(core: Container, stop: asyncio.Event) -> AsyncGenerator[Membership, None]:
    """Register this process in the store and listen to other processes. A command that drains it
    sets `stop`. If others took it for dead, its body is cancelled and the exit is normal: see
    `Membership.is_lost`."""
    service, main = _build_membership(core), asyncio.current_task()
    member, failures = Membership(service), list[BaseException]()
    assert main is not None

    def on_end(ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            failures.append(error)
            main.cancel()

    async with AsyncExitStack() as stack:
        await service.start(stack)
        running = [asyncio.create_task(service.run(), name=service.name)]
        if service.is_shared:
            listener, draining = _build_listener(core), _stop_when_drained(service, stop)
            running.append(asyncio.create_task(listener.run(), name=listener.name))
            running.append(asyncio.create_task(draining, name="drain by command"))
        for each in running:
            each.add_done_callback(on_end)
        try:
            yield member
        except asyncio.CancelledError:
            if not failures:
                raise
            main.uncancel()
            if not isinstance(failures[0], ProcessLost):
                raise failures[0] from None
            member.is_lost = True
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def _build_membership(core: Container) -> ProcessMembership:
    engine, plan, clock = core.engine, core.plan, core.clock
    now, host = clock.now(), gethostname()

    async def describe() -> Mapping[str, Any]:
        models = engine.workers.models
        sandbox = await engine.workers.sandbox()
        return {
            "models": [models.default.name],
            "sandbox": sandbox.kind.value,
            "projects": sorted(plan.projects),
        }

    async def recover(tx: Transaction) -> None:
        await engine.dispatcher.recover_from_dead(tx)
        await engine.budget.book_late(tx)

    return ProcessMembership(
        db=core.repositories.db,
        repo=engine.processes,
        process=WorkerProcess(
            id=engine.process_id,
            name=plan.name or host,
            host=host,
            pid=os.getpid(),
            version=version("shiftboss"),
            role=plan.role,
            slots=engine.slots,
            started_at=now,
            seen_at=now,
        ),
        # The lock of the data directory, or of the part in it, is held by one process at a time.
        place=f"{host} {identify_home(core.settings.home)} {plan.role} {plan.name}",
        describe=describe,
        recover=recover,
        now=clock.now,
        adjust_clock=clock.adjust,
        sleep=clock.sleep,
    )


def _build_listener(core: Container) -> StoreListener:
    # Loaded only where processes share the store.
    from bot.engine.tasks.shared_dispatch import StoreListener

    own = core.repositories.db.backends

    def on_change(table: str, about: str, backend: int) -> None:
        # Who has posted a card here has also woken the sender, once it was stored.
        if table == "outbox" and backend not in own:
            core.outbox_sender.wake()
        core.engine.on_store_change(table, about)
        core.on_store_change(table, about)

    def on_unknown() -> None:
        core.outbox_sender.wake()
        core.engine.on_unknown_change()
        core.on_store_gap()

    return StoreListener(
        core.settings.database,
        on_change=on_change,
        on_unknown=on_unknown,
        on_live=core.signals.receive,
    )


async def _stop_when_drained(service: ProcessMembership, stop: asyncio.Event) -> None:
    await service.must_drain.wait()
    stop.set()


async def list_processes(settings: Settings) -> Sequence[ProcessSituation]:
    """For a shell command, beside whatever runs. Raises StartFailure."""
    with explain_start_failures(settings):
        async with AsyncExitStack() as stack:
            db = await Database.open(settings.database, stack)
            return await WorkerProcessRepo(db).list_situations(now=SystemClock().now())


async def drain_processes(settings: Settings, name: str) -> int:
    """Tell the processes of this name to stop; returns their number. Raises StartFailure."""
    with explain_start_failures(settings):
        async with AsyncExitStack() as stack:
            db = await Database.open(settings.database, stack)
            async with db.write() as tx:
                return await WorkerProcessRepo(db).drain(tx, name)


async def forget_place(settings: Settings, place: str) -> int:
    """Wait no longer for this data directory; returns how many erasures it owed. Raises
    StartFailure, NotFound, and WrongState if it is looked after."""
    with explain_start_failures(settings):
        async with AsyncExitStack() as stack:
            db = await Database.open(settings.database, stack)
            async with db.write() as tx:
                return await remove_home(tx, place, now=SystemClock().now())
