"""Requests for a decision, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from cards import formats
from cards.actions import Action, Answer, AskAgain, Decide, ShowTask
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Card,
    Code,
    Collapsible,
    Divider,
    Fields,
    Form,
    Note,
    Text,
    Tone,
)
from cards.views.work.costs import budget_lines, extend_label
from cards.views.workers.leave import (
    question_blocks,
    question_controls,
    tool_buttons,
    tool_notes,
)
from cards.words import Words
from storage.records.approvals import Approval, ApprovalKind, ApprovalState

_DETAIL = 1000
_TITLE = 100
_NAME = 60
_SAID = 200
_WORD = 40
_LISTED = 5
_NAMED = 3

_TONES = {
    ApprovalState.WAITING: Tone.WARN,
    ApprovalState.APPROVED: Tone.GOOD,
    ApprovalState.REJECTED: Tone.BAD,
    ApprovalState.EXPIRED: Tone.NEUTRAL,
}

# What they allow is a text to the letter: it is shown as it is, and all of it.
_EXACT = {ApprovalKind.RISK, ApprovalKind.TOOL}


def approval_card(
    approval: Approval,
    words: Words,
    *,
    zone: ZoneInfo,
    decider: str = "",
    deciders: Sequence[str] = (),
) -> Card:
    """One request in whatever state it is, under key `approval:<id>:<chat>`; `decider` is the
    name of who settled it, `deciders` those of who may, empty for any owner."""
    if approval.state is not ApprovalState.WAITING:
        return _decided_card(approval, words, zone, decider)
    return Card(
        title=words(f"approval.title.{approval.kind}"),
        tone=Tone.WARN,
        blocks=(
            *_subject(approval, words, zone, deciders),
            *_whole(approval, words),
            *_controls(approval, words, details=True),
            Note(markdown=_note(approval, words)),
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
        blocks += [*_subject(approval, words, zone), *_controls(approval, words), Divider()]
    if len(approvals) > _LISTED:
        blocks.append(Note(markdown=words("approval.more", n=len(approvals) - _LISTED)))
    title = words("approval.list_title", n=len(approvals))
    return Card(title=title, tone=Tone.WARN, blocks=tuple(blocks), summary=title)


def settled_on_list(card: Card, approval: Approval, words: Words) -> Card:
    """A card that lists several requests, when one of them has been decided elsewhere: it shows
    what became of it in the place of the first control, and the others go."""
    blocks: list[Block] = []
    told = False
    for block in card.blocks:
        left = _without(block, approval.id)
        if left is not block and not told:
            blocks.append(Note(markdown=words(f"approval.decided.{approval.state}")))
            told = True
        if left is not None:
            blocks.append(left)
    return replace(card, blocks=tuple(blocks), fallback="")


def _without(block: Block, approval_id: str) -> Block | None:
    """The block without what decides about the request, itself where there is nothing of it."""
    match block:
        case Form(action=Answer(question_id=asked)) if asked == approval_id:
            return None
        case Buttons(items=items):
            left = tuple(each for each in items if _decides(each.action) != approval_id)
            if len(left) == len(items):
                return block
            return replace(block, items=left) if left else None
        case _:
            return block


def _decides(action: Action) -> str:
    match action:
        case Decide(approval_id=asked) | Answer(question_id=asked):
            return asked
        case _:
            return ""


def _decided_card(approval: Approval, words: Words, zone: ZoneInfo, decider: str) -> Card:
    title = words(f"approval.decided.{approval.state}")
    blocks: list[Block] = [
        Text(markdown=f"**{_title(approval, words)}**"),
        Fields(pairs=_facts(approval, words)),
    ]
    if approval.reason and approval.decided_by is None:
        blocks.append(Text(markdown=words.or_own(approval.reason)))
    elif approval.reason:
        reason = formats.cut(approval.reason, _DETAIL)
        answers = approval.kind is ApprovalKind.QUESTION
        said = words("tools.answered", answer=reason)
        blocks.append(Text(markdown=said if answers else words("approval.reason", reason=reason)))
    if reach := str(approval.payload.get("reach", "")):
        blocks.append(Text(markdown=words(f"tools.scope_for_{reach}")))
    if decider and approval.decided_at:
        at = formats.moment(approval.decided_at, zone)
        name = formats.verbatim(decider, _NAME)
        blocks.append(Note(markdown=words("approval.by", name=name, at=at)))
    # With a reason it was taken back: then there is nothing to ask any more.
    if approval.state is ApprovalState.EXPIRED and not approval.reason:
        blocks += _too_late(approval, words)
    return Card(title=title, tone=_TONES[approval.state], blocks=tuple(blocks), summary=title)


def _too_late(approval: Approval, words: Words) -> list[Block]:
    if approval.kind is ApprovalKind.PAIRING:
        return [Note(markdown=words("approval.expired_pairing"))]
    until = str(approval.payload.get("until", ""))
    if until and datetime.fromisoformat(until) <= approval.expires_at:
        return [Note(markdown=words("approval.new_day"))]
    if not approval.task_id:
        return []
    again = Button(
        label=words("button.retry"),
        action=AskAgain(approval_id=approval.id),
        style=ButtonStyle.PRIMARY,
    )
    note = Note(markdown=words("approval.expired_task", id=approval.task_id))
    return [Buttons(items=(again,)), note]


def _subject(
    approval: Approval, words: Words, zone: ZoneInfo, deciders: Sequence[str] | None = None
) -> list[Block]:
    pairs = [*_facts(approval, words)]
    if deciders is not None:
        names = ", ".join(formats.line(each, _NAME) for each in deciders[:_NAMED])
        if len(deciders) > _NAMED:
            names = words("approval.deciders_more", names=names, n=len(deciders) - _NAMED)
        pairs.append((words("approval.deciders"), names or words("approval.owners")))
    pairs.append((words("approval.until"), formats.moment(_closes(approval), zone)))
    blocks: list[Block] = [Text(markdown=f"**{_title(approval, words)}**")]
    said = formats.line(str(approval.payload.get("said", "")), _SAID)
    if said and said != formats.line(approval.title, _SAID):
        blocks.append(Text(markdown=words("approval.said", said=formats.verbatim(said, _SAID))))
    blocks += _detail(approval, words)
    return [*blocks, Fields(pairs=tuple(pairs))]


def _closes(approval: Approval) -> datetime:
    """A step may have less time for it than the request has."""
    closes = str(approval.payload.get("closes", ""))
    own = datetime.fromisoformat(closes) if closes else approval.expires_at
    return min(own, approval.expires_at)


def _facts(approval: Approval, words: Words) -> tuple[tuple[str, str], ...]:
    pairs = [(words("approval.kind"), words(f"approval.kinds.{approval.kind}"))]
    if approval.task_id:
        title = formats.line(str(approval.payload.get("task", "")), _TITLE)
        pairs.append((words("approval.task"), f"{approval.task_id} {title}".strip()))
    if approval.kind is ApprovalKind.PAIRING:
        pairs.append((words("approval.code"), approval.subject))
    return tuple(pairs)


def _detail(approval: Approval, words: Words) -> list[Block]:
    if _is_money(approval):
        return [Text(markdown="\n\n".join(budget_lines(approval.payload, words)))]
    detail = formats.cut(approval.detail, _DETAIL)
    if approval.kind is ApprovalKind.QUESTION:
        return [Text(markdown=formats.verbatim(detail, _DETAIL)), *question_blocks(approval)]
    if approval.kind is ApprovalKind.TOOL:
        code = Code(text=detail, language=_language(approval))
        return [Text(markdown=words("approval.exact")), code, *tool_notes(approval, words)]
    if approval.kind not in _EXACT:
        detail = detail.removeprefix(approval.title).strip()
        return [Text(markdown=detail)] if detail else []
    blocks: list[Block] = [Text(markdown=words("approval.exact")), Code(text=detail)]
    if word := str(approval.payload.get("word", "")):
        blocks.append(Note(markdown=words("approval.word", word=formats.verbatim(word, _WORD))))
    return blocks


def _whole(approval: Approval, words: Words) -> list[Block]:
    """Nobody should have to allow what they cannot read."""
    if approval.kind not in _EXACT or len(approval.detail) <= _DETAIL:
        return []
    title = words("approval.whole", n=len(approval.detail))
    whole = Code(text=approval.detail, language=_language(approval))
    return [Collapsible(title=title, blocks=(whole,))]


def _language(approval: Approval) -> str:
    return "diff" if approval.detail.startswith(("--- ", "diff ")) else ""


def _title(approval: Approval, words: Words) -> str:
    """A pairing's title is the stranger's name, who may call themselves anything; others say
    what they are about."""
    if approval.kind is not ApprovalKind.PAIRING:
        return formats.line(approval.title, _TITLE)
    name = formats.verbatim(approval.title or "?", _NAME)
    return words("approval.pairing_title", name=name)


def _is_money(approval: Approval) -> bool:
    return approval.kind is ApprovalKind.BUDGET and "scope" in approval.payload


def _yes(approval: Approval, words: Words) -> str:
    if _is_money(approval):
        return extend_label(approval.payload, words)
    return words(f"approval.yes.{approval.kind}")


def _note(approval: Approval, words: Words) -> str:
    match approval.kind:
        case ApprovalKind.PAIRING:
            return words("approval.note_pairing", id=approval.id)
        case ApprovalKind.QUESTION:
            return words("tools.note_question", id=approval.id)
        case ApprovalKind.TOOL if approval.payload.get("pattern"):
            scope = "task" if approval.task_id else "chat"
            return words("tools.note", id=approval.id, scope=scope)
        case ApprovalKind.TOOL:
            return words("tools.note_once", id=approval.id)
        case _:
            return words("approval.note", id=approval.id)


def _controls(approval: Approval, words: Words, *, details: bool = False) -> list[Block]:
    if approval.kind is ApprovalKind.QUESTION:
        shown = question_controls(approval, words)
        # A list has no room for forms.
        return shown if details else [each for each in shown if isinstance(each, Buttons)]
    return [_decision(approval, words, details=details)]


def _decision(approval: Approval, words: Words, *, details: bool = False) -> Buttons:
    yes = Button(
        label=_yes(approval, words),
        action=Decide(approval_id=approval.id, approve=True),
        style=ButtonStyle.PRIMARY,
    )
    no = Button(
        label=words(f"approval.no.{approval.kind}"),
        action=Decide(approval_id=approval.id, approve=False),
        style=ButtonStyle.DANGER,
    )
    items = [yes]
    if approval.kind is ApprovalKind.TOOL:
        items = tool_buttons(approval, words)
    items.append(no)
    if details and approval.task_id:
        shown = Button(label=words("button.details"), action=ShowTask(task_id=approval.task_id))
        items.append(shown)
    return Buttons(items=tuple(items))
