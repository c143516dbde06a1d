"""The timeline of a run as a picture: a bar for each span, from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bot.engine.workflow.presentation.drawing import SVG_STYLE, text_width
from cards import formats
from cards.catalog import TextCatalog
from cards.formats import clean_line
from cards.views.traces import span_duration, span_name
from storage.records.traces import SpanKind, SpanState, Trace, TraceSpan

MAX_ROWS = 40
"""Bars in one picture; of more, the steps are shown, then what takes longest."""

_ROW, _BAR, _MARGIN, _TOP = 24.0, 12.0, 16.0, 30.0
_NAMES, _BARS, _TOOK = 250.0, 520.0, 76.0
_INDENT, _MAX_INDENT = 12.0, 6
_MIN_BAR = 2.0
_TICKS = 4
_COLOURS = {
    SpanKind.NODE: "#2e7d4f",
    SpanKind.SUBAGENT: "#7a5195",
    SpanKind.LLM: "#2f6fb2",
    SpanKind.TOOL: "#b7791f",
}
_OTHER, _FAILED, _OPEN = "#82878d", "#c0392b", "#6aa9e4"


def render_timeline(trace: Trace, words: TextCatalog) -> str:
    """Render a picture without scripts or external resources."""
    return "".join(_parts(trace, words))


def _parts(trace: Trace, words: TextCatalog) -> Iterator[str]:
    spans = _shown(trace)
    left_out = len(trace.spans) - len(spans)
    width = 2 * _MARGIN + _NAMES + _BARS + _TOOK
    height = _TOP + _ROW * (len(spans) + bool(left_out)) + _MARGIN
    name = escape(words("graph.timeline"))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="wf" role="img" aria-label="{name}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13">'
        f"<title>{name}</title><style>{SVG_STYLE}</style>"
        f'<rect class="wf-back" fill="#ffffff" width="{width:.0f}" height="{height:.0f}"/>'
    )
    whole = max(trace.root.seconds(trace.taken_at), 0.001)
    left = _MARGIN + _NAMES
    for n in range(_TICKS + 1):
        x = left + _BARS * n / _TICKS
        yield (
            f'<path class="wf-edge" d="M{x:.1f} {_TOP - 6:.1f}V{height - _MARGIN:.1f}" '
            f'stroke="#82878d" stroke-width="1" opacity="0.3"/>'
        )
        yield _text(span_duration(whole * n / _TICKS, words), x, _TOP - 12, "middle", small=True)
    for n, span in enumerate(spans):
        yield from _row(span, trace, words, _TOP + n * _ROW, whole)
    if left_out:
        more = words("graph.more", n=left_out)
        yield _text(more, _MARGIN, _TOP + len(spans) * _ROW + 16, "start", small=True)
    yield "</svg>"


def _shown(trace: Trace) -> Sequence[TraceSpan]:
    """In their order."""
    if len(trace.spans) <= MAX_ROWS:
        return trace.spans
    weight = {SpanKind.NODE: 1, SpanKind.SUBAGENT: 1}
    by_weight = sorted(
        trace.spans[1:],
        key=lambda span: (-weight.get(span.kind, 0), -span.seconds(trace.taken_at)),
    )
    kept = {trace.root.id, *(span.id for span in by_weight[: MAX_ROWS - 1])}
    return [span for span in trace.spans if span.id in kept]


def _row(
    span: TraceSpan, trace: Trace, words: TextCatalog, y: float, whole: float
) -> Iterator[str]:
    indent = _INDENT * min(span.depth, _MAX_INDENT)
    title = _fit(clean_line(span_name(span, words)), _NAMES - indent - 10)
    yield _text(title, _MARGIN + indent, y + 15, "start")
    begun = (span.started_at - trace.root.started_at).total_seconds() / whole
    seconds = span.seconds(trace.taken_at)
    x = _MARGIN + _NAMES + min(max(0.0, begun), 1.0) * (_BARS - _MIN_BAR)
    end = _MARGIN + _NAMES + _BARS
    width = max(_MIN_BAR, min(end - x, seconds / whole * _BARS))
    yield (
        f'<rect x="{x:.1f}" y="{y + 5:.1f}" width="{width:.1f}" height="{_BAR:.0f}" rx="3" '
        f'fill="{_colour(span)}"/>'
    )
    yield _text(span_duration(seconds, words), end + 8, y + 15, "start", small=True)


def _colour(span: TraceSpan) -> str:
    if span.state.is_failure:
        return _FAILED
    if span.state in {SpanState.RUNNING, SpanState.WAITING}:
        return _OPEN
    return _COLOURS.get(span.kind, _OTHER)


def _fit(text: str, room: float) -> str:
    line = formats.single_line(text, 80)
    while line and text_width(line) > room:
        line = line.rstrip("…")[:-1].rstrip() + "…"
    return line


def _text(text: str, x: float, y: float, anchor: str, *, small: bool = False) -> str:
    kind, colour = ("wf-soft", "#62676e") if small else ("wf-ink", "#20242a")
    size = ' font-size="11"' if small else ""
    return (
        f'<text class="{kind}" fill="{colour}"{size} x="{x:.1f}" y="{y:.1f}" '
        f'text-anchor="{anchor}">{escape(clean_line(text))}</text>'
    )
