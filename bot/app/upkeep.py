"""Builds the services that look after the store."""

from __future__ import annotations

from bot.app.container import Container
from bot.app.lifecycle import AppService
from bot.engine.upkeep.owner_notices import OwnerNotifier, RestoreNotice


def build_upkeep(core: Container) -> tuple[AppService, ...]:
    store, settings = core.repositories, core.settings
    owners = OwnerNotifier(
        chats=store.chats,
        people=store.people,
        courier=core.courier,
        language=settings.fixed_language,
    )
    notice = RestoreNotice(
        db=store.db, key_values=store.key_values, owners=owners, zone=settings.zone
    )
    return (notice,)
