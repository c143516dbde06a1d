"""The composition root: builds all objects of the application."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from bot.app.autonomy import AutonomyDeps, build_autonomy
from bot.app.doctor import build_doctor
from bot.app.engine import build_engine_services
from bot.app.live_settings import LiveSettings, check_usable
from bot.app.memory import build_memory_port
from bot.app.memory_retrieval import build_local_retriever, build_mcp_memory
from bot.app.parts import AutonomyServices, EngineServices, WorkerServices
from bot.app.reports import build_reports
from bot.app.repositories import RepositorySet, build_repositories
from bot.app.schedule import build_project_folders
from bot.app.status import StatusSources, build_system_status
from bot.app.workers import build_masker
from bot.config.channels import configured_channels
from bot.config.settings import Settings
from bot.engine.agent.budget import CostReportService, SpendingCaps
from bot.engine.agent.session_history import TranscriptService
from bot.engine.agent.skills import SkillDrafter
from bot.engine.mcp.server.memory_server import McpMemoryServer
from bot.engine.memory.conversation_archive.service import ConversationHistoryService
from bot.engine.permissions.service import StandingPermissionService
from bot.engine.redaction import SecretMasker
from bot.engine.tasks.approvals import ApprovalService
from bot.engine.tasks.system_status import SystemStatusService
from bot.setup.channel_setup import ChannelSetupService
from bot.setup.feishu_setup import FeishuSetupService
from bot.setup.model_setup import ModelSetupService
from bot.setup.settings_editor import SettingsEditor
from bot.setup.settings_reload import SettingsReloader
from bot.transports.alerts import ChannelAlerts
from bot.transports.inbox import HeldMessages
from bot.transports.outbox import ButtonClaimService, OutboxCourier, SentCardService
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import Clock, SystemClock, Transport
from bot.transports.quota import MonthlyQuota, QuotaNotifier
from bot.transports.undeliverable_notifier import UndeliverableNotifier
from bot.transports.web.access import get_browser_address
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from bot.transports.web.sessions import WebSessionService
from cards.catalog import catalog_for
from handlers.approvals import ApprovalCards
from handlers.language import CardLanguageResolver
from handlers.ports import HandlerServices
from handlers.router import Router
from storage.db import Database
from storage.heartbeat import HeartbeatRepo
from storage.messages.outbox import DeliveryAttempt
from storage.records.feishu_setup import SetupSession
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, Chat, ChatKind, Language, PersonRole
from storage.sessions import TranscriptRepo
from storage.usage import BudgetRepo
from storage.web_sessions import WebSessionRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The application without its channels, which `bot.app.channels` adds to `transports`."""

    settings: Settings
    clock: Clock
    repositories: RepositorySet
    engine: EngineServices
    autonomy: AutonomyServices
    reloader: SettingsReloader
    alerts: ChannelAlerts
    transports: dict[Channel, Transport]
    quota: MonthlyQuota
    outbox_sender: OutboxSender
    courier: OutboxCourier
    held: HeldMessages
    web_sessions: WebSessionService
    feishu_setup: FeishuSetupService
    services: HandlerServices
    router: Router

    @property
    def memory_server(self) -> McpMemoryServer:
        settings, store, clock = self.settings, self.repositories, self.clock
        workers, memory = self.engine.workers, self.engine.memory
        build = partial(
            build_mcp_memory, settings, store.db, store.memory, clock, mask=workers.redactor.mask
        )
        local = build_local_retriever(settings, store.db, store.memory, clock)
        return McpMemoryServer(
            stores=build(recall=memory.retriever),
            local_stores=build(recall=local),
            history=workers.history.history,
            get_chat=self.get_local_chat,
        )

    async def get_local_chat(self) -> Chat:
        """The local owner's chat, created if necessary."""
        chats = self.repositories.chats
        known = await chats.find(LOCAL_PLACE)
        if known is not None:
            return known
        async with self.repositories.db.write() as tx:
            return await chats.get_or_create(tx, LOCAL_PLACE, LOCAL_SENDER, self.clock.now())


@asynccontextmanager
async def open_container(settings: Settings) -> AsyncGenerator[Container, None]:
    """The caller must hold the data directory and have called `prepare_home`."""
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        core = await build_container(settings, db)
        stack.push_async_callback(core.engine.workers.live_models.aclose)
        stack.push_async_callback(core.engine.workers.mcp_servers.aclose)
        stack.push_async_callback(core.feishu_setup.aclose)
        yield core


