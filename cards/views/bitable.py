"""Renders cards about the Feishu Bitable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cards import formats, model
from cards.catalog import TextCatalog
from storage.records.bitable import (
    BitableBase,
    BitableGap,
    BitableReport,
    BitableState,
    BitableStatus,
)

_MAX_NAME = 100
_MAX_REASON = 300
_MAX_SHOWN = 12


def bitable_status_card(status: BitableStatus, words: TextCatalog, *, by_owner: bool) -> model.Card:
    base = status.base
    if base is None:
        key = "none" if status.has_feishu else "no_feishu"
        return model.notice_card(words("bitable.title"), words(f"bitable.{key}"))
    facts = [
        (words("bitable.base_fact"), formats.single_line(base.name, _MAX_NAME)),
        (words("bitable.state_fact"), bitable_state(base, words)),
    ]
    if status.chat:
        facts.append((words("bitable.chat_fact"), formats.single_line(status.chat, _MAX_NAME)))
    blocks: list[model.Block] = [model.FieldsBlock(tuple(facts)), _link(base, words)]
    if by_owner:
        blocks.append(model.NoteBlock(words("bitable.hint")))
    return model.titled_card(words("bitable.title"), *blocks)


def bitable_state(base: BitableBase, words: TextCatalog) -> str:
    """The state of synchronisation and, if it has stopped, the reason."""
    if base.state is BitableState.ACTIVE:
        return words("bitable.active")
    key = f"bitable.reason.{base.reason}"
    reason = words(key) if words.has(key) else formats.single_line(base.reason, _MAX_REASON)
    return words("bitable.stopped", reason=reason)


def bitable_report_card(report: BitableReport, words: TextCatalog) -> model.Card:
    blocks: list[model.Block] = [model.TextBlock(each) for each in bitable_news(report, words)]
    blocks.append(_link(report.base, words))
    if not report.is_good:
        blocks.append(model.NoteBlock(words("bitable.gaps_hint")))
    tone = model.CardTone.GOOD if report.is_good else model.CardTone.WARN
    return model.titled_card(words("bitable.title"), *blocks, tone=tone)


def bitable_news(report: BitableReport, words: TextCatalog) -> Sequence[str]:
    """The findings of a setup, a check or a repair, in Markdown."""
    if report.is_new:
        news = [words("bitable.made")]
    elif not report.gaps:
        news = [words("bitable.complete")]
    else:
        key = "repaired" if report.is_repaired else "gaps"
        news = [words(f"bitable.{key}", n=len(report.gaps)), _gap_lines(report, words)]
    if report.is_repaired and not report.announces:
        news.append(words("bitable.no_events"))
    return news


def bitable_off_card(left: BitableBase | None, words: TextCatalog) -> model.Card:
    key = "none" if left is None else "off"
    return model.notice_card(words("bitable.title"), words(f"bitable.{key}"))


def bitable_rebuild_card(base: BitableBase, words: TextCatalog) -> model.Card:
    name = formats.escape_markdown(base.name, _MAX_NAME)
    return model.notice_card(words("bitable.title"), words("bitable_sync.rebuild", name=name))


def bitable_status_data(status: BitableStatus) -> dict[str, Any]:
    base = status.base
    if base is None:
        return {"base": None, "feishu": status.has_feishu}
    return {**_base_data(base), "state": base.state.value, "reason": base.reason}


def bitable_report_data(report: BitableReport) -> dict[str, Any]:
    return {
        **_base_data(report.base),
        "good": report.is_good,
        "new": report.is_new,
        "repaired": report.is_repaired,
        "announces": report.announces,
        "calls": report.calls,
        "gaps": [
            {"kind": each.kind.value, "table": each.table.value, "name": each.name}
            for each in report.gaps
        ],
    }


def _base_data(base: BitableBase) -> dict[str, Any]:
    tables = {role.value: each.table for role, each in base.tables.items()}
    return {"base": base.base, "name": base.name, "url": base.url, "tables": tables}


def _link(base: BitableBase, words: TextCatalog) -> model.Block:
    return model.TextBlock(words("bitable.open", url=base.url))


def _gap_lines(report: BitableReport, words: TextCatalog) -> str:
    lines = [f"- {_gap_text(each, words)}" for each in report.gaps[:_MAX_SHOWN]]
    if more := len(report.gaps) - _MAX_SHOWN:
        lines += [words("bitable.more", n=more)] if more > 0 else []
    return "\n".join(lines)


def _gap_text(gap: BitableGap, words: TextCatalog) -> str:
    table = words(f"bitable.table.{gap.table}")
    name = formats.escape_markdown(gap.name, _MAX_NAME)
    return words(f"bitable.gap.{gap.kind}", table=table, name=name)
