"""A trace of a task, or of an answer: as a tree, what took long, what went wrong, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Block, Card, Code, Note, Table, Text, Tone
from cards.words import Words
from storage.records.tasks import Spent
from storage.records.workers.spans import Span, SpanKind, SpanState, Trace

_MOST = 25
_ROWS = 12
_NAME = 40
_ERROR = 160
_WHOLE = 100
_TALK = "talk"
_BRIEF = 10.0
"""Seconds: what took less is told in tenths."""

_MARKS = {
    SpanState.RUNNING: "▶",
    SpanState.WAITING: "⏳",
    SpanState.DONE: "✓",
    SpanState.SKIPPED: "–",
    SpanState.FAILED: "✗",
    SpanState.LEFT: "↷",
    SpanState.CUT: "✂",
}
_WEIGHTS = {SpanKind.NODE: 2, SpanKind.HELPER: 2, SpanKind.LLM: 3, SpanKind.TOOL: 4}
_SPENT = tuple(each.name for each in fields(Spent))


class TraceMode(StrEnum):
    TREE = "tree"
    SLOW = "slow"
    ERRORS = "errors"
    COST = "cost"


def trace_card(
    trace: Trace, mode: TraceMode, words: Words, *, zone: ZoneInfo, title: str = ""
) -> Card:
    """`title` is the task's; an answer has none."""
    blocks: list[Block] = [Text(markdown=_head(title, trace, words))]
    talk = words("trace.talk_title")
    title = talk if trace.task_id is None else words("trace.title", id=trace.task_id)
    match mode:
        case TraceMode.TREE:
            blocks += _tree(trace, words)
        case TraceMode.SLOW:
            blocks += _slow(trace, words)
        case TraceMode.ERRORS:
            blocks += _errors(trace, words)
        case TraceMode.COST:
            blocks += _cost(trace, words)
    if trace.whole.state.is_open:
        blocks.append(Note(markdown=words("trace.as_of", at=formats.clock(trace.at, zone))))
    tone = Tone.BAD if trace.whole.state is SpanState.FAILED else Tone.INFO
    return Card(title=title, tone=tone, blocks=tuple(blocks), summary=title)


def tree_lines(trace: Trace, words: Words, *, most: int | None = None) -> tuple[str, ...]:
    """The tree in plain text, a line for each span: all of them, or the `most` telling ones."""
    chosen = _telling(trace, len(trace.spans) if most is None else most)
    return tuple(_line(span, trace.at, words) for span in trace.spans if span.id in chosen)


def _head(title: str, trace: Trace, words: Words) -> str:
    whole = trace.whole
    if trace.task_id is None:
        title = words("trace.answer")
    return words(
        "trace.head",
        mark=_MARKS[whole.state],
        title=formats.verbatim(title, _NAME),
        took=_took(whole.seconds(trace.at), words),
        spent=_spent(whole.spent, words) or "–",
    )


def _tree(trace: Trace, words: Words) -> Iterator[Block]:
    lines = tree_lines(trace, words, most=_MOST)
    yield Code(text="\n".join(lines))
    if left := len(trace.spans) - len(lines):
        yield Note(markdown=words("trace.more", n=left, id=trace.task_id or _TALK))
    yield Note(markdown=words("trace.how", id=trace.task_id or _TALK))


def _telling(trace: Trace, most: int) -> set[str]:
    """What went wrong and what runs comes first, then the newest, steps before calls; each with
    all that it is part of."""
    if len(trace.spans) <= most:
        return {span.id for span in trace.spans}
    parents = {span.id: span.parent for span in trace.spans}

    def weight(span: Span) -> tuple[int, float]:
        urgent = span.state.is_open or span.state.is_wrong
        return (1 if urgent else _WEIGHTS.get(span.kind, 0)), -span.started_at.timestamp()

    chosen: set[str] = set()
    for span in sorted(trace.spans, key=weight):
        needed = set(_upward(span.id, parents)) - chosen
        if len(chosen) + len(needed) <= most:
            chosen |= needed
    return chosen


def _upward(span_id: str, parents: Mapping[str, str]) -> Iterator[str]:
    while span_id:
        yield span_id
        span_id = parents[span_id]


def _line(span: Span, now: datetime, words: Words) -> str:
    facts = [_took(span.seconds(now), words), _spent(span.spent, words)]
    if span.state.is_wrong and span.parent:
        facts.append(formats.line(span.error, _NAME))
    told = "  ".join(fact for fact in facts if fact)
    return f"{'  ' * span.depth}{_MARKS[span.state]} {_name(span, words)}  {told}"


def _name(span: Span, words: Words) -> str:
    tries = span.attributes.get("shiftboss.node.attempt")
    again = words("trace.again", n=tries) if isinstance(tries, int) and tries > 1 else ""
    return _bare_name(span, words) + again


