"""Builds the services that look after the store."""

from __future__ import annotations

from bot.app.backup_source import backup_source
from bot.app.container import Container
from bot.app.lifecycle import AppService
from bot.engine.upkeep.owner_notices import OwnerCardSender, RestoreNotice
from bot.engine.upkeep.retention import RetentionService
from bot.engine.upkeep.scheduled_backups import BackupScheduler
from bot.engine.workspaces.artifacts import TaskArtifacts
from storage.retention import RetentionRepo
from storage.traces import SpanRepo


def build_upkeep(core: Container) -> tuple[AppService, ...]:
    store, settings = core.repositories, core.settings
    owners = OwnerCardSender(
        chats=store.chats,
        people=store.people,
        courier=core.courier,
        language=settings.fixed_language,
    )
    notice = RestoreNotice(
        db=store.db,
        key_values=store.key_values,
        owners=owners,
        zone=settings.zone,
        offer=core.held.offer,
    )
    backups = BackupScheduler(
        source=backup_source(settings),
        folder=settings.backup_folder,
        hours=settings.backup_hours,
        keep=settings.backup_keep,
        key_values=store.key_values,
        owners=owners,
        now=core.clock.now,
        sleep=core.clock.sleep,
    )
    retention = RetentionService(
        home=settings.home,
        keep=settings.retention,
        repo=RetentionRepo(store.db),
        spans=SpanRepo(store.db),
        remove_worktree=TaskArtifacts(settings.home, store.adoption.is_adopted).remove_worktree,
        now=core.clock.now,
        sleep=core.clock.sleep,
    )
    return notice, backups, retention
