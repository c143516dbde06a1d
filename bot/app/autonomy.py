"""Builds the self-check, the doctor, drive and the reports on past work."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from socket import gethostname
from typing import Any

from bot.app.engine import Engine
from bot.app.parts import AutonomyServices, ScheduleServices
from bot.app.repositories import RepositorySet
from bot.config.channels import CHANNEL_SETTINGS, is_configured
from bot.config.settings import Settings
from bot.engine.autonomy.check import SelfCheck
from bot.engine.autonomy.checks.delivery import ChannelHealthCheck, MessageHealthCheck
from bot.engine.autonomy.checks.installation import (
    ClockHealthCheck,
    FaultReader,
    SettingsHealthCheck,
    VersionHealthCheck,
)
from bot.engine.autonomy.checks.storage import (
    BackupHealthCheck,
    DiskHealthCheck,
    MemoryHealthCheck,
    StoreHealthCheck,
)
from bot.engine.autonomy.checks.tasks import TaskHealthCheck
from bot.engine.autonomy.checks.workers import (
    ModelHealthCheck,
    MoneyHealthCheck,
    SandboxHealthCheck,
)
from bot.engine.autonomy.doctor import (
    CodingCliProbe,
    DoctorService,
    HostProbe,
    ModelCallProbe,
    RemarkProbe,
    describe_backups,
    describe_buttons,
    describe_disk,
    describe_embeddings,
    describe_fonts,
    describe_process_clocks,
    describe_sandbox,
    describe_waiting_homes,
)
from bot.engine.autonomy.drive import DriveBudget, DriveService, ProblemDiagnosis
from bot.engine.autonomy.reports.report_builder import ReportBuilder
from bot.engine.autonomy.reports.service import REPORT_SERVICE, ReportService
from bot.engine.autonomy.self_check import SELF_CHECK, SelfCheckService
from bot.engine.llm.acp.agent_config import AcpAgentsFile
from bot.engine.llm.backend import OFFLINE_NAME
from bot.engine.memory.promotion import QualityMetrics
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.dispatch import requeue_interrupted
from bot.engine.tasks.system_status import measure_disk_use
from bot.engine.upkeep import HomeKeeper, RetentionService, get_backup_state
from bot.engine.workers.spec import CostAccount
from bot.engine.workflow.presentation.pictures import has_chinese_font, prune_pictures
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from bot.setup.live_channels import build_channel_check
from bot.setup.settings_reload import SettingsReloader
from bot.transports.alerts import ChannelAlerts
from bot.transports.ports import Clock
from bot.transports.quota import MonthlyQuota
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from cards.catalog import catalog_for
from cards.courier import Courier
from cards.views.task_card import late_file_card
from handlers.ports_setup import BitablePort
from storage.bitable import BitableRepo
from storage.db import Transaction
from storage.home_files import HomeFileRepo, LateFile, list_waiting_homes
from storage.memory.withheld_turns import WithheldTraces
from storage.migrate import HEAD_REVISION, database_place, sqlite_path
from storage.records.autonomy import GoalName
from storage.records.messages import DeliveryUrgency
from storage.records.people import Channel, Chat, ChatId, Language, Person, PersonRole
from storage.records.system import BackendReport, ModelChoice
from storage.records.tasks import Task
from storage.records.usage import BudgetScope, CostPeriod, CostQuery, CostReport
from storage.reports import ReportRepo
from storage.retention import RetentionRepo
from storage.self_checks import HealthFigures, SelfCheckRepo
from storage.store_identity import MARKER_FILE
from storage.traces import SpanRepo


def build_autonomy(
    engine: Engine, alerts: ChannelAlerts, wake_outbox: Callable[[], None]
) -> AutonomyServices:
    """Adds its parts to those that schedules run."""
    settings, store, clock = engine.settings, engine.store, engine.clock
    repo = SelfCheckRepo(store.db)
    retention = _build_retention(engine)
    due_times = engine.schedule.service.due_times
    self_check = SelfCheckService(
        checks=_build_checks(engine, retention, alerts, wake_outbox),
        db=store.db,
        repo=repo,
        poster=engine.courier,
        owner_chats=store.list_owner_chats,
        create_task=engine.tasks.create_within,
        on_task=engine.dispatcher.wake,
        is_quiet=lambda: due_times.is_quiet(clock.now()),
        now=clock.now,
    )
    budget = DriveBudget(
        cap=lambda: engine.rules.caps.by_scope[BudgetScope.EVOLVE],
        tasks=store.work.tasks,
        usage=store.usage,
        zone=settings.zone,
        now=clock.now,
    )
    diagnosis = ProblemDiagnosis(
        self_check=self_check,
        repo=repo,
        db=store.db,
        budget=budget,
        report_to=partial(_find_owner_chat, store),
        can_work=lambda: engine.workers.models.default.backend != OFFLINE_NAME,
        create_task=engine.tasks.create_within,
        on_task=engine.dispatcher.wake,
    )

    async def clean_up() -> None:
        await retention.delete_old()

    drive = DriveService(
        runs={
            GoalName.HEALTH_CHECK: diagnosis,
            GoalName.EVOLVE: engine.evolution.service.pursue,
            GoalName.CLEANUP: clean_up,
        },
        builtin=engine.schedule.builtin,
        schedules=engine.schedule.service.schedules,
        budget=budget,
        tasks=store.work.tasks,
    )
    engine.schedule.parts[SELF_CHECK] = self_check.check_on_schedule
    engine.schedule.parts.update(drive.services)
    return AutonomyServices(self_check=self_check, drive=drive, retention=retention)


async def _find_owner_chat(store: RepositorySet) -> tuple[Chat, Language] | None:
    """That on a platform where they are told of news, if there is one."""
    chats = await store.chats.list_private(PersonRole.OWNER)
    found = min(chats, key=lambda each: each.channel is Channel.WEB, default=None)
    return None if found is None else (found, await store.chat_language(found))


def _build_retention(engine: Engine) -> RetentionService:
    settings, store, clock = engine.settings, engine.store, engine.clock
    agents_file = AcpAgentsFile(settings.home)
    return RetentionService(
        home=settings.home,
        keep=settings.retention,
        repo=RetentionRepo(store.db),
        spans=SpanRepo(store.db),
        remove_worktree=TaskArtifacts(settings.home, store.adoption.is_adopted).remove_worktree,
        agents=lambda: agents_file.current().by_name,
        unused={
            "homes of commands": engine.workers.shell.homes.prune,
            "pictures": partial(prune_pictures, settings.home),
        },
        now=clock.now,
        sleep=clock.sleep,
    )


def build_home_keeper(engine: Engine, rows: HomeFileRepo) -> HomeKeeper:
    settings, store, courier, files = engine.settings, engine.store, engine.courier, engine.files

    async def erase(what: Mapping[str, Any]) -> None:
        await engine.memory.file_eraser.erase(WithheldTraces.from_json(what))

    async def erase_shared(what: Mapping[str, Any]) -> None:
        await files.erase(*WithheldTraces.from_json(what).folders)

    async def follow(late: LateFile) -> Callable[[Transaction], Awaitable[None]]:
        task = await store.work.tasks.get(late.task_id)
        size = (settings.home / late.path).stat().st_size
        words = catalog_for(await store.task_language(task))
        card = await courier.prepare(late_file_card(task, late.path, size, words))

        async def post(tx: Transaction) -> None:
            key = f"task:{task.id}:late:{late.path}"
            await courier.post(
                tx,
                task.chat_id,
                card,
                key=key,
                urgency=DeliveryUrgency.ANSWER,
                reply_to=task.reply_to,
            )

        return post

    return HomeKeeper(
        home=settings.home,
        place=f"{gethostname()}:{settings.home}",
        rows=rows,
        files=files,
        retention=_build_retention(engine),
        erase=erase,
        erase_shared=erase_shared,
        follow=follow,
        on_posted=courier.wake,
        db=store.db,
        now=engine.clock.now,
        sleep=engine.clock.sleep,
    )


def _build_checks(
    engine: Engine,
    retention: RetentionService,
    alerts: ChannelAlerts,
    wake_outbox: Callable[[], None],
) -> tuple[SelfCheck, ...]:
    settings, store, clock = engine.settings, engine.store, engine.clock
    figures, now, home = HealthFigures(store.db), clock.now, settings.home
    database = sqlite_path(settings.database) or home

    async def requeue(task: Task) -> None:
        language = await store.task_language(task)
        await requeue_interrupted(store.work, task, language, clock.now())

    return (
        StoreHealthCheck(home=home, database=database_place(settings.database)),
        TaskHealthCheck(figures=figures, requeue=requeue, wake=engine.dispatcher.wake, now=now),
        MessageHealthCheck(figures=figures, wake=wake_outbox, now=now),
        ChannelHealthCheck(health=alerts.health, now=now),
        ModelHealthCheck(
            report=partial(_report_models, engine), in_use=partial(_models_in_use, engine)
        ),
        SettingsHealthCheck(faults=_fault_readers(engine)),
        VersionHealthCheck(
            figures=figures,
            revision=HEAD_REVISION,
            running=version("shiftboss"),
            installed=partial(version, "shiftboss"),
        ),
        DiskHealthCheck(
            free_bytes=lambda: shutil.disk_usage(home).free,
            measure=partial(measure_disk_use, home, database, settings.backup_folder),
            delete_old=retention.delete_old,
            key_values=store.key_values,
            today=lambda: now().astimezone(settings.zone).date(),
        ),
        MemoryHealthCheck(
            quality=QualityMetrics(store.key_values),
            today=lambda: now().astimezone(settings.zone).date(),
        ),
        MoneyHealthCheck(report=partial(_weekly_costs, engine)),
        BackupHealthCheck(
            state=partial(
                get_backup_state, settings.backup_folder, settings.backup_hours, store.key_values
            ),
            folder=settings.backup_folder,
            hours=settings.backup_hours,
            store_since=lambda: datetime.fromtimestamp(
                (home / MARKER_FILE).stat().st_mtime, tz=UTC
            ),
            now=now,
        ),
        ClockHealthCheck(figures=figures, zone=settings.zone.key, now=now, uptime=_uptime),
        SandboxHealthCheck(detect=engine.workers.sandbox, is_root=os.geteuid() == 0),
    )


async def _report_models(engine: Engine) -> BackendReport:
    report = await engine.workers.models.report()
    assert report is not None, "only a named backend may be unknown"
    return report


def _models_in_use(engine: Engine) -> Sequence[str]:
    models = engine.workers.models
    return [each.backend for each in (models.default, *models.fallback_choices)]


def _fault_readers(engine: Engine) -> Mapping[str, FaultReader]:
    workers = engine.workers
    library = engine.evolution.workflows

    async def coding_clis() -> Sequence[str]:
        return (await _report_models(engine)).file_errors

    async def personas() -> Sequence[str]:
        errors = (await workers.personas.roster()).errors
        return [f"{each.file}: {each.detail or each.reason_key}" for each in errors]

    async def workflows() -> Sequence[str]:
        return [each.file or each.name for each in (await library.list_workflows()).invalid]

    async def skills() -> Sequence[str]:
        return [each.name for each in (await workers.skills.list_skills()).invalid]

    return {
        "agents.yaml": coding_clis,
        "mcp.json": workers.mcp_config.list_faults,
        "personas/": personas,
        "workflows/": workflows,
        "skills/": skills,
    }


async def _weekly_costs(engine: Engine) -> CostReport:
    people = engine.store.people
    owner = await people.find_by_account(LOCAL_PLACE.channel, LOCAL_SENDER.external_id)
    assert owner is not None
    week = CostQuery(period=CostPeriod.WEEK)
    return await engine.costs.report(by=owner, chat=ChatId(""), query=week)


def _uptime() -> float:
    """Seconds, counted while the machine sleeps too where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def build_reports(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    *,
    courier: Courier,
    schedule: ScheduleServices,
) -> ReportService:
    """Also lets schedules run them."""
    service = schedule.service
    reports = ReportService(
        home=settings.home,
        db=store.db,
        builder=ReportBuilder(reports=ReportRepo(store.db), zone=settings.zone),
        schedules=service.schedules,
        due_times=service.due_times,
        people=store.people,
        access=TaskAccess(store.people.get_chat),
        courier=courier,
        language_of=store.task_language.resolve,
        now=clock.now,
        new_id=store.ids.short_id,
        on_change=service.on_change,
    )
    schedule.parts[REPORT_SERVICE] = reports.run_scheduled
    return reports


