"""Renders costs, spending caps and requests to extend a cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cards import formats, model
from cards.actions import OpenPage
from cards.catalog import TextCatalog
from storage.records.tasks import UsageTotals
from storage.records.usage import (
    BudgetScope,
    CapUsage,
    CostLine,
    CostPeriod,
    CostReport,
    SpendingCap,
    TaskCost,
)

_PERCENT = 100
_MAX_NAME = 60
_MAX_LISTED = 10
_DEFAULT_PERIODS = (CostPeriod.TODAY, CostPeriod.WEEK, CostPeriod.MONTH)


def cost_card(report: CostReport, words: TextCatalog, *, offer_charts: bool = False) -> model.Card:
    """`offer_charts`: the reader may open the dashboard."""
    query = report.query
    if query.period is CostPeriod.MONTH:
        rows = [
            (words(f"cost.{each}"), spent)
            for each, spent in zip(
                _DEFAULT_PERIODS, (report.today, report.week, report.month), strict=True
            )
        ]
    else:
        rows = [(_period(report, words), report.total)]
    first = words("cost.period")
    blocks: list[model.Block] = [_table(first, rows, words), *_cache_notes(report.total, words)]
    period = _period(report, words)
    for key, lines in (("model", report.models), ("purpose", report.purposes)):
        blocks += _breakdown(key, period, lines, report.total, words)
    for key, lines in (("chat", report.chats), ("person", report.people)):
        if len(lines) > 1:  # a single line equals the total above
            blocks += _breakdown(key, period, lines[:_MAX_LISTED], report.total, words)
    blocks += [
        *_cap_blocks(report.caps, words),
        *_uncertainty_notes(report.total, report.unpriced_models, words),
    ]
    if offer_charts:
        charts = model.CardButton(words("cost.button_charts"), OpenPage(page="costs"))
        blocks.append(model.ButtonsBlock((charts,)))
    title = words("cost.title")
    if query.model:
        title = words("cost.title_model", model=formats.escape_markdown(query.model, _MAX_NAME))
    return model.titled_card(title, *blocks)


def task_cost_card(cost: TaskCost, words: TextCatalog) -> model.Card:
    name = formats.single_line(cost.task.title, _MAX_NAME)
    period = words("cost.whole_task")
    blocks: list[model.Block] = [
        model.TextBlock(f"`{cost.task.id}` {name}"),
        _table(words("cost.period"), [(period, cost.total)], words),
        *_cache_notes(cost.total, words),
        *_breakdown("model", period, cost.models, cost.total, words),
        *_breakdown("purpose", period, cost.purposes, cost.total, words),
        *_cap_blocks(cost.caps, words),
        *_uncertainty_notes(cost.total, cost.unpriced_models, words),
    ]
    return model.titled_card(words("cost.title"), *blocks)


def budget_lines(payload: Mapping[str, Any], words: TextCatalog) -> tuple[str, ...]:
    """The content of a request for more budget: the cap, its usage, the extension, and when the cap
    resets."""
    allowed = _payload_cap(payload, "cap")
    used = _payload_cap(payload, "spent")
    lines = [
        cap_reached_text(BudgetScope(payload["scope"]), used, allowed, words),
        words("budget.extends", more=_amount(_payload_cap(payload, "more"), words)),
    ]
    lines.append(words("budget.opens" if payload.get("until") else "budget.stays"))
    return tuple(lines)


def cap_reached_text(
    scope: BudgetScope, used: SpendingCap, allowed: SpendingCap, words: TextCatalog
) -> str:
    return words(
        f"budget.reached.{scope}",
        used=_used_amount(used, allowed, words),
        cap=_amount(allowed, words),
    )


def extend_label(payload: Mapping[str, Any], words: TextCatalog) -> str:
    """The button's label."""
    return words("budget.extend", more=_amount(_payload_cap(payload, "more"), words))


def _payload_cap(payload: Mapping[str, Any], of: str) -> SpendingCap:
    return SpendingCap(
        micros=int(payload.get(f"{of}_micros", 0)), tokens=int(payload.get(f"{of}_tokens", 0))
    )


def cost_notes(report: CostReport, words: TextCatalog) -> list[model.NoteBlock]:
    """How much the cache has served, and what the figures leave out."""
    return [
        *_cache_notes(report.total, words),
        *_uncertainty_notes(report.total, report.unpriced_models, words),
    ]


