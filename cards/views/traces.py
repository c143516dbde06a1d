"""Renders a trace as a tree, by slowness, errors or cost, and converts traces to and from JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.tasks import TaskId, UsageTotals
from storage.records.traces import SpanKind, SpanState, Trace, TraceSpan

_MAX_TREE_LINES = 25
_MAX_ROWS = 12
_MAX_NAME = 40
_MAX_ERROR = 160
_PERCENT = 100
_CHAT_NAME = "talk"
_BRIEF_SECONDS = 10.0
"""Seconds; shorter durations are shown in tenths."""

_STATE_ICONS = {
    SpanState.RUNNING: "▶",
    SpanState.WAITING: "⏳",
    SpanState.DONE: "✓",
    SpanState.SKIPPED: "–",
    SpanState.FAILED: "✗",
    SpanState.SUSPENDED: "↷",
    SpanState.CUT_OFF: "✂",
}
_KIND_WEIGHTS = {SpanKind.NODE: 2, SpanKind.SUBAGENT: 2, SpanKind.LLM: 3, SpanKind.TOOL: 4}


class TraceMode(StrEnum):
    TREE = "tree"
    SLOW = "slow"
    ERRORS = "errors"
    COST = "cost"


def trace_card(
    trace: Trace, mode: TraceMode, words: TextCatalog, *, zone: ZoneInfo, title: str = ""
) -> model.Card:
    """`title` is the task's; an answer has none."""
    blocks: list[model.Block] = [model.TextBlock(_trace_heading(title, trace, words))]
    talk = words("trace.talk_title")
    title = talk if trace.task_id is None else words("trace.title", id=trace.task_id)
    match mode:
        case TraceMode.TREE:
            blocks += _tree_blocks(trace, words)
        case TraceMode.SLOW:
            blocks += _slow_blocks(trace, words)
        case TraceMode.ERRORS:
            blocks += _error_blocks(trace, words)
        case TraceMode.COST:
            blocks += _cost_blocks(trace, words)
    if trace.root.state.is_open:
        blocks.append(
            model.NoteBlock(words("trace.as_of", at=formats.time_of_day(trace.taken_at, zone)))
        )
    tone = model.CardTone.BAD if trace.root.state is SpanState.FAILED else model.CardTone.INFO
    return model.titled_card(title, *blocks, tone=tone)


def tree_lines(trace: Trace, words: TextCatalog, *, most: int | None = None) -> tuple[str, ...]:
    """The tree as plain text, one line per span: all, or the `most` informative."""
    span_ids = _select_spans(trace, len(trace.spans) if most is None else most)
    return tuple(
        _span_line(span, trace.taken_at, words) for span in trace.spans if span.id in span_ids
    )


def _trace_heading(title: str, trace: Trace, words: TextCatalog) -> str:
    whole = trace.root
    if trace.task_id is None:
        title = words("trace.answer")
    return words(
        "trace.head",
        mark=_STATE_ICONS[whole.state],
        title=formats.escape_markdown(title, _MAX_NAME),
        took=span_duration(whole.seconds(trace.taken_at), words),
        spent=_spent_text(whole.spent, words) or "–",
    )


def _tree_blocks(trace: Trace, words: TextCatalog) -> Iterator[model.Block]:
    lines = tree_lines(trace, words, most=_MAX_TREE_LINES)
    yield model.CodeBlock("\n".join(lines))
    if hidden_count := len(trace.spans) - len(lines):
        yield model.NoteBlock(words("trace.more", n=hidden_count, id=trace.task_id or _CHAT_NAME))
    yield model.NoteBlock(words("trace.how", id=trace.task_id or _CHAT_NAME))


