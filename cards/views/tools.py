"""Renders standing permissions and tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.catalog import TextCatalog
from cards.permission_reasons import describe_reason
from storage.records.people import PersonId
from storage.records.tools import StandingPermission, ToolCallRecord, ToolCallState

_MAX_LISTED = 30
_MAX_TOOL = 40
_MAX_PATTERN = 200
_MAX_TITLE = 120
_MAX_DETAIL = 600
_MAX_NAME = 40


def grants_card(
    grants: Sequence[StandingPermission],
    names: Mapping[PersonId, str],
    words: TextCatalog,
    *,
    zone: ZoneInfo,
) -> model.Card:
    """Standing permissions, with the number that revokes each."""
    if not grants:
        title = words("tools.list.none_title")
        return model.titled_card(
            title, model.TextBlock(words("tools.list.none")), tone=model.CardTone.NEUTRAL
        )
    rows = [
        words(
            "tools.list.row",
            n=each.id,
            scope=words(f"tools.scope.{each.scope}", id=each.subject),
            tool=formats.code_text(each.tool, _MAX_TOOL),
            pattern=formats.escape_markdown(each.pattern, _MAX_PATTERN),
            name=formats.escape_markdown(names.get(each.granted_by, ""), _MAX_NAME),
            at=formats.date_time(each.at, zone),
        )
        for each in grants[:_MAX_LISTED]
    ]
    blocks: list[model.Block] = [model.TextBlock("\n\n".join(rows))]
    if len(grants) > _MAX_LISTED:
        blocks.append(model.NoteBlock(words("tools.list.more", n=len(grants) - _MAX_LISTED)))
    blocks.append(model.NoteBlock(words("tools.list.how")))
    title = words("tools.list.title", n=len(grants))
    return model.titled_card(title, *blocks)


def calls_card(
    task_id: str, calls: Sequence[ToolCallRecord], words: TextCatalog, *, zone: ZoneInfo
) -> model.Card:
    """A task's tool calls: the request, the decision and the result."""
    title = words("tools.log.title", id=task_id, n=len(calls))
    if not calls:
        return model.titled_card(
            title, model.TextBlock(words("tools.log.none")), tone=model.CardTone.NEUTRAL
        )
    rows = [
        words(
            "tools.log.row",
            at=formats.date_time(each.asked_at, zone),
            state=words(f"tools.state.{each.state}"),
            tool=formats.code_text(each.tool, _MAX_TOOL),
            title=formats.escape_markdown(each.title.removeprefix(each.tool), _MAX_TITLE),
        )
        for each in calls
    ]
    blocks: list[model.Block] = [model.TextBlock("\n\n".join(rows))]
    requests = [each for each in calls if each.approval_id and each.detail]
    if requests:
        last = requests[-1]
        code = model.CodeBlock(formats.truncate(last.detail, _MAX_DETAIL))
        blocks.append(model.CollapsibleBlock(formats.single_line(last.title, _MAX_TITLE), (code,)))
    return model.titled_card(title, *blocks)


def grants_data(grants: Sequence[StandingPermission]) -> Mapping[str, Any]:
    return {
        "grants": [
            {
                "number": each.id,
                "scope": each.scope.value,
                "subject": each.subject,
                "tool": each.tool,
                "pattern": each.pattern,
                "by": each.granted_by,
                "at": each.at.isoformat(),
            }
            for each in grants
        ]
    }


def calls_data(
    task_id: str, calls: Sequence[ToolCallRecord], words: TextCatalog
) -> Mapping[str, Any]:
    return {
        "id": task_id,
        "calls": [
            {
                "tool": each.tool,
                "kind": each.kind,
                "title": each.title,
                "detail": each.detail,
                "verdict": each.verdict,
                "why": describe_reason(each.why, words),
                "state": each.state.value,
                "approval": each.approval_id,
                "answer": each.answer,
                "size": each.size,
                "asked_at": each.asked_at.isoformat(),
                "made": each.state in {ToolCallState.DONE, ToolCallState.FAILED},
            }
            for each in calls
        ],
    }