async def build_container(settings: Settings, db: Database) -> Container:
    clock, language = SystemClock(), settings.fixed_language
    store = build_repositories(db, clock, language, settings.approval_lifetime, zone=settings.zone)
    await register_owners(store, clock, settings)
    alerts = ChannelAlerts(configured_channels(settings), now=clock.now)
    transports: dict[Channel, Transport] = {}
    quota = _build_quota(settings, store, alerts, clock)
    sender = _build_outbox_sender(settings, store, clock, transports, quota)
    masker = build_masker(settings)
    courier = _build_courier(store, sender, clock, masker)
    approval_cards = _build_approval_cards(settings, store, courier)
    _report_undeliverable(store, sender, courier, approval_cards)
    quota.on_level = QuotaNotifier(quota=quota, owners=store.owner_cards(courier))
    engine = build_engine_services(settings, store, courier, clock, approval_cards)
    sender.on_chat_closed = _chat_closed_listener(sender.on_chat_closed, engine)
    held = HeldMessages(db=db, inbox=store.inbox, courier=courier, zone=settings.zone, clock=clock)
    autonomy = _build_autonomy(
        settings, store, clock, engine=engine, sender=sender, courier=courier, alerts=alerts
    )
    web_sessions = _build_web_sessions(settings, store, clock)
    reloader = _build_reloader(
        settings, store, clock, engine=engine, autonomy=autonomy, quota=quota, courier=courier
    )
    reloader.maskers = (engine.workers.redactor, masker)
    feishu_setup = _build_feishu_setup(
        store, clock, quota=quota, courier=courier, sessions=web_sessions, reloader=reloader
    )
    services = _build_handler_services(
        settings,
        store,
        clock,
        engine=engine,
        autonomy=autonomy,
        courier=courier,
        alerts=alerts,
        held=held,
        quota=quota,
        web_sessions=web_sessions,
        feishu_setup=feishu_setup,
        reloader=reloader,
    )
    router = _build_router(settings, services, clock)
    return Container(
        settings=settings,
        clock=clock,
        repositories=store,
        engine=engine,
        autonomy=autonomy,
        reloader=reloader,
        alerts=alerts,
        transports=transports,
        quota=quota,
        outbox_sender=sender,
        courier=courier,
        held=held,
        web_sessions=web_sessions,
        feishu_setup=feishu_setup,
        services=services,
        router=router,
    )


def _build_router(settings: Settings, services: HandlerServices, clock: Clock) -> Router:
    return Router(
        services,
        clock=clock.now,
        zone=settings.zone,
        new_incident=lambda: secrets.token_hex(4),
        language=settings.fixed_language,
    )


def _build_approval_cards(
    settings: Settings, store: RepositorySet, courier: OutboxCourier
) -> ApprovalCards:
    return ApprovalCards(
        people=store.people,
        cards=SentCardService(store.outbox, store.chats),
        courier=courier,
        zone=settings.zone,
        language=settings.fixed_language,
    )


def _build_feishu_setup(
    store: RepositorySet,
    clock: Clock,
    *,
    quota: MonthlyQuota,
    courier: OutboxCourier,
    sessions: WebSessionService,
    reloader: SettingsReloader,
) -> FeishuSetupService:
    return FeishuSetupService(
        reloader=reloader,
        quota=quota,
        key_values=store.key_values,
        owners=store.owner_cards(courier),
        may_connect=partial(_may_connect, store, sessions),
        now=clock.now,
        sleep=clock.sleep,
    )


def _build_reloader(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    engine: EngineServices,
    autonomy: AutonomyServices,
    quota: MonthlyQuota,
    courier: OutboxCourier,
) -> SettingsReloader:
    return SettingsReloader(
        in_force=settings,
        appliers=LiveSettings(
            engine=engine,
            autonomy=autonomy,
            quota=quota,
            set_owners=partial(_set_owners, store, clock),
        ).appliers,
        check_usable=check_usable,
        owners=store.owner_cards(courier),
        now=clock.now,
        sleep=clock.sleep,
    )


def _build_web_sessions(
    settings: Settings, store: RepositorySet, clock: Clock
) -> WebSessionService:
    return WebSessionService(
        repo=WebSessionRepo(store.db),
        ids=store.ids,
        now=clock.now,
        address=settings.web_url or get_browser_address(settings.web_host, settings.web_port),
    )


