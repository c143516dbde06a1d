"""The only place that builds things: read it as a parts list."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from bot.app.costs import CostService
from bot.app.engine import Engine, build_engine
from bot.app.lifecycle import Service
from bot.app.memory.history import HistoryService
from bot.app.memory.opening import build_book
from bot.app.memory.serving import Serving, build_serving
from bot.app.parts import settings_language
from bot.app.returns import Returns
from bot.app.services import (
    ApprovalService,
    ButtonService,
    CardService,
    ProjectService,
    SystemService,
    copies_of,
)
from bot.app.store import Store, build_store
from bot.app.supervisor import Supervised
from bot.app.web import Overheard, WebHistory, WebSpeaker
from bot.app.workers.commands import build_masking
from bot.app.workers.leave import ToolBookService
from bot.app.workers.transcripts import TranscriptService
from bot.config.settings import Settings
from bot.engine.llm.registry import Registry
from bot.engine.workflow.library.library import Library
from bot.engine.workflow.places.worktrees import Worktrees
from bot.transports.alerts import Alerts
from bot.transports.base import Transport
from bot.transports.clock import Clock, SystemClock
from bot.transports.courier import OutboxCourier
from bot.transports.delivery import Delivery
from bot.transports.intake import Intake
from bot.transports.quota import MonthlyQuota
from cards.words import words_for
from handlers.language import LanguageOfLetters
from handlers.ports import Services
from handlers.router import Router
from handlers.table import menu
from storage.agents.transcripts import TranscriptRepo
from storage.budgets import BudgetRepo
from storage.db import Database
from storage.records.people import Channel, Language

if TYPE_CHECKING:
    from bot.transports.web.transport import WebTransport


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The program, ready to start: services in their order, the web chat by name, and the models,
    to be closed at the end."""

    services: Sequence[Service]
    web: WebTransport
    models: Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """All but the ways in and out: what answers, and what works. `transports` is still empty."""

    store: Store
    engine: Engine
    alerts: Alerts
    transports: dict[Channel, Transport]
    quota: MonthlyQuota
    delivery: Delivery
    courier: OutboxCourier
    router: Router
    clock: Clock


async def build(settings: Settings, db: Database) -> Parts:
    core = await build_core(settings, db)
    await _settle_owners(core.store)
    # Known before the first command, and the sandbox told in the log.
    place = core.engine.place
    await asyncio.gather(place.sandbox(), place.models.look_around())
    store, engine, alerts, transports = core.store, core.engine, core.alerts, core.transports
    router = Overheard(core.router)
    intake = Intake(
        db=db,
        chats=store.chats,
        inbox=store.inbox,
        outbox=store.outbox,
        actions=store.actions,
        courier=core.courier,
        delivery=core.delivery,
        router=router,
        transports=transports,
        home=settings.home,
        clock=core.clock,
        alerts=alerts,
    )
    engine.post.append(intake.take)
    web = web_chat(settings, core, intake, router)
    alerts.changed = web.refresh_alerts
    transports |= {Channel.WEB: web, **_platforms(settings, intake, core.quota)}
    return Parts(
        web=web,
        models=engine.place.models,
        services=(
            core.delivery,
            *engine.workers,
            intake,
            *map(Supervised, transports.values()),
        ),
    )


async def _settle_owners(store: Store) -> None:
    """Only where the program runs for good: a command typed in another shell may not know all
    settings."""
    for person in await store.people.demote_unnamed():
        log.warning("%s is no longer in SHIFTBOSS_OWNERS: a member from now on", person.id)
    if store.people.unnamed_owner:
        log.warning("SHIFTBOSS_OWNERS names nobody: the last owner stays one, see /status")


async def build_core(settings: Settings, db: Database) -> Core:
    clock = SystemClock()
    language = settings_language(settings)
    lifetime = timedelta(hours=settings.approval_hours)
    store = build_store(db, clock, language, lifetime, zone=settings.zone)
    local = words_for(language or Language.ENGLISH)("welcome.local_owner")
    await store.people.ensure_owners(settings.owner_ids, now=clock.now(), local=local)

    alerts = Alerts(_channels(settings))
    transports: dict[Channel, Transport] = {}
    quota = _feishu_quota(settings, store, alerts, clock)
    delivery = Delivery(
        db=db,
        outbox=store.outbox,
        transports=transports,
        clock=clock,
        alerts=alerts,
        language_of=LanguageOfLetters(store.people, language),
        quotas={Channel.FEISHU: quota},
    )
    courier = _courier(store, delivery, clock)
    returns = _returns(settings, store, courier)
    delivery.closed, delivery.gone = returns, returns.is_gone
    engine = build_engine(settings, store, courier, clock)
    router = _router(
        settings=settings,
        store=store,
        engine=engine,
        courier=courier,
        alerts=alerts,
        clock=clock,
    )
    return Core(
        store=store,
        engine=engine,
        alerts=alerts,
        transports=transports,
        quota=quota,
        delivery=delivery,
        courier=courier,
        router=router,
        clock=clock,
    )


def _channels(settings: Settings) -> tuple[Channel, ...]:
    configured = {
        Channel.TELEGRAM: bool(settings.telegram_bot_token.get_secret_value()),
        Channel.FEISHU: bool(settings.feishu_app_id),
        Channel.WEB: True,
    }
    return tuple(channel for channel, there in configured.items() if there)


