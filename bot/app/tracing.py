"""Builds tracing: recording of model calls, trace queries and export."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version

from bot.app.lifecycle import AppService
from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.tracing.otlp_export import SpanCollector, SpanExporter
from bot.engine.tracing.span_recorder import SpanRecorder
from bot.engine.tracing.trace_card import TraceCardUpdater
from bot.engine.tracing.trace_reader import ChatTraceReader, TaskTraceReader
from bot.engine.workflow.presentation.node_display import dropped_paths, node_namer
from bot.transports.ports import Clock
from cards.courier import Courier
from storage.traces import SpanRepo

log = logging.getLogger(__name__)


def build_span_recorder(
    store: RepositorySet, clock: Clock, redact: Callable[[str], str]
) -> SpanRecorder:
    return SpanRecorder(
        db=store.db,
        repo=SpanRepo(store.db),
        redact=redact,
        new_id=lambda: secrets.token_hex(8),
        now=clock.now,
    )


def build_trace_cards(
    store: RepositorySet, courier: Courier, clock: Clock, redact: Callable[[str], str]
) -> TraceCardUpdater:
    async def is_there(key: str) -> bool:
        return await store.outbox.find_by_key(key) is not None

    return TraceCardUpdater(
        traces=_build_trace_reader(store, clock, redact),
        chat_traces=ChatTraceReader(
            db=store.db,
            spans=SpanRepo(store.db),
            redact=redact,
            now=clock.now,
            process_started_at=clock.now(),
        ),
        courier=courier,
        card_exists=is_there,
        now=clock.now,
        sleep=asyncio.sleep,
    )


def build_span_services(
    settings: Settings, store: RepositorySet, clock: Clock, redact: Callable[[str], str]
) -> tuple[AppService, ...]:
    """The service that exports new spans to the collector, if configured."""
    spans = SpanRepo(store.db)
    collector = _otlp_collector(settings)
    if collector is None:
        return ()
    # Values in titles are private and not exported.
    traces = replace(
        _build_trace_reader(store, clock, redact),
        name_lookup=lambda body, _runs, older: node_namer(body, None, older),
    )
    exporter = SpanExporter(
        traces=traces,
        spans=spans,
        key_values=store.key_values,
        collector=collector,
        now=clock.now,
        sleep=asyncio.sleep,
    )
    return (exporter,)


def _build_trace_reader(
    store: RepositorySet, clock: Clock, redact: Callable[[str], str]
) -> TaskTraceReader:
    return TaskTraceReader(
        db=store.db,
        tasks=store.work.tasks,
        graphs=store.work.graphs,
        spans=SpanRepo(store.db),
        name_lookup=node_namer,
        find_dropped=dropped_paths,
        redact=redact,
        now=clock.now,
    )


def _otlp_collector(settings: Settings) -> SpanCollector | None:
    if not settings.otlp_endpoint:
        return None
    try:
        # A large optional dependency, loaded only if configured.
        from bot.engine.tracing.otlp_collector import OtlpCollector
    except ImportError:
        log.warning(
            "SHIFTBOSS_OTLP_ENDPOINT is set, but nothing can send spans:"
            " pip install 'shiftboss[otel]' and start again"
        )
        return None
    return OtlpCollector(
        settings.otlp_endpoint, settings.otlp_header_values, version=version("shiftboss")
    )