def _build_autonomy(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    engine: EngineServices,
    sender: OutboxSender,
    courier: OutboxCourier,
    alerts: ChannelAlerts,
) -> AutonomyServices:
    return build_autonomy(
        AutonomyDeps(
            settings=settings,
            store=store,
            clock=clock,
            engine=engine,
            courier=courier,
            alerts=alerts,
            wake_outbox=sender.wake,
        )
    )


async def register_owners(store: RepositorySet, clock: Clock, settings: Settings) -> None:
    """Record the configured owners. Feishu delivers to an open ID, so its owners can be asked
    before they have written: they get a chat here, and its ID with their first message or press."""
    local = catalog_for(settings.fixed_language or Language.ENGLISH)("welcome.local_owner")
    now = clock.now()
    await store.people.ensure_owners(settings.owner_ids, now=now, local_name=local)
    if not settings.feishu_app_id:
        return
    met = {
        chat.person_id
        for chat in await store.chats.list_private(PersonRole.OWNER)
        if chat.channel is Channel.FEISHU
    }
    for channel, account in settings.owner_ids:
        owner = await store.people.find_by_account(channel, account)
        if channel is not Channel.FEISHU or owner is None or owner.id in met:
            continue
        place = ChatAddress(channel=channel, chat=account, kind=ChatKind.PRIVATE)
        async with store.db.write() as tx:
            await store.chats.get_or_create(tx, place, MessageSender(external_id=account), now)


async def _set_owners(store: RepositorySet, clock: Clock, settings: Settings) -> None:
    await register_owners(store, clock, settings)
    await store.people.demote_unlisted_owners()


async def _may_connect(
    store: RepositorySet, sessions: WebSessionService, session: SetupSession
) -> bool:
    """Whether it is still a session of an owner."""
    members = {each.person.id: each.person for each in await store.people.list_members()}
    person = members.get(session.person_id)
    is_live = not session.session_id or await sessions.is_live(session.session_id)
    return is_live and person is not None and person.role.allows(PersonRole.OWNER)


def _build_outbox_sender(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    transports: dict[Channel, Transport],
    quota: MonthlyQuota,
) -> OutboxSender:
    return OutboxSender(
        db=store.db,
        outbox=store.outbox,
        transports=transports,
        clock=clock,
        alerts=quota.alerts,
        language_of=CardLanguageResolver(store.people, settings.fixed_language),
        quotas={Channel.FEISHU: quota},
    )


def _build_quota(
    settings: Settings, store: RepositorySet, alerts: ChannelAlerts, clock: Clock
) -> MonthlyQuota:
    return MonthlyQuota(
        Channel.FEISHU,
        key_values=store.key_values,
        alerts=alerts,
        now=clock.now,
        quota=settings.feishu_monthly_quota,
    )


def _build_courier(
    store: RepositorySet, sender: OutboxSender, clock: Clock, masker: SecretMasker
) -> OutboxCourier:
    return OutboxCourier(
        db=store.db,
        chats=store.chats,
        outbox=store.outbox,
        actions=store.actions,
        streams=sender.streams,
        wake=sender.wake,
        clock=clock,
        mask=masker.mask_for_people,
    )


def _report_undeliverable(
    store: RepositorySet, sender: OutboxSender, courier: OutboxCourier, cards: ApprovalCards
) -> None:
    """Forward messages of unreachable chats to the owners."""
    notifier = UndeliverableNotifier(
        chats=store.chats,
        people=store.people,
        outbox=store.outbox,
        courier=courier,
        language=cards.language,
        approvals=store.approvals,
        approval_cards=cards,
    )
    sender.on_chat_closed, sender.is_reader_removed = notifier, notifier.is_reader_removed


def _chat_closed_listener(
    forward: Callable[[DeliveryAttempt], Awaitable[None]], engine: EngineServices
) -> Callable[[DeliveryAttempt], Awaitable[None]]:
    """A listener that forwards the attempt and pauses the schedules of the closed chat."""

    async def on_chat_closed(tried: DeliveryAttempt) -> None:
        await forward(tried)
        await engine.schedule.firer.pause_of_chat(tried.chat.id)

    return on_chat_closed


