"""Builds the status, and answers it in a process that needs nothing else: without the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from bot.config.settings import Settings
from bot.engine.llm.api.access import LearnedToolForms
from bot.engine.sandbox.spec import Sandbox
from bot.engine.tasks.system_status import (
    ChannelHealthSource,
    SystemStatusService,
    measure_disk_use,
)
from bot.engine.upkeep import get_backup_state
from bot.setup.live_models import LiveModels, build_sandbox_detector
from bot.transports.alerts import ChannelAlerts
from bot.transports.ports import Clock, SystemClock
from bot.transports.web.ports import LOCAL_PLACE
from cards.catalog import catalog_for
from cards.json_data import JsonObject, status_data
from cards.model import Card
from cards.views.system import status_card
from storage.approvals import ApprovalRepo
from storage.db import Database
from storage.figures import FigureRepo
from storage.home_files import list_waiting_homes
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.messages.chats import ChatRepo
from storage.messages.outbox import OutboxRepo
from storage.migrate import sqlite_path
from storage.people import LOCAL_WEB_OWNER, PeopleRepo
from storage.records.people import ChatMemory, Language
from storage.records.processes import ProcessSituation, WaitingHome
from storage.records.system import DiskUse, ModelChoice
from storage.tasks import TaskRepo
from storage.worker_processes import WorkerProcessRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSources:
    model: Callable[[], ModelChoice]
    slots: Callable[[], int]
    sandbox: Callable[[], Awaitable[Sandbox]]


def build_system_status(
    settings: Settings,
    db: Database,
    clock: Clock,
    *,
    approvals: ApprovalRepo,
    channels: ChannelHealthSource,
    workers: StatusSources,
    unnamed_owner: Callable[[], str] = str,
) -> SystemStatusService:
    return SystemStatusService(
        tasks=TaskRepo(db),
        approvals=approvals,
        outbox=OutboxRepo(db),
        channels=channels,
        model=workers.model,
        slots=workers.slots,
        sandbox=workers.sandbox,
        zone=settings.zone,
        now=clock.now,
        unnamed_owner=unnamed_owner,
        started_at=clock.now(),
        figures=FigureRepo(db),
        backup=partial(
            get_backup_state, settings.backup_folder, settings.backup_hours, KeyValueStore(db)
        ),
        disk=partial(_measure_disk, settings, db),
        processes=partial(_list_processes, db, clock),
        waiting_homes=partial(_list_waiting_homes, db, clock),
    )


async def _list_processes(db: Database, clock: Clock) -> tuple[ProcessSituation, ...]:
    """On SQLite there is only this one."""
    if db.dialect == "sqlite":
        return ()
    return tuple(await WorkerProcessRepo(db).list_situations(now=clock.now()))


async def _list_waiting_homes(db: Database, clock: Clock) -> tuple[WaitingHome, ...]:
    return tuple(await list_waiting_homes(db, clock.now()))


async def read_status(settings: Settings, asked: Language | None = None) -> tuple[Card, JsonObject]:
    """The answer of `/status` to the local owner while no Shiftboss is running, in the language
    that is `asked` for if they have none. The caller must hold the data directory and have called
    `prepare_home`."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        ids = IdGenerator()
        chats = ChatRepo(db, ids)
        people = PeopleRepo(db, ids, chats)
        local = catalog_for(settings.fixed_language or Language.ENGLISH)("welcome.local_owner")
        await people.ensure_owners((), now=clock.now(), local_name=local)
        owner = await people.find_by_account(*LOCAL_WEB_OWNER)
        assert owner is not None
        sandbox = build_sandbox_detector(settings)
        tool_forms = LearnedToolForms(store=KeyValueStore(db), now=clock.now)
        models = LiveModels(settings, sandbox, tool_forms).registry
        stack.push_async_callback(models.aclose)
        system = build_system_status(
            settings,
            db,
            clock,
            approvals=ApprovalRepo(db, now=clock.now, decision_handlers={}),
            channels=ChannelAlerts(()),
            workers=StatusSources(
                model=lambda: models.default, slots=lambda: settings.slots, sandbox=sandbox
            ),
        )
        status = replace(
            await system.status(by=owner), pid=0, started_at=None, memory_bytes=0, channels=()
        )
        here = await chats.find(LOCAL_PLACE)
        memory = here.settings.memory if here else ChatMemory.ON
        words = catalog_for(settings.fixed_language or owner.language or asked or Language.ENGLISH)
        card = status_card(status, words, now=clock.now(), zone=settings.zone, memory=memory)
        return card, status_data(status, memory)


async def _measure_disk(settings: Settings, db: Database) -> tuple[DiskUse, ...]:
    home, backups = settings.home, settings.backup_folder
    database = sqlite_path(settings.database) or home
    found = await asyncio.to_thread(measure_disk_use, home, database, backups)
    if size := await db.size_on_server():
        found = sorted((*found, DiskUse(kind="database", size=size)), key=lambda use: -use.size)
    return tuple(found)