def _feishu_quota(settings: Settings, store: Store, alerts: Alerts, clock: Clock) -> MonthlyQuota:
    return MonthlyQuota(
        Channel.FEISHU,
        marks=store.marks,
        alerts=alerts,
        now=clock.now,
        quota=settings.feishu_monthly_quota,
    )


def _courier(store: Store, delivery: Delivery, clock: Clock) -> OutboxCourier:
    return OutboxCourier(
        db=store.db,
        chats=store.chats,
        outbox=store.outbox,
        actions=store.actions,
        streams=delivery.streams,
        wake=delivery.wake,
        clock=clock,
    )


def _returns(settings: Settings, store: Store, courier: OutboxCourier) -> Returns:
    language = settings_language(settings)
    copies = copies_of(
        settings,
        language,
        people=store.people,
        chats=store.chats,
        outbox=store.outbox,
        courier=courier,
    )
    return Returns(
        chats=store.chats,
        people=store.people,
        courier=courier,
        language=language,
        approvals=store.approvals,
        copies=copies,
    )


def _router(
    *,
    settings: Settings,
    store: Store,
    engine: Engine,
    courier: OutboxCourier,
    alerts: Alerts,
    clock: Clock,
) -> Router:
    services = Services(
        tasks=engine.foreman,
        talk=engine.talk,
        models=engine.place.models,
        people=store.people,
        pairings=store.pairings,
        approvals=ApprovalService(store.approvals, engine.on_decided),
        costs=CostService(store.usage, BudgetRepo(store.db), engine.caps, clock.now),
        system=SystemService(
            tasks=store.work.tasks,
            approvals=store.approvals,
            outbox=store.outbox,
            channels=alerts,
            model=lambda: engine.place.models.default,
            slots=settings.slots,
            zone=settings.zone,
            now=clock.now,
            sandbox=engine.place.sandbox,
            unnamed_owner=lambda: store.people.unnamed_owner,
        ),
        buttons=ButtonService(store.actions),
        cards=CardService(store.outbox, store.chats),
        courier=courier,
        notebook=engine.notebook,
        toolbook=ToolBookService(settings, store, clock),
        personas=engine.place.personas,
        contexts=engine.place.context,
        transcripts=TranscriptService(
            TranscriptRepo(store.db), settings.home, build_masking(settings).mask
        ),
        histories=HistoryService(engine.place.past, clock.now, engine.place.masking.mask),
        traces=engine.traces,
        projects=ProjectService(settings.home, Worktrees(settings.home).is_repository),
        skills=engine.place.skills,
        skill_writer=engine.skill_writer,
        workflows=Library(settings.home, store.work.graphs),
        memory=build_book(
            settings, store, clock, writing=engine.writing, recalling=engine.place.memory
        ),
    )
    return Router(
        services,
        clock=clock.now,
        zone=settings.zone,
        new_incident=lambda: secrets.token_hex(4),
        language=settings_language(settings),
    )


def web_chat(settings: Settings, core: Core, intake: Intake, router: Overheard) -> WebTransport:
    # A command typed beside no running program needs no web server.
    from bot.app.memory.served import McpPage
    from bot.transports.web.transport import WebTransport

    store, page = core.store, McpPage(serving_of(settings, core))
    web = WebTransport(
        host=settings.web_host,
        port=settings.web_port,
        token=settings.web_token.get_secret_value(),
        home=settings.home,
        intake=intake,
        menu=menu,
        history=WebHistory(store.db, store.chats),
        speaker=WebSpeaker(intake, router),
        alerts=core.alerts,
        routes=(page.route,),
        language=settings_language(settings),
    )
    page.key = lambda: web.token
    return web


def serving_of(settings: Settings, core: Core) -> Serving:
    engine = core.engine
    return build_serving(
        settings,
        core.store,
        core.clock,
        writing=engine.writing,
        recalling=engine.place.memory,
        past=engine.place.past,
        mask=engine.place.masking.mask,
    )


def _platforms(settings: Settings, intake: Intake, quota: MonthlyQuota) -> dict[Channel, Transport]:
    found: dict[Channel, Transport] = {}
    if settings.telegram_bot_token.get_secret_value():
        found[Channel.TELEGRAM] = _telegram(settings, intake)
    if settings.feishu_app_id:
        found[Channel.FEISHU] = _feishu(settings, intake, quota)
    return found


def _telegram(settings: Settings, intake: Intake) -> Transport:
    # The platforms' libraries are large: each is loaded only where it is configured.
    from bot.transports.telegram.transport import TelegramTransport

    return TelegramTransport(
        token=settings.telegram_bot_token.get_secret_value(),
        base_url=settings.telegram_base_url,
        intake=intake,
        home=settings.home,
        menu=menu,
    )


def _feishu(settings: Settings, intake: Intake, quota: MonthlyQuota) -> Transport:
    from bot.transports.feishu.transport import FeishuTransport

    return FeishuTransport(
        app_id=settings.feishu_app_id,
        app_secret=settings.feishu_app_secret.get_secret_value(),
        domain=settings.feishu_domain,
        intake=intake,
        home=settings.home,
        on_call=quota.count,
    )