def _build_handler_services(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    engine: EngineServices,
    autonomy: AutonomyServices,
    courier: OutboxCourier,
    alerts: ChannelAlerts,
    held: HeldMessages,
    quota: MonthlyQuota,
    web_sessions: WebSessionService,
    feishu_setup: FeishuSetupService,
    reloader: SettingsReloader,
) -> HandlerServices:
    workers, mask = engine.workers, engine.workers.redactor.mask
    return HandlerServices(
        tasks=engine.tasks,
        conversations=engine.conversations,
        models=workers.models,
        model_setup=_build_model_setup(store, engine, reloader),
        feishu_setup=feishu_setup,
        channel_setup=_build_channel_setup(store, clock, alerts, quota, reloader),
        people=store.people,
        pairings=store.pairings,
        account_links=store.account_links,
        web_sessions=web_sessions,
        approvals=ApprovalService(store.approvals, engine.on_decided),
        costs=_build_costs(store, clock, engine.rules.caps),
        system=_build_status(settings, store, clock, engine, alerts),
        buttons=ButtonClaimService(store.actions),
        held=held,
        inbox_log=store.inbox,
        cards=SentCardService(store.outbox, store.chats),
        courier=courier,
        journal=engine.journal,
        tools=_build_standing_permissions(store, clock, mask),
        personas=workers.personas,
        prompts=engine.evolution.service,
        mcp=workers.mcp_servers,
        worker_context=workers.briefing,
        transcripts=TranscriptService(TranscriptRepo(store.db), settings.home, mask),
        history=_build_history(store, clock, workers),
        traces=engine.traces,
        projects=build_project_folders(settings, store),
        skills=workers.skills,
        skill_writer=SkillDrafter(db=store.db, gateway=engine.gateway, library=workers.skills),
        workflows=engine.evolution.workflows,
        schedules=engine.schedule.service,
        self_check=autonomy.self_check,
        doctor=build_doctor(store, clock, engine, autonomy, reloader=reloader, quota=quota),
        settings=reloader,
        setting_editor=SettingsEditor(reloader),
        drive=autonomy.drive,
        heartbeat=engine.heartbeat,
        reports=build_reports(settings, store, clock, courier=courier, schedule=engine.schedule),
        memory=build_memory_port(
            settings, store, clock, writer=engine.memory_writer, retrieval=engine.memory
        ),
    )


def _build_standing_permissions(
    store: RepositorySet, clock: Clock, mask: Callable[[str], str]
) -> StandingPermissionService:
    return StandingPermissionService(
        grants=store.grants, calls=store.tool_calls, mask=mask, now=clock.now
    )


def _build_model_setup(
    store: RepositorySet, engine: EngineServices, reloader: SettingsReloader
) -> ModelSetupService:
    return ModelSetupService(
        reloader,
        store.db,
        models=engine.workers.live_models,
        gateway=engine.gateway,
        mask=engine.workers.redactor.mask,
    )


def _build_channel_setup(
    store: RepositorySet,
    clock: Clock,
    alerts: ChannelAlerts,
    quota: MonthlyQuota,
    reloader: SettingsReloader,
) -> ChannelSetupService:
    return ChannelSetupService(
        reloader=reloader,
        quota=quota,
        db=store.db,
        key_values=store.key_values,
        people=store.people,
        chats=store.chats,
        ids=store.ids,
        health=alerts.health,
        now=clock.now,
    )


def _build_history(
    store: RepositorySet, clock: Clock, workers: WorkerServices
) -> ConversationHistoryService:
    return ConversationHistoryService(
        history=workers.history.history,
        db=store.db,
        sessions=store.sessions,
        now=clock.now,
        redact=workers.redactor.mask,
    )


def _build_costs(store: RepositorySet, clock: Clock, caps: SpendingCaps) -> CostReportService:
    runs = HeartbeatRepo(store.db)
    return CostReportService(
        store.usage, BudgetRepo(store.db), caps, clock.now, heartbeat_runs=runs
    )


def _build_status(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    engine: EngineServices,
    alerts: ChannelAlerts,
) -> SystemStatusService:
    sources = StatusSources(
        model=lambda: engine.workers.models.default,
        slots=lambda: engine.dispatcher.slots,
        sandbox=engine.workers.sandbox,
    )
    return build_system_status(
        settings,
        store.db,
        clock,
        approvals=store.approvals,
        channels=alerts,
        workers=sources,
        unnamed_owner=lambda: store.people.unlisted_owner,
    )
