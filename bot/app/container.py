"""The composition root: builds all objects of the application."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial

from bot.app.autonomy import build_autonomy, build_doctor, build_home_keeper, build_reports
from bot.app.bitable import FeishuAppClient, LazyBitableSetup, build_bitable_setup
from bot.app.engine import Engine
from bot.app.lifecycle import Signal
from bot.app.live_settings import LiveSettings, check_usable
from bot.app.memory_retrieval import build_local_retriever, build_mcp_memory
from bot.app.parts import AutonomyServices, ProcessPlan
from bot.app.repositories import RepositorySet, build_repositories
from bot.app.schedule import build_project_folders
from bot.app.status import StatusSources, build_system_status
from bot.app.workers import build_masker
from bot.config.channels import configured_channels
from bot.config.settings import BadSettings, Settings
from bot.engine.agent.session_history import TranscriptService
from bot.engine.agent.skills import SkillDrafter
from bot.engine.autonomy.doctor import DoctorService
from bot.engine.mcp.server.memory_server import McpMemoryServer
from bot.engine.memory.conversation_archive.service import ConversationHistoryService
from bot.engine.permissions.service import StandingPermissionService
from bot.engine.redaction import SecretMasker
from bot.engine.tasks.approvals import ApprovalService
from bot.engine.tasks.system_status import SystemStatusService
from bot.engine.upkeep import HomeKeeper
from bot.engine.workflow.stored_scope import StoredRunEvaluator
from bot.setup.channel_setup import ChannelSetupService
from bot.setup.feishu_setup import FeishuSetupService
from bot.setup.model_setup import ModelSetupService
from bot.setup.settings_editor import SettingsEditor
from bot.setup.settings_reload import SettingsReloader
from bot.transports.alerts import ChannelAlerts
from bot.transports.front_signals import FrontSignals
from bot.transports.held_messages import HeldMessages
from bot.transports.outbox import ButtonClaimService, OutboxCourier, SentCardService
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import Clock, SystemClock, Transport
from bot.transports.quota import MonthlyQuota, QuotaNotifier
from bot.transports.undeliverable_notifier import UndeliverableNotifier
from bot.transports.web.access import get_browser_address
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from bot.transports.web.sessions import WebSessionService
from cards.catalog import catalog_for
from handlers.approval_cards import ApprovalCards
from handlers.language import CardLanguageResolver
from handlers.ports import HandlerServices
from handlers.router import Router
from storage.data_directory import identify_home
from storage.db import Database
from storage.home_files import HomeFileRepo
from storage.messages.outbox import DeliveryAttempt
from storage.records.channels import SetupSession
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, Chat, ChatKind, Language, PersonRole
from storage.sessions import TranscriptRepo
from storage.shared_files import OneFolder, SharedFiles, build_s3_files
from storage.web_sessions import WebSessionRepo


class Container:
    """The application without its channels, which `bot.app.channels` adds to `transports`. Parts
    are built when they are first asked for; `router` needs nearly all of them. `on_store_change`
    is called with the table that another process may have written to, and the row if it is told;
    `on_store_gap` when changes may have been missed."""

    def __init__(
        self, settings: Settings, store: RepositorySet, clock: SystemClock, plan: ProcessPlan
    ) -> None:
        """Raises BadSettings."""
        self.plan = plan
        self.settings, self.repositories, self.clock = settings, store, clock
        self.on_store_change, self.on_store_gap = Signal[[str, str]](), Signal[[]]()
        self.alerts = ChannelAlerts(configured_channels(settings), now=clock.now)
        self.transports: dict[Channel, Transport] = {}
        self.quota = MonthlyQuota(
            Channel.FEISHU,
            key_values=store.key_values,
            alerts=self.alerts,
            now=clock.now,
            quota=settings.feishu_monthly_quota,
        )
        self.quota.on_level = QuotaNotifier(
            quota=self.quota, owners=store.owner_cards(self.courier)
        )
        undeliverable = UndeliverableNotifier(
            chats=store.chats,
            people=store.people,
            outbox=store.outbox,
            courier=self.courier,
            language=settings.fixed_language,
            approvals=store.approvals,
            approval_cards=self._approval_cards,
        )
        self.outbox_sender.is_reader_removed = undeliverable.is_reader_removed

        async def on_chat_closed(tried: DeliveryAttempt) -> None:
            await undeliverable(tried)
            await self.engine.schedule.firer.pause_of_chat(tried.chat.id)

        self.outbox_sender.on_chat_closed = on_chat_closed
        self.reloader.maskers = (self.engine.workers.redactor, self._masker)
        self.router = Router(
            self.services,
            clock=clock.now,
            zone=settings.zone,
            new_incident=lambda: secrets.token_hex(4),
            language=settings.fixed_language,
        )

    @cached_property
    def home_files(self) -> HomeFileRepo | None:
        """None where this data directory is the only place of files."""
        db, settings = self.repositories.db, self.settings
        if db.dialect == "sqlite" and not settings.s3_url:
            return None
        return HomeFileRepo(db, identify_home(settings.home))

    @cached_property
    def home_keepers(self) -> tuple[HomeKeeper, ...]:
        if self.home_files is None:
            return ()
        return (build_home_keeper(self.engine, self.home_files),)

    @cached_property
    def files(self) -> SharedFiles:
        """Raises BadSettings."""
        settings, rows = self.settings, self.home_files
        if not settings.s3_url or rows is None:
            return OneFolder(rows, self.clock.now)
        try:
            return build_s3_files(
                settings.home,
                settings.s3_url,
                key=settings.s3_key,
                secret=settings.s3_secret.get_secret_value(),
                region=settings.s3_region,
                rows=rows,
                now=self.clock.now,
            )
        except ValueError as error:
            raise BadSettings([f"SHIFTBOSS_S3_URL: {error}"]) from error

    @cached_property
    def signals(self) -> FrontSignals:
        """Nobody is told where a process has its store alone."""
        url = self.settings.database if self.repositories.db.dialect != "sqlite" else ""
        return FrontSignals(url, self.engine.process_id)

    @cached_property
    def _masker(self) -> SecretMasker:
        return build_masker(self.settings)

    @cached_property
    def outbox_sender(self) -> OutboxSender:
        store = self.repositories
        return OutboxSender(
            db=store.db,
            outbox=store.outbox,
            transports=self.transports,
            clock=self.clock,
            alerts=self.alerts,
            language_of=CardLanguageResolver(store.people, self.settings.fixed_language),
            quotas={Channel.FEISHU: self.quota},
            files=self.files,
        )

    @cached_property
    def courier(self) -> OutboxCourier:
        store, sender = self.repositories, self.outbox_sender
        return OutboxCourier(
            db=store.db,
            chats=store.chats,
            outbox=store.outbox,
            actions=store.actions,
            streams=sender.streams,
            wake=sender.wake,
            clock=self.clock,
            mask=self._masker.mask_for_people,
        )

    @cached_property
    def _approval_cards(self) -> ApprovalCards:
        return ApprovalCards(
            people=self.repositories.people,
            cards=self._sent_cards,
            courier=self.courier,
            zone=self.settings.zone,
            language=self.settings.fixed_language,
        )

    @cached_property
    def _sent_cards(self) -> SentCardService:
        return SentCardService(self.repositories.outbox, self.repositories.chats)

    @cached_property
    def engine(self) -> Engine:
        return Engine(
            self.settings,
            self.repositories,
            self.courier,
            self.clock,
            self._approval_cards,
            documents=self.bitable.get_reader,
            files=self.files,
            plan=self.plan,
        )

    @cached_property
    def autonomy(self) -> AutonomyServices:
        return build_autonomy(self.engine, self.alerts, self.outbox_sender.wake)

    @cached_property
    def held(self) -> HeldMessages:
        store, zone = self.repositories, self.settings.zone
        return HeldMessages(
            db=store.db, inbox=store.inbox, courier=self.courier, zone=zone, clock=self.clock
        )

    @cached_property
    def web_sessions(self) -> WebSessionService:
        settings, store = self.settings, self.repositories
        return WebSessionService(
            repo=WebSessionRepo(store.db),
            ids=store.ids,
            now=self.clock.now,
            address=settings.web_url or get_browser_address(settings.web_host, settings.web_port),
        )

    @cached_property
    def reloader(self) -> SettingsReloader:
        return SettingsReloader(
            in_force=self.settings,
            appliers=LiveSettings(
                engine=self.engine,
                autonomy=self.autonomy,
                quota=self.quota,
                set_owners=partial(_set_owners, self.repositories, self.clock),
            ).appliers,
            check_usable=check_usable,
            owners=self.repositories.owner_cards(self.courier),
            now=self.clock.now,
            sleep=self.clock.sleep,
        )

    @cached_property
    def feishu_setup(self) -> FeishuSetupService:
        store = self.repositories
        return FeishuSetupService(
            reloader=self.reloader,
            quota=self.quota,
            key_values=store.key_values,
            owners=store.owner_cards(self.courier),
            may_connect=self._may_connect,
            now=self.clock.now,
            sleep=self.clock.sleep,
        )

    @cached_property
    def bitable(self) -> FeishuAppClient:
        return FeishuAppClient(settings=lambda: self.reloader.in_force, quota=self.quota)

    @cached_property
    def _bitable_setup(self) -> LazyBitableSetup:
        return LazyBitableSetup(
            build=partial(build_bitable_setup, self.repositories, self.bitable, self.clock.now)
        )

    async def _may_connect(self, session: SetupSession) -> bool:
        """Whether it is still a session of an owner."""
        members = await self.repositories.people.list_members()
        roles = {each.person.id: each.person.role for each in members}
        role = roles.get(session.person_id)
        is_live = not session.session_id or await self.web_sessions.is_live(session.session_id)
        return is_live and role is not None and role.allows(PersonRole.OWNER)

    @cached_property
    def services(self) -> HandlerServices:
        settings, store, clock = self.settings, self.repositories, self.clock
        engine, workers = self.engine, self.engine.workers
        mask = workers.redactor.mask
        return HandlerServices(
            tasks=engine.tasks,
            conversations=engine.conversations,
            models=workers.models,
            model_setup=self._build_model_setup(),
            feishu_setup=self.feishu_setup,
            bitable=self._bitable_setup,
            channel_setup=self._build_channel_setup(),
            people=store.people,
            pairings=store.pairings,
            account_links=store.account_links,
            web_sessions=self.web_sessions,
            approvals=ApprovalService(store.approvals, engine.on_decided),
            costs=engine.costs,
            system=self._build_status(),
            buttons=ButtonClaimService(store.actions),
            held=self.held,
            inbox_log=store.inbox,
            cards=self._sent_cards,
            courier=self.courier,
            journal=engine.journal,
            tools=StandingPermissionService(
                grants=store.grants, calls=store.tool_calls, mask=mask, now=clock.now
            ),
            personas=workers.personas,
            prompts=engine.evolution.service,
            mcp=workers.mcp_servers,
            worker_context=workers.briefing,
            transcripts=TranscriptService(TranscriptRepo(store.db), settings.home, mask),
            history=self._build_conversation_history(),
            traces=engine.traces,
            projects=build_project_folders(settings, store),
            skills=workers.skills,
            skill_writer=SkillDrafter(db=store.db, gateway=engine.gateway, library=workers.skills),
            workflows=engine.evolution.workflows,
            workflow_history=engine.evolution.history,
            dry_runs=engine.dry_runs,
            run_expressions=StoredRunEvaluator(
                graphs=store.work.graphs, zone=settings.zone, now=clock.now, mask=mask
            ),
            workflow_exchange=engine.evolution.exchange,
            schedules=engine.schedule.service,
            triggers=engine.schedule.triggers,
            self_check=self.autonomy.self_check,
            doctor=self._build_doctor(),
            settings=self.reloader,
            setting_editor=SettingsEditor(self.reloader),
            drive=self.autonomy.drive,
            heartbeat=engine.heartbeat,
            reports=build_reports(
                settings, store, clock, courier=self.courier, schedule=engine.schedule
            ),
            memory=engine.memory.port,
        )

    def _build_conversation_history(self) -> ConversationHistoryService:
        workers, store = self.engine.workers, self.engine.store
        return ConversationHistoryService(
            history=workers.history.history,
            db=store.db,
            sessions=store.sessions,
            now=self.clock.now,
            redact=workers.redactor.mask,
        )

    def _build_doctor(self) -> DoctorService:
        return build_doctor(
            self.engine,
            self.autonomy,
            reloader=self.reloader,
            quota=self.quota,
            bitable=self._bitable_setup,
        )

    def _build_status(self) -> SystemStatusService:
        engine, store = self.engine, self.repositories
        return build_system_status(
            self.settings,
            store.db,
            self.clock,
            approvals=store.approvals,
            channels=self.alerts,
            workers=StatusSources(
                model=lambda: engine.workers.models.default,
                slots=lambda: engine.dispatcher.slots,
                sandbox=engine.workers.sandbox,
            ),
            unnamed_owner=lambda: store.people.unlisted_owner,
        )

    def _build_model_setup(self) -> ModelSetupService:
        engine = self.engine
        return ModelSetupService(
            self.reloader,
            self.repositories.db,
            models=engine.workers.live_models,
            gateway=engine.gateway,
            mask=engine.workers.redactor.mask,
        )

    def _build_channel_setup(self) -> ChannelSetupService:
        store = self.repositories
        return ChannelSetupService(
            reloader=self.reloader,
            quota=self.quota,
            db=store.db,
            key_values=store.key_values,
            people=store.people,
            chats=store.chats,
            ids=store.ids,
            health=self.alerts.health,
            now=self.clock.now,
        )

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
async def open_container(
    settings: Settings, plan: ProcessPlan | None = None
) -> AsyncGenerator[Container, None]:
    """The caller must hold the data directory and have called `prepare_home`."""
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        core = await build_container(settings, db, plan or ProcessPlan())
        stack.push_async_callback(core.engine.workers.live_models.aclose)
        stack.push_async_callback(core.engine.workers.mcp_servers.aclose)
        stack.push_async_callback(core.feishu_setup.aclose)
        stack.push_async_callback(core.bitable.aclose)
        yield core


async def build_container(settings: Settings, db: Database, plan: ProcessPlan) -> Container:
    clock, language = SystemClock(), settings.fixed_language
    store = build_repositories(db, clock, language, settings.approval_lifetime, zone=settings.zone)
    await register_owners(store, clock, settings)
    return Container(settings, store, clock, plan)


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