def _period(report: CostReport, words: TextCatalog) -> str:
    if report.query.period is CostPeriod.DAYS:
        return words("cost.days", n=report.query.days)
    return words(f"cost.{report.query.period}")


def _table(
    first: str, rows: Sequence[tuple[str, UsageTotals]], words: TextCatalog
) -> model.TableBlock:
    columns = (first, *(words(f"cost.{key}") for key in ("money", "calls", "tokens")))
    return model.TableBlock(
        columns, tuple((name, *cost_amounts(spent, words)) for name, spent in rows)
    )


def _breakdown(
    key: str, period: str, lines: Sequence[CostLine], whole: UsageTotals, words: TextCatalog
) -> list[model.Block]:
    if not lines:
        return []
    # Phones show five columns; what the cache has served is told once for all.
    has_shares = bool(whole.cost_micros)
    headings = (*(("share",) if has_shares else ()), "money", "calls", "tokens")
    columns = (words(f"cost.{key}"), *(words(f"cost.{each}") for each in headings))
    rows = tuple(
        (
            cost_line_name(key, line, words),
            *((cost_share(line.spent, whole),) if has_shares else ()),
            *cost_amounts(line.spent, words),
        )
        for line in lines
    )
    heading = words(f"cost.by_{key}", period=period)
    return [model.TextBlock(f"**{heading}**"), model.TableBlock(columns, rows)]


def cost_line_name(key: str, line: CostLine, words: TextCatalog) -> str:
    if key == "purpose" and words.has(f"cost.for.{line.name}"):
        return words(f"cost.for.{line.name}")
    return formats.single_line(line.name, _MAX_NAME) or "-"


def _cache_notes(usage: UsageTotals, words: TextCatalog) -> list[model.NoteBlock]:
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    if not (read or written):
        return []
    share = _PERCENT * read // max(1, usage.input_tokens)
    facts = {
        "read": formats.compact_number(read),
        "written": formats.compact_number(written),
        "share": share,
    }
    return [model.NoteBlock(words("cost.cache", **facts))]


def _cap_blocks(caps: Sequence[CapUsage], words: TextCatalog) -> list[model.Block]:
    if not caps:
        return []
    pairs = tuple((words(f"cost.cap.{each.scope}"), cap_left_text(each, words)) for each in caps)
    return [model.TextBlock(f"**{words('cost.caps')}**"), model.FieldsBlock(pairs)]


def cap_left_text(cap: CapUsage, words: TextCatalog) -> str:
    text = words(
        "cost.left",
        left=_used_amount(cap.remaining, cap.allowed, words),
        cap=_amount(cap.allowed, words),
    )
    if cap.granted:
        text = f"{text} {words('cost.granted', more=_amount(cap.granted, words))}"
    return f"{text} {words('cost.stopped')}" if cap.is_stopped else text


def _uncertainty_notes(
    whole: UsageTotals, unseen: Sequence[str], words: TextCatalog
) -> list[model.NoteBlock]:
    blocks: list[model.NoteBlock] = []
    if whole.unpriced:
        blocks.append(model.NoteBlock(words("cost.unpriced", n=whole.unpriced)))
    if whole.estimated_tokens:
        count = formats.compact_number(whole.estimated_tokens)
        blocks.append(model.NoteBlock(words("cost.estimated", tokens=count)))
    if unseen:
        names = " · ".join(f"`{name or '-'}`" for name in unseen[:_MAX_LISTED])
        blocks.append(model.NoteBlock(words("cost.unseen", models=names)))
    return blocks


def _amount(cap: SpendingCap, words: TextCatalog) -> str:
    return _used_amount(cap, cap, words)


def _used_amount(used: SpendingCap, limits: SpendingCap, words: TextCatalog) -> str:
    """Money, tokens or both: the measures with a limit."""
    parts = []
    if limits.micros:
        parts.append(formats.money(used.micros))
    if limits.tokens:
        parts.append(words("format.tokens", count=formats.compact_number(used.tokens)))
    return " · ".join(parts)


def cost_amounts(usage: UsageTotals, words: TextCatalog) -> tuple[str, str, str]:
    tokens = formats.compact_number(usage.tokens)
    if formats.is_tokens_unknown(usage):
        tokens = words("cost.unknown", tokens=tokens)
    return formats.spent_cost(usage, words), str(usage.calls), tokens


def cost_share(usage: UsageTotals, whole: UsageTotals) -> str:
    if not whole.cost_micros:
        return "-"
    return f"{_PERCENT * usage.cost_micros // whole.cost_micros}%"
