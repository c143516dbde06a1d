"""Builds the doctor."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

from bot.app.engine import Engine
from bot.app.parts import AutonomyServices
from bot.app.repositories import RepositorySet
from bot.config.channels import CHANNEL_SETTINGS, is_configured
from bot.config.settings import Settings
from bot.engine.autonomy.check import SelfCheck
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
    describe_sandbox,
)
from bot.engine.llm.backend import OFFLINE_NAME
from bot.engine.upkeep import get_backup_state
from bot.engine.workers.spec import CostAccount
from bot.setup.live_channels import build_channel_check
from bot.setup.settings_reload import SettingsReloader
from bot.transports.ports import Clock
from bot.transports.quota import MonthlyQuota
from handlers.ports_setup import BitablePort
from storage.bitable import BitableRepo
from storage.records.people import Channel, Person
from storage.records.system import ModelChoice


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
        RemarkProbe(name="backups", read=partial(describe_backups, state, engine.clock.now)),
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
