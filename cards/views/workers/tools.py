"""What workers may do without asking, and what they did with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats
from cards.model import Block, Card, Code, Collapsible, Note, Text, Tone
from cards.reasons import reason_told
from cards.words import Words
from storage.records.people import PersonId
from storage.records.tools import CallRecord, CallState, GrantRecord

_LISTED = 30
_TOOL = 40
_PATTERN = 200
_TITLE = 120
_DETAIL = 600
_NAME = 40


def grants_card(
    held: Sequence[GrantRecord], names: Mapping[PersonId, str], words: Words, *, zone: ZoneInfo
) -> Card:
    """Leave for more than one call, by the number that takes it back."""
    if not held:
        title = words("tools.list.none_title")
        return Card(title=title, blocks=(Text(markdown=words("tools.list.none")),), summary=title)
    rows = [
        words(
            "tools.list.row",
            n=each.id,
            scope=words(f"tools.scope.{each.scope}", id=each.subject),
            tool=formats.verbatim(each.tool, _TOOL),
            pattern=formats.verbatim(each.pattern, _PATTERN),
            name=formats.verbatim(names.get(each.granted_by, ""), _NAME),
            at=formats.moment(each.at, zone),
        )
        for each in held[:_LISTED]
    ]
    blocks: list[Block] = [Text(markdown="\n\n".join(rows))]
    if len(held) > _LISTED:
        blocks.append(Note(markdown=words("tools.list.more", n=len(held) - _LISTED)))
    blocks.append(Note(markdown=words("tools.list.how")))
    title = words("tools.list.title", n=len(held))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def calls_card(task_id: str, calls: Sequence[CallRecord], words: Words, *, zone: ZoneInfo) -> Card:
    """What a task's workers wanted to do, what was decided, and what came of it."""
    title = words("tools.log.title", id=task_id, n=len(calls))
    if not calls:
        return Card(title=title, blocks=(Text(markdown=words("tools.log.none")),), summary=title)
    rows = [
        words(
            "tools.log.row",
            at=formats.moment(each.asked_at, zone),
            state=words(f"tools.state.{each.state}"),
            tool=formats.verbatim(each.tool, _TOOL),
            title=formats.verbatim(each.title.removeprefix(each.tool), _TITLE),
        )
        for each in calls
    ]
    blocks: list[Block] = [Text(markdown="\n\n".join(rows))]
    asked = [each for each in calls if each.approval_id and each.detail]
    if asked:
        last = asked[-1]
        code = Code(text=formats.cut(last.detail, _DETAIL))
        blocks.append(Collapsible(title=formats.line(last.title, _TITLE), blocks=(code,)))
    return Card(title=title, tone=Tone.INFO, blocks=tuple(blocks), summary=title)


def grants_data(held: Sequence[GrantRecord]) -> Mapping[str, Any]:
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
            for each in held
        ]
    }


def calls_data(task_id: str, calls: Sequence[CallRecord], words: Words) -> Mapping[str, Any]:
    return {
        "id": task_id,
        "calls": [
            {
                "tool": each.tool,
                "kind": each.kind,
                "title": each.title,
                "detail": each.detail,
                "verdict": each.verdict,
                "why": reason_told(each.why, words),
                "state": each.state.value,
                "approval": each.approval_id,
                "answer": each.answer,
                "size": each.size,
                "asked_at": each.asked_at.isoformat(),
                "made": each.state in {CallState.DONE, CallState.FAILED},
            }
            for each in calls
        ],
    }