def build_doctor(
    engine: Engine,
    autonomy: AutonomyServices,
    *,
    reloader: SettingsReloader,
    quota: MonthlyQuota,
    bitable: BitablePort,
) -> DoctorService:
    store, clock = engine.store, engine.clock

    def probes(by: Person) -> Sequence[SelfCheck]:
        settings = reloader.in_force
        return (
            *_model_probes(engine, by),
            *_host_probes(settings, engine),
            *_channel_probes(settings, store, clock, quota),
            *_table_probes(settings, bitable),
        )

    return DoctorService(
        self_check=autonomy.self_check,
        probes=probes,
        key_values=store.key_values,
        mask=engine.workers.redactor.mask,
        now=clock.now,
    )


def _model_probes(engine: Engine, by: Person) -> Sequence[SelfCheck]:
    models = engine.workers.models
    choices = dict.fromkeys([models.default, *models.fallback_choices])

    def is_api(choice: ModelChoice) -> bool:
        return choice.backend != OFFLINE_NAME and models.shares_history(choice.backend)

    return (
        ModelCallProbe(
            gateway=engine.gateway,
            db=engine.store.db,
            choices=lambda: tuple(choices),
            account=CostAccount(person=by.id, chat=None),
            is_api=is_api,
        ),
        CodingCliProbe(
            report=models.report,
            in_use=lambda: [
                each.backend
                for each in choices
                if each.backend != OFFLINE_NAME and not is_api(each)
            ],
        ),
    )


