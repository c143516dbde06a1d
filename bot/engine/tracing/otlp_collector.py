"""Sends spans with OpenTelemetry's exporter from the extra `otel`; imported only if used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from bot.engine.tracing.otlp_export import SCOPE_NAME, span_attributes, unix_nanoseconds
from storage.records.traces import SpanKind as Kind
from storage.records.traces import Trace, TraceSpan

log = logging.getLogger(__name__)

_BATCH_SIZE = 500
_TIMEOUT = 5.0
_PATH = "/v1/traces"


class OtlpCollector:
    """Satisfies `otlp_export.SpanCollector`: OTLP over HTTP, in a thread."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, version: str) -> None:
        """`endpoint` is the collector's address, with or without the traces path."""
        url = endpoint if endpoint.endswith(_PATH) else f"{endpoint}{_PATH}"
        self._exporter = OTLPSpanExporter(endpoint=url, headers=dict(headers), timeout=_TIMEOUT)
        self._resource = Resource({"service.name": SCOPE_NAME, "service.version": version})
        self._scope = InstrumentationScope(SCOPE_NAME, version)
        self._warned = False
        # Failures are logged once by us, not on every attempt.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    async def send(self, trace: Trace) -> bool:
        spans = [self._to_readable_span(trace, span) for span in trace.spans]
        batches = [spans[at : at + _BATCH_SIZE] for at in range(0, len(spans), _BATCH_SIZE)]
        try:
            good = await asyncio.to_thread(self._export_all, batches)
        except Exception as error:  # noqa: BLE001 - a library failure must not stop the service
            log.debug("spans cannot be sent: %r", error)
            good = False
        if not good and not self._warned:
            log.warning("the span collector does not answer; spans are sent when it does")
        self._warned = not good
        return good

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # the library has no type there

    def _export_all(self, batches: Sequence[Sequence[ReadableSpan]]) -> bool:
        return all(self._exporter.export(each) is SpanExportResult.SUCCESS for each in batches)

    def _to_readable_span(self, trace: Trace, span: TraceSpan) -> ReadableSpan:
        end = span.ended_at or trace.taken_at
        wrong = Status(StatusCode.ERROR, span.error) if span.state.is_failure else Status()
        return ReadableSpan(
            name=span.name,
            context=_context(trace.id, span.id),
            parent=_context(trace.id, span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span_attributes(span),
            kind=SpanKind.CLIENT if span.kind is Kind.LLM else SpanKind.INTERNAL,
            status=wrong,
            start_time=unix_nanoseconds(span.started_at),
            end_time=unix_nanoseconds(end),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
