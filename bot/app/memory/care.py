"""What keeps memory in order by itself."""

from __future__ import annotations

import asyncio

from bot.app.memory.writing import Writing
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.memory.care import Care
from bot.transports.clock import Clock
from storage.memory.living.pruning import UsePruning
from storage.memory.living.wear import WearRepo


def build_care(settings: Settings, store: Store, clock: Clock, writing: Writing) -> Care:
    return Care(
        db=store.db,
        entries=writing.entries,
        wear=WearRepo(store.db),
        pruning=UsePruning(store.db),
        changed=writing.changed,
        now=clock.now,
        sleep=asyncio.sleep,
        zone=settings.zone,
        forgets=settings.memory.forget,
    )
