"""What was spent on what, what the caps still allow, and what a request for more would allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cards import formats
from cards.model import Block, Card, Fields, Note, Table, Text, Tone
from cards.words import Words
from storage.records.money import Cap, CapLeft
from storage.records.status import CostLine, CostReport, Period, TaskCost
from storage.records.tasks import Spent

_WHOLE = 100
_NAME = 60
_LISTED = 10
_USUAL = (Period.TODAY, Period.WEEK, Period.MONTH)


def cost_card(report: CostReport, words: Words) -> Card:
    query = report.query
    if query.period is Period.MONTH:
        rows = [
            (words(f"cost.{each}"), spent)
            for each, spent in zip(_USUAL, (report.today, report.week, report.month), strict=True)
        ]
    else:
        rows = [(_period(report, words), report.whole)]
    first = words("cost.period")
    blocks: list[Block] = [_table(first, rows, words), *_cached(report.whole, words)]
    period = _period(report, words)
    for key, lines in (("model", report.models), ("purpose", report.purposes)):
        blocks += _breakdown(key, period, lines, report.whole, words)
    for key, lines in (("chat", report.chats), ("person", report.people)):
        if len(lines) > 1:  # one alone is the whole, which stands above
            blocks += _breakdown(key, period, lines[:_LISTED], report.whole, words)
    blocks += [*_caps(report.caps, words), *_unknown(report.whole, report.unseen, words)]
    title = words("cost.title")
    if query.model:
        title = words("cost.title_model", model=formats.verbatim(query.model, _NAME))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def task_cost_card(cost: TaskCost, words: Words) -> Card:
    name = formats.line(cost.task.title, _NAME)
    period = words("cost.whole_task")
    blocks: list[Block] = [
        Text(markdown=f"`{cost.task.id}` {name}"),
        _table(words("cost.period"), [(period, cost.whole)], words),
        *_cached(cost.whole, words),
        *_breakdown("model", period, cost.models, cost.whole, words),
        *_breakdown("purpose", period, cost.purposes, cost.whole, words),
        *_caps(cost.caps, words),
        *_unknown(cost.whole, cost.unseen, words),
    ]
    title = words("cost.title")
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def budget_lines(payload: Mapping[str, Any], words: Words) -> tuple[str, ...]:
    """What a request for more money is about: which cap, how much of it is used, what extending
    it allows, and when it opens by itself."""
    allowed = _cap(payload, "cap")
    used = _cap(payload, "spent")
    lines = [
        words(
            f"budget.reached.{payload['scope']}",
            used=_used_amount(used, allowed, words),
            cap=_amount(allowed, words),
        ),
        words("budget.extends", more=_amount(_cap(payload, "more"), words)),
    ]
    lines.append(words("budget.opens" if payload.get("until") else "budget.stays"))
    return tuple(lines)


def extend_label(payload: Mapping[str, Any], words: Words) -> str:
    """What the button says."""
    return words("budget.extend", more=_amount(_cap(payload, "more"), words))


def _cap(payload: Mapping[str, Any], of: str) -> Cap:
    return Cap(
        micros=int(payload.get(f"{of}_micros", 0)), tokens=int(payload.get(f"{of}_tokens", 0))
    )


def _period(report: CostReport, words: Words) -> str:
    if report.query.period is Period.DAYS:
        return words("cost.days", n=report.query.days)
    return words(f"cost.{report.query.period}")


def _table(first: str, rows: Sequence[tuple[str, Spent]], words: Words) -> Table:
    columns = (first, *(words(f"cost.{key}") for key in ("money", "calls", "tokens")))
    return Table(
        columns=columns, rows=tuple((name, *_amounts(spent, words)) for name, spent in rows)
    )


def _breakdown(
    key: str, period: str, lines: Sequence[CostLine], whole: Spent, words: Words
) -> list[Block]:
    if not lines:
        return []
    columns = (
        words(f"cost.{key}"),
        *(words(f"cost.{each}") for each in ("share", "money", "calls", "tokens", "cached")),
    )
    rows = tuple(
        (
            _name(key, line, words),
            _share(line.spent, whole),
            *_amounts(line.spent, words),
            formats.count(line.spent.cache_read_tokens),
        )
        for line in lines
    )
    heading = words(f"cost.by_{key}", period=period)
    return [Text(markdown=f"**{heading}**"), Table(columns=columns, rows=rows)]


def _name(key: str, line: CostLine, words: Words) -> str:
    if key == "purpose" and words.has(f"cost.for.{line.name}"):
        return words(f"cost.for.{line.name}")
    return formats.line(line.name, _NAME) or "-"


def _cached(spent: Spent, words: Words) -> list[Block]:
    read, written = spent.cache_read_tokens, spent.cache_write_tokens
    if not (read or written):
        return []
    share = _WHOLE * read // max(1, spent.input_tokens)
    facts = {"read": formats.count(read), "written": formats.count(written), "share": share}
    return [Note(markdown=words("cost.cache", **facts))]


def _caps(caps: Sequence[CapLeft], words: Words) -> list[Block]:
    if not caps:
        return []
    pairs = tuple((words(f"cost.cap.{each.scope}"), _left(each, words)) for each in caps)
    return [Text(markdown=f"**{words('cost.caps')}**"), Fields(pairs=pairs)]


def _left(cap: CapLeft, words: Words) -> str:
    told = words(
        "cost.left",
        left=_used_amount(cap.left, cap.allowed, words),
        cap=_amount(cap.allowed, words),
    )
    if not cap.granted:
        return told
    return f"{told} {words('cost.granted', more=_amount(cap.granted, words))}"


def _unknown(whole: Spent, unseen: Sequence[str], words: Words) -> list[Block]:
    blocks: list[Block] = []
    if whole.unpriced:
        blocks.append(Note(markdown=words("cost.unpriced", n=whole.unpriced)))
    if unseen:
        listed = " · ".join(f"`{name or '-'}`" for name in unseen[:_LISTED])
        blocks.append(Note(markdown=words("cost.unseen", models=listed)))
    return blocks


def _amount(cap: Cap, words: Words) -> str:
    return _used_amount(cap, cap, words)


def _used_amount(used: Cap, limits: Cap, words: Words) -> str:
    """Money, tokens or both: what there is a limit of."""
    parts = []
    if limits.micros:
        parts.append(formats.money(used.micros))
    if limits.tokens:
        parts.append(words("format.tokens", count=formats.count(used.tokens)))
    return " · ".join(parts)


def _amounts(spent: Spent, words: Words) -> tuple[str, str, str]:
    tokens = formats.count(spent.input_tokens + spent.output_tokens)
    return formats.cost(spent, words), str(spent.calls), tokens


def _share(spent: Spent, whole: Spent) -> str:
    if not whole.cost_micros:
        return "-"
    return f"{_WHOLE * spent.cost_micros // whole.cost_micros} %"
