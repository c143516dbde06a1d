"""Requests for a decision, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.actions import Decide
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Divider,
    Fields,
    Note,
    Text,
    Tone,
)
from cards.words import Words
from storage.records.approvals import Approval, ApprovalKind, ApprovalState

_DETAIL = 1000
_TITLE = 100
_NAME = 60
_LISTED = 5

_TONES = {
    ApprovalState.WAITING: Tone.WARN,
    ApprovalState.APPROVED: Tone.GOOD,
    ApprovalState.REJECTED: Tone.BAD,
    ApprovalState.EXPIRED: Tone.NEUTRAL,
}


def approval_card(approval: Approval, words: Words, *, zone: ZoneInfo, decider: str = "") -> Card:
    """One request in whatever state it is, under key `approval:<id>:<chat>`; `decider` is the
    name of who settled it."""
    if approval.state is not ApprovalState.WAITING:
        return _decided_card(approval, words, zone, decider)
    title = words("approval.title")
    note = "approval.note_pairing" if approval.kind is ApprovalKind.PAIRING else "approval.note"
    return Card(
        title=title,
        tone=Tone.WARN,
        blocks=(
            *_subject(approval, words, zone),
            _decision(approval, words),
            Note(markdown=words(note, id=approval.id)),
        ),
        summary=words("approval.summary", title=formats.line(approval.title, _TITLE)),
    )


def waiting_card(
    approvals: Sequence[Approval], words: Words, *, zone: ZoneInfo, only_here: bool = False
) -> Card:
    """All that waits for this person; `only_here` says that other chats are left out."""
    if not approvals:
        title = words("approval.none_title")
        text = Text(markdown=words("approval.none_here" if only_here else "approval.none"))
        return Card(title=title, tone=Tone.GOOD, blocks=(text,), summary=title)
    blocks: list[Block] = []
    for approval in approvals[:_LISTED]:
        blocks += [*_subject(approval, words, zone), _decision(approval, words), Divider()]
    if len(approvals) > _LISTED:
        blocks.append(Note(markdown=words("approval.more", n=len(approvals) - _LISTED)))
    title = words("approval.list_title", n=len(approvals))
    return Card(title=title, tone=Tone.WARN, blocks=tuple(blocks), summary=title)


def _decided_card(approval: Approval, words: Words, zone: ZoneInfo, decider: str) -> Card:
    title = words(f"approval.decided.{approval.state}")
    facts: list[Block] = [Text(markdown=f"**{_title(approval, words)}**")]
    if approval.reason:
        reason = formats.cut(approval.reason, _DETAIL)
        facts.append(Text(markdown=words("approval.reason", reason=reason)))
    if decider and approval.decided_at:
        at = formats.moment(approval.decided_at, zone)
        name = formats.verbatim(decider, _NAME)
        facts.append(Note(markdown=words("approval.by", name=name, at=at)))
    return Card(title=title, tone=_TONES[approval.state], blocks=tuple(facts), summary=title)


def _subject(approval: Approval, words: Words, zone: ZoneInfo) -> list[Block]:
    pairs = [(words("approval.kind"), words(f"approval.kinds.{approval.kind}"))]
    if approval.task_id:
        pairs.append((words("approval.task"), approval.task_id))
    if approval.kind is ApprovalKind.PAIRING:
        pairs.append((words("approval.code"), approval.subject))
    pairs.append((words("approval.until"), formats.moment(approval.expires_at, zone)))
    blocks: list[Block] = [
        Text(markdown=f"**{_title(approval, words)}**"),
        Fields(pairs=tuple(pairs)),
    ]
    if approval.detail:
        blocks.insert(1, Text(markdown=formats.cut(approval.detail, _DETAIL)))
    return blocks


def _title(approval: Approval, words: Words) -> str:
    """A pairing's title is the stranger's name, who may call themselves anything; others say
    what they are about."""
    if approval.kind is not ApprovalKind.PAIRING:
        return formats.line(approval.title, _TITLE)
    name = formats.verbatim(approval.title or "?", _NAME)
    return words("approval.pairing_title", name=name)


def _decision(approval: Approval, words: Words) -> Buttons:
    return Buttons(
        items=(
            Button(
                label=words("button.approve"),
                action=Decide(approval_id=approval.id, approve=True),
                style=ButtonStyle.PRIMARY,
            ),
            Button(
                label=words("button.reject"),
                action=Decide(approval_id=approval.id, approve=False),
                style=ButtonStyle.DANGER,
            ),
        )
    )