def _select_spans(trace: Trace, most: int) -> set[str]:
    """Failed and running spans first, then the newest, steps before calls; each with its
    ancestors."""
    if len(trace.spans) <= most:
        return {span.id for span in trace.spans}
    parents = {span.id: span.parent for span in trace.spans}

    def weight(span: TraceSpan) -> tuple[int, float]:
        urgent = span.state.is_open or span.state.is_failure
        return (1 if urgent else _KIND_WEIGHTS.get(span.kind, 0)), -span.started_at.timestamp()

    span_ids: set[str] = set()
    for span in sorted(trace.spans, key=weight):
        needed = set(_ancestors(span.id, parents)) - span_ids
        if len(span_ids) + len(needed) <= most:
            span_ids |= needed
    return span_ids


def _ancestors(span_id: str, parents: Mapping[str, str]) -> Iterator[str]:
    while span_id:
        yield span_id
        span_id = parents[span_id]


def _span_line(span: TraceSpan, now: datetime, words: TextCatalog) -> str:
    facts = [span_duration(span.seconds(now), words), _spent_text(span.spent, words)]
    if span.state.is_failure and span.parent:
        facts.append(formats.single_line(span.error, _MAX_NAME))
    text = "  ".join(fact for fact in facts if fact)
    return f"{'  ' * span.depth}{_STATE_ICONS[span.state]} {span_name(span, words)}  {text}"


def span_name(span: TraceSpan, words: TextCatalog) -> str:
    tries = span.attributes.get("shiftboss.node.attempt")
    again = words("trace.again", n=tries) if isinstance(tries, int) and tries > 1 else ""
    return _span_name_without_attempt(span, words) + again


def _span_name_without_attempt(span: TraceSpan, words: TextCatalog) -> str:
    """The span's name without the attempt number."""
    name = span.name
    match span.kind:
        case SpanKind.TOOL:
            name = words("trace.tool", name=name.removeprefix("execute_tool "))
        case SpanKind.SUBAGENT:
            name = words("trace.helper", name=name.removeprefix("invoke_agent "))
        case SpanKind.LLM:
            name = words("trace.llm", name=name.removeprefix("chat "))
        case SpanKind.CHAT:
            name = words("trace.answer")
        case SpanKind.NODE if span.attributes.get("shiftboss.node.type") == "plan":
            name = words("trace.plan")
        case _:
            pass
    return formats.single_line(name, _MAX_NAME)


def _slow_blocks(trace: Trace, words: TextCatalog) -> Iterator[model.Block]:
    """Spans by their own time, without the time of their children."""
    own = {span.id: span.seconds(trace.taken_at) for span in trace.spans}
    for span in trace.spans:
        if span.parent:
            own[span.parent] -= span.seconds(trace.taken_at)
    slowest = sorted(trace.spans, key=lambda span: own[span.id], reverse=True)[:_MAX_ROWS]
    names = {span.id: span_name(span, words) for span in trace.spans}
    columns = tuple(words(f"trace.column.{key}") for key in ("what", "within", "own", "took"))
    rows = tuple(
        (
            f"{_STATE_ICONS[span.state]} {names[span.id]}",
            names.get(span.parent, "–"),
            span_duration(max(0.0, own[span.id]), words),
            span_duration(span.seconds(trace.taken_at), words),
        )
        for span in slowest
    )
    yield model.TableBlock(columns, rows)


def _error_blocks(trace: Trace, words: TextCatalog) -> Iterator[model.Block]:
    failures = [span for span in trace.spans if span.state.is_failure]
    if not failures:
        yield model.TextBlock(words("trace.no_errors"))
        return
    names = {span.id: span_name(span, words) for span in trace.spans}
    columns = tuple(words(f"trace.column.{key}") for key in ("what", "within", "took", "why"))
    rows = tuple(
        (
            f"{_STATE_ICONS[span.state]} {names[span.id]}",
            names.get(span.parent, "–"),
            span_duration(span.seconds(trace.taken_at), words),
            formats.single_line(span.error, _MAX_ERROR) or words(f"trace.state.{span.state}"),
        )
        for span in failures[-_MAX_ROWS:]
    )
    yield model.TableBlock(columns, rows)
    if len(failures) > _MAX_ROWS:
        yield model.NoteBlock(words("trace.older_errors", n=len(failures) - _MAX_ROWS))