def _host_probes(settings: Settings, engine: Engine) -> Sequence[SelfCheck]:
    index = engine.memory.embedding_index
    embedder = None if index is None else index.embedder
    state = partial(
        get_backup_state, settings.backup_folder, settings.backup_hours, engine.store.key_values
    )
    return (
        HostProbe(home=settings.home, version=version("shiftboss")),
        RemarkProbe(name="sandbox", read=partial(describe_sandbox, engine.workers.sandbox)),
        RemarkProbe(name="memory", read=partial(describe_embeddings, embedder)),
        RemarkProbe(
            name="backups",
            read=partial(describe_backups, state, settings.backup_hours, engine.clock.now),
        ),
        RemarkProbe(
            name="clocks",
            read=partial(
                describe_process_clocks,
                lambda: engine.processes.list_situations(now=engine.clock.now()),
            ),
        ),
        RemarkProbe(
            name="machines",
            read=partial(
                describe_waiting_homes,
                lambda: list_waiting_homes(engine.store.db, engine.clock.now()),
                engine.clock.now,
            ),
        ),
        # Nobody reads Chinese where only English is spoken.
        *(
            [RemarkProbe(name="pictures", read=partial(describe_fonts, has_chinese_font))]
            if settings.fixed_language is not Language.ENGLISH
            else []
        ),
        RemarkProbe(
            name="disk",
            read=partial(describe_disk, lambda: shutil.disk_usage(settings.home).free),
        ),
    )


def _table_probes(settings: Settings, bitable: BitablePort) -> Sequence[SelfCheck]:
    if not is_configured(Channel.FEISHU, settings):
        return ()
    # Loaded with the first diagnosis of an installation that may have a Bitable.
    from bot.setup.bitable_setup import BitableDiagnosis

    return (BitableDiagnosis(bitable),)


def _channel_probes(
    settings: Settings, store: RepositorySet, clock: Clock, quota: MonthlyQuota
) -> Sequence[SelfCheck]:
    found: list[SelfCheck] = []
    base = BitableRepo(store.db)

    async def has_tables() -> bool:
        return await base.get_base() is not None

    for channel in CHANNEL_SETTINGS:
        if is_configured(channel, settings):
            groups = partial(store.chats.list_groups, channel)
            found += [
                build_channel_check(channel, settings, quota, groups=groups, has_tables=has_tables),
                _button_probe(channel, store, clock),
            ]
    return found


def _button_probe(channel: Channel, store: RepositorySet, clock: Clock) -> SelfCheck:
    read = partial(describe_buttons, store.key_values, channel, clock.now)
    return RemarkProbe(name=channel.value, read=read)
