"""OpenTelemetry's own exporter, from the extra `otel`. Imported only where it is wanted."""

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

from bot.engine.observe.otlp import SCOPE, attributes_of, nanoseconds
from storage.records.workers.spans import Span, Trace
from storage.records.workers.spans import SpanKind as Kind

log = logging.getLogger(__name__)

_BATCH = 500
_PATIENCE = 5.0
_PATH = "/v1/traces"


class OtlpCollector:
    """Satisfies `live.Collector`: OTLP over HTTP, in a thread of its own."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, version: str) -> None:
        """`endpoint` is the collector's address, with or without its path for traces."""
        url = endpoint if endpoint.endswith(_PATH) else f"{endpoint}{_PATH}"
        self._exporter = OTLPSpanExporter(endpoint=url, headers=dict(headers), timeout=_PATIENCE)
        self._resource = Resource({"service.name": SCOPE, "service.version": version})
        self._scope = InstrumentationScope(SCOPE, version)
        self._told = False
        # Said once, by us, and not with every try.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    async def send(self, trace: Trace) -> bool:
        spans = [self._readable(trace, span) for span in trace.spans]
        batches = [spans[at : at + _BATCH] for at in range(0, len(spans), _BATCH)]
        try:
            good = await asyncio.to_thread(self._all_arrive, batches)
        except Exception as error:  # noqa: BLE001 - a foreign library: no span is worth the program
            log.debug("spans cannot be sent: %r", error)
            good = False
        if not good and not self._told:
            log.warning("the collector of spans does not answer: they are sent when it does")
        self._told = not good
        return good

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # the library has no type there

    def _all_arrive(self, batches: Sequence[Sequence[ReadableSpan]]) -> bool:
        return all(self._exporter.export(each) is SpanExportResult.SUCCESS for each in batches)

    def _readable(self, trace: Trace, span: Span) -> ReadableSpan:
        end = span.ended_at or trace.at
        wrong = Status(StatusCode.ERROR, span.error) if span.state.is_wrong else Status()
        return ReadableSpan(
            name=span.name,
            context=_context(trace.id, span.id),
            parent=_context(trace.id, span.parent) if span.parent else None,
            resource=self._resource,
            attributes=attributes_of(span),
            kind=SpanKind.CLIENT if span.kind is Kind.LLM else SpanKind.INTERNAL,
            status=wrong,
            start_time=nanoseconds(span.started_at),
            end_time=nanoseconds(end),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