def _cost_blocks(trace: Trace, words: TextCatalog) -> Iterator[model.Block]:
    """Costs by step, with all its attempts, and by sub-agent."""
    parents = {span.id: span for span in trace.spans}
    sums: dict[str, UsageTotals] = {}
    for span in trace.spans:
        if span.kind is SpanKind.LLM:
            asker = parents[span.parent]
            of_task = asker.kind is SpanKind.WORKFLOW
            name = words("trace.whole") if of_task else _span_name_without_attempt(asker, words)
            sums[name] = sums.get(name, UsageTotals()) + span.spent
    if not sums:
        yield model.TextBlock(words("trace.no_calls"))
        return
    ranked = sorted(
        sums.items(), key=lambda each: (each[1].cost_micros, each[1].tokens), reverse=True
    )
    keys = ("what", "calls", "tokens", "cached", "money", "share")
    whole = trace.root.spent
    rest = ranked[_MAX_ROWS:]
    rows = [_cost_row(name, spent, whole, words) for name, spent in ranked[:_MAX_ROWS]]
    if rest:
        others = sum((spent for _, spent in rest), UsageTotals())
        rows.append(_cost_row(words("trace.others", n=len(rest)), others, whole, words))
    yield model.TableBlock(tuple(words(f"trace.column.{key}") for key in keys), tuple(rows))


def _cost_row(
    name: str, usage: UsageTotals, whole: UsageTotals, words: TextCatalog
) -> tuple[str, ...]:
    share = f"{_PERCENT * usage.cost_micros // whole.cost_micros}%" if whole.cost_micros else "–"
    tokens = formats.compact_number(usage.tokens)
    cached = formats.compact_number(usage.cache_read_tokens)
    return name, str(usage.calls), tokens, cached, formats.spent_cost(usage, words), share


def _spent_text(usage: UsageTotals, words: TextCatalog) -> str:
    if not (usage.calls or usage.tokens):
        return ""
    return f"{formats.spent_tokens(usage, words)}  {formats.spent_cost(usage, words)}"


def span_duration(seconds: float, words: TextCatalog) -> str:
    if seconds < _BRIEF_SECONDS:
        return words("trace.tenths", s=f"{seconds:.1f}")
    return formats.duration(timedelta(seconds=seconds), words)


def trace_data(trace: Trace) -> dict[str, Any]:
    return {
        "id": trace.task_id or "",
        "trace": trace.id,
        "at": _iso_timestamp(trace.taken_at),
        "spans": [_span_data(span, trace.taken_at) for span in trace.spans],
    }


def parse_trace(data: Mapping[str, Any]) -> Trace:
    """Parses the output of `trace_data` without loss; times are exact to the microsecond."""
    return Trace(
        id=data["trace"],
        task_id=TaskId(data["id"]) if data["id"] else None,
        taken_at=datetime.fromisoformat(data["at"]),
        spans=tuple(_parse_span(each) for each in data["spans"]),
    )


def _span_data(span: TraceSpan, now: datetime) -> dict[str, Any]:
    return {
        "span": span.id,
        "parent": span.parent,
        "depth": span.depth,
        "name": span.name,
        "kind": span.kind.value,
        "state": span.state.value,
        "error": span.error,
        "started_at": _iso_timestamp(span.started_at),
        "ended_at": None if span.ended_at is None else _iso_timestamp(span.ended_at),
        "seconds": round(span.seconds(now), 6),
        "attributes": dict(span.attributes),
        "spent": asdict(span.spent),
    }


def _parse_span(data: Mapping[str, Any]) -> TraceSpan:
    ended = data["ended_at"]
    return TraceSpan(
        id=data["span"],
        parent=data["parent"],
        depth=data["depth"],
        name=data["name"],
        kind=SpanKind(data["kind"]),
        state=SpanState(data["state"]),
        error=data["error"],
        started_at=datetime.fromisoformat(data["started_at"]),
        ended_at=None if ended is None else datetime.fromisoformat(ended),
        attributes=data["attributes"],
        spent=UsageTotals(**data["spent"]),
    )


def _iso_timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
