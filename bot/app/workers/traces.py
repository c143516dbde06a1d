"""Traces: who writes calls of models down, and who reads what tasks were made of."""

from __future__ import annotations

import secrets

from bot.app.store import Store
from bot.app.workers.commands import build_masking
from bot.config.settings import Settings
from bot.engine.observe.recorder import Recorder
from bot.engine.observe.trace import Traces
from bot.engine.workflow.shown.anatomy import anatomy
from bot.transports.clock import Clock
from storage.agents.spans import SpanRepo


def build_recorder(settings: Settings, store: Store, clock: Clock) -> Recorder:
    return Recorder(
        db=store.db,
        repo=SpanRepo(store.db),
        mask=build_masking(settings).mask,
        new_id=lambda: secrets.token_hex(8),
        now=clock.now,
    )


def build_traces(settings: Settings, store: Store, clock: Clock) -> Traces:
    return Traces(
        db=store.db,
        tasks=store.work.tasks,
        graphs=store.work.graphs,
        spans=SpanRepo(store.db),
        anatomy=anatomy,
        mask=build_masking(settings).mask,
        now=clock.now,
    )