def _bare_name(span: Span, words: Words) -> str:
    """Without the number of the try."""
    name = span.name
    match span.kind:
        case SpanKind.TOOL:
            name = words("trace.tool", name=name.removeprefix("execute_tool "))
        case SpanKind.HELPER:
            name = words("trace.helper", name=name.removeprefix("invoke_agent "))
        case SpanKind.LLM:
            name = words("trace.llm", name=name.removeprefix("chat "))
        case SpanKind.CHAT:
            name = words("trace.answer")
        case SpanKind.NODE if span.attributes.get("shiftboss.node.type") == "plan":
            name = words("trace.plan")
        case _:
            pass
    return formats.line(name, _NAME)


def _slow(trace: Trace, words: Words) -> Iterator[Block]:
    """By the time that is its own: what it did besides waiting for what is below it."""
    own = {span.id: span.seconds(trace.at) for span in trace.spans}
    for span in trace.spans:
        if span.parent:
            own[span.parent] -= span.seconds(trace.at)
    slowest = sorted(trace.spans, key=lambda span: own[span.id], reverse=True)[:_ROWS]
    names = {span.id: _name(span, words) for span in trace.spans}
    columns = tuple(words(f"trace.column.{key}") for key in ("what", "within", "own", "took"))
    rows = tuple(
        (
            f"{_MARKS[span.state]} {names[span.id]}",
            names.get(span.parent, "–"),
            _took(max(0.0, own[span.id]), words),
            _took(span.seconds(trace.at), words),
        )
        for span in slowest
    )
    yield Table(columns=columns, rows=rows)


def _errors(trace: Trace, words: Words) -> Iterator[Block]:
    wrong = [span for span in trace.spans if span.state.is_wrong]
    if not wrong:
        yield Text(markdown=words("trace.no_errors"))
        return
    names = {span.id: _name(span, words) for span in trace.spans}
    columns = tuple(words(f"trace.column.{key}") for key in ("what", "within", "took", "why"))
    rows = tuple(
        (
            f"{_MARKS[span.state]} {names[span.id]}",
            names.get(span.parent, "–"),
            _took(span.seconds(trace.at), words),
            formats.line(span.error, _ERROR) or words(f"trace.state.{span.state}"),
        )
        for span in wrong[-_ROWS:]
    )
    yield Table(columns=columns, rows=rows)
    if len(wrong) > _ROWS:
        yield Note(markdown=words("trace.older_errors", n=len(wrong) - _ROWS))


def _cost(trace: Trace, words: Words) -> Iterator[Block]:
    """By what asked the models: a step with all its tries, a helper."""
    parents = {span.id: span for span in trace.spans}
    sums: dict[str, Spent] = {}
    for span in trace.spans:
        if span.kind is SpanKind.LLM:
            asker = parents[span.parent]
            of_task = asker.kind is SpanKind.WORKFLOW
            name = words("trace.whole") if of_task else _bare_name(asker, words)
            sums[name] = _add(sums.get(name, Spent()), span.spent)
    if not sums:
        yield Text(markdown=words("trace.no_calls"))
        return
    ranked = sorted(sums.items(), key=lambda each: _price(each[1]), reverse=True)
    keys = ("what", "calls", "tokens", "cached", "money", "share")
    whole = trace.whole.spent
    rest = ranked[_ROWS:]
    rows = [_cost_row(name, spent, whole, words) for name, spent in ranked[:_ROWS]]
    if rest:
        others = _total(spent for _, spent in rest)
        rows.append(_cost_row(words("trace.others", n=len(rest)), others, whole, words))
    yield Table(columns=tuple(words(f"trace.column.{key}") for key in keys), rows=tuple(rows))


def _cost_row(name: str, spent: Spent, whole: Spent, words: Words) -> tuple[str, ...]:
    share = f"{_WHOLE * spent.cost_micros // whole.cost_micros} %" if whole.cost_micros else "–"
    tokens = formats.count(spent.input_tokens + spent.output_tokens)
    cached = formats.count(spent.cache_read_tokens)
    return name, str(spent.calls), tokens, cached, formats.cost(spent, words), share


def _price(spent: Spent) -> tuple[int, int]:
    return spent.cost_micros, spent.input_tokens + spent.output_tokens


def _total(all_spent: Iterable[Spent]) -> Spent:
    whole = Spent()
    for spent in all_spent:
        whole = _add(whole, spent)
    return whole


def _add(one: Spent, other: Spent) -> Spent:
    return Spent(**{name: getattr(one, name) + getattr(other, name) for name in _SPENT})


def _spent(spent: Spent, words: Words) -> str:
    if not (spent.calls or spent.input_tokens or spent.output_tokens):
        return ""
    facts: Sequence[str] = (formats.tokens(spent, words), formats.cost(spent, words))
    return "  ".join(facts)


def _took(seconds: float, words: Words) -> str:
    if seconds < _BRIEF:
        return words("trace.tenths", s=f"{seconds:.1f}")
    return formats.duration(timedelta(seconds=seconds), words)
