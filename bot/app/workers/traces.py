"""Traces: who writes calls of models down, and who reads what tasks were made of."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from importlib.metadata import version

from bot.app.lifecycle import Service
from bot.app.store import Store
from bot.app.workers.commands import build_masking
from bot.config.settings import Settings
from bot.engine.observe.follow import TraceFollower
from bot.engine.observe.live import Collector, LiveSpans
from bot.engine.observe.recorder import Recorder
from bot.engine.observe.talks import TalkTraces
from bot.engine.observe.trace import Traces
from bot.engine.observe.upkeep import SpanUpkeep
from bot.engine.workflow.shown.anatomy import anatomy, dropped
from bot.transports.clock import Clock
from cards.courier import Courier
from storage.agents.spans import SpanRepo

log = logging.getLogger(__name__)


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
        dropped=dropped,
        mask=build_masking(settings).mask,
        now=clock.now,
    )


def build_follower(
    settings: Settings, store: Store, courier: Courier, clock: Clock
) -> TraceFollower:
    async def is_there(key: str) -> bool:
        return await store.outbox.by_key(key) is not None

    talks = TalkTraces(
        db=store.db,
        spans=SpanRepo(store.db),
        mask=build_masking(settings).mask,
        now=clock.now,
        since=clock.now(),
    )
    return TraceFollower(
        traces=build_traces(settings, store, clock),
        talks=talks,
        courier=courier,
        is_there=is_there,
        now=clock.now,
        sleep=asyncio.sleep,
    )


def build_watchers(settings: Settings, store: Store, clock: Clock) -> tuple[Service, ...]:
    """Who forgets old spans, and, where there is a collector, who sends it the new ones."""
    spans = SpanRepo(store.db)
    upkeep = SpanUpkeep(spans=spans, now=clock.now, sleep=asyncio.sleep)
    collector = _collector(settings)
    if collector is None:
        return (upkeep,)
    # What fills a title's holes is no business of a collector's.
    traces = replace(
        build_traces(settings, store, clock),
        anatomy=lambda body, _runs, older: anatomy(body, None, older),
    )
    live = LiveSpans(
        traces=traces,
        spans=spans,
        marks=store.marks,
        collector=collector,
        now=clock.now,
        sleep=asyncio.sleep,
    )
    return upkeep, live


def _collector(settings: Settings) -> Collector | None:
    if not settings.otlp_endpoint:
        return None
    try:
        # Large, and an extra of its own: loaded only where somebody wants it.
        from bot.engine.observe.exporter import OtlpCollector
    except ImportError:
        log.warning(
            "SHIFTBOSS_OTLP_ENDPOINT is set, but nothing can send spans:"
            " pip install 'shiftboss[otel]' and start again"
        )
        return None
    return OtlpCollector(
        settings.otlp_endpoint, settings.otlp_header_values, version=version("shiftboss")
    )
