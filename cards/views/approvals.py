"""Renders approval requests and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import (
    Action,
    AnswerQuestion,
    DecideApproval,
    RequestApprovalAgain,
    ShowTask,
    SubmitApprovalForm,
)
from cards.catalog import TextCatalog
from cards.permission_reasons import describe_limits, describe_reason, is_about_app_rights
from cards.views.account_links import link_request_text
from cards.views.costs import budget_lines, extend_label
from cards.views.prompts import change_notes
from cards.views.workflows import input_field
from storage.records.approvals import (
    Approval,
    ApprovalKind,
    ApprovalState,
    is_bound_to_files,
)
from storage.records.workflows import WorkflowInput

_MAX_REASON = 200
_MAX_PATTERN = 300
_MAX_LABEL = 40
_MAX_OPTION = 200
_MAX_CHOICES = 20
"""Of more answers, a list is shown."""


def tool_request_notes(approval: Approval, words: TextCatalog) -> list[model.Block]:
    """The reason for the request, and what a standing permission would cover."""
    blocks: list[model.Block] = []
    if why := str(approval.payload.get("why", "")):
        text = formats.escape_markdown(describe_reason(why, words), _MAX_REASON)
        blocks.append(model.NoteBlock(words("tools.why", why=text)))
        blocks += [model.NoteBlock(each) for each in describe_limits(why, words)]
    if pattern := _pattern(approval.payload):
        tool = formats.code_text(str(approval.payload.get("tool", "")), _MAX_LABEL)
        covered = formats.escape_markdown(pattern, _MAX_PATTERN)
        blocks.append(model.NoteBlock(words("tools.covers", tool=tool, pattern=covered)))
        if is_bound_to_files(pattern):
            blocks.append(model.NoteBlock(words("tools.covers_files")))
    return blocks


def tool_request_buttons(approval: Approval, words: TextCatalog) -> list[model.CardButton]:
    """Buttons for each possible scope; only "once" if no standing permission is possible."""
    scopes = [""]
    if _pattern(approval.payload):
        scopes += ["task" if approval.task_id else "chat", "always"]
    if is_about_app_rights(str(approval.payload.get("why", ""))):
        # Others in the chat, and later tasks, are somebody else's.
        scopes = [scope for scope in scopes if scope in {"", "task"}]
    return [
        model.CardButton(
            words(f"tools.yes.{scope or 'once'}"),
            DecideApproval(approval_id=approval.id, approve=True, scope=scope),
            style=model.ButtonStyle.PLAIN if scope else model.ButtonStyle.PRIMARY,
        )
        for scope in scopes
    ]


def question_blocks(approval: Approval) -> list[model.Block]:
    """The numbered options: a reply may name a number or anything else."""
    rows = [
        f"{n}. {formats.escape_markdown(option, _MAX_OPTION)}"
        for n, option in enumerate(question_options(approval), start=1)
    ]
    return [model.TextBlock("\n".join(rows))] if rows else []


def question_controls(approval: Approval, words: TextCatalog) -> list[model.Block]:
    """A button for each option, and a field for a free answer."""
    buttons = tuple(
        model.CardButton(
            formats.single_line(f"{n}. {option}", _MAX_LABEL),
            AnswerQuestion(question_id=approval.id, value=option),
        )
        for n, option in enumerate(question_options(approval), start=1)
    )
    name = model.FormField(
        name="text", label=words("tools.answer"), field=model.FormFieldKind.PARAGRAPH
    )
    form = model.FormBlock(
        fields=(name,), submit=words("tools.send"), action=AnswerQuestion(question_id=approval.id)
    )
    return [*([model.ButtonsBlock(buttons)] if buttons else []), form]


def form_of(approval: Approval) -> tuple[WorkflowInput, ...]:
    """The fields that the approver has to fill in."""
    return tuple(
        WorkflowInput(
            name=each["name"],
            title=each.get("title", ""),
            kind=each.get("type", "text"),
            options=tuple(each.get("options", ())),
            default=each.get("default"),
            required=each.get("required", True),
        )
        for each in approval.payload.get("form") or ()
    )


def form_summary(inputs: Sequence[WorkflowInput], values: Mapping[str, Any]) -> str:
    """List what was filled in, a line each."""
    labels = {each.name: each.label for each in inputs}
    return "\n".join(f"{labels[name]}: {value}" for name, value in values.items())


def _form_controls(
    approval: Approval, words: TextCatalog, form: Sequence[WorkflowInput], *, details: bool
) -> list[model.Block]:
    no = decision_buttons(approval, words)[-1]
    items = [no]
    is_choice = approval.kind is ApprovalKind.CONDITION
    if is_choice:
        items = [*_choice_buttons(approval, form[0]), replace(no, label=words("approval.no.none"))]
    if approval.task_id:
        show = model.CardButton(words("button.details"), ShowTask(task_id=approval.task_id))
        items.append(show)
    names = " ".join(f"{each.name}=…" for each in form if each.must_be_given) or f"{form[0].name}=…"
    line = f"/approve {approval.id} {names}"
    buttons = model.ButtonsBlock(tuple(items))
    if is_choice and len(items) <= _MAX_CHOICES:
        return [buttons, model.NoteBlock(words("approval.form_line", line=line))]
    if not details:
        # A list has no room for forms.
        return [model.NoteBlock(words("approval.form_line", line=line)), buttons]
    filled = model.FormBlock(
        fields=tuple(input_field(each, words) for each in form),
        submit=_approve_label(approval, words),
        action=SubmitApprovalForm(approval_id=approval.id),
    )
    return [filled, model.NoteBlock(words("approval.form_hint", line=line)), buttons]


def _choice_buttons(approval: Approval, field: WorkflowInput) -> list[model.CardButton]:
    return [
        model.CardButton(
            formats.single_line(option, _MAX_LABEL),
            SubmitApprovalForm(approval_id=approval.id, name=field.name, value=option),
        )
        for option in field.options
    ]


def question_options(approval: Approval) -> Sequence[str]:
    return [str(each) for each in approval.payload.get("options") or ()]


def _pattern(payload: Mapping[str, Any]) -> str:
    return str(payload.get("pattern", ""))


_MAX_DETAIL = 1000
_MAX_TITLE = 100
_MAX_NAME = 60
_MAX_PURPOSE = 200
_MAX_WORD = 40
_MAX_LISTED = 5
_MAX_NAMED = 3

_TONES = {
    ApprovalState.WAITING: model.CardTone.WARN,
    ApprovalState.APPROVED: model.CardTone.GOOD,
    ApprovalState.REJECTED: model.CardTone.BAD,
    ApprovalState.EXPIRED: model.CardTone.NEUTRAL,
}

# These allow an exact text, so it is shown completely and unchanged.
_EXACT_KINDS = {
    ApprovalKind.RISK,
    ApprovalKind.TOOL,
    ApprovalKind.PROMPT,
    ApprovalKind.MCP,
    ApprovalKind.PAGE,
}
_EXACT_TEXTS = {
    ApprovalKind.PROMPT: "change",
    ApprovalKind.MCP: "servers",
    ApprovalKind.PAGE: "change",
}
"""Text keys that introduce the exact text."""


def approval_card(
    approval: Approval,
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    decider: str = "",
    deciders: Sequence[str] = (),
    has_controls: bool = True,
) -> model.Card:
    """One request in any state, under the key `approval:<id>:<chat>`. `decider` is the name of the
    person who settled it, `deciders` the names of the approvers, empty for any owner. Without
    controls it only says what the request is about."""
    if approval.state is not ApprovalState.WAITING:
        return _decided_card(approval, words, zone, decider)
    return model.titled_card(
        words(f"approval.title.{approval.kind}"),
        *_subject_blocks(approval, words, zone, deciders),
        *_full_text_blocks(approval, words),
        *(_control_blocks(approval, words, details=True) if has_controls else ()),
        *((model.NoteBlock(_note_text(approval, words)),) if has_controls else ()),
        tone=model.CardTone.WARN,
        summary=words("approval.summary", title=formats.single_line(approval.title, _MAX_TITLE)),
    )


def waiting_approvals_card(
    approvals: Sequence[Approval],
    words: TextCatalog,
    *,
    zone: ZoneInfo,
    others_hidden: bool = False,
) -> model.Card:
    """All requests this person may decide. `others_hidden` says that those of other chats are
    omitted."""
    if not approvals:
        title = words("approval.none_title")
        text = model.TextBlock(words("approval.none_here" if others_hidden else "approval.none"))
        return model.titled_card(title, text, tone=model.CardTone.GOOD)
    blocks: list[model.Block] = []
    for approval in approvals[:_MAX_LISTED]:
        blocks += [
            *_subject_blocks(approval, words, zone),
            *_control_blocks(approval, words),
            model.DividerBlock(),
        ]
    if len(approvals) > _MAX_LISTED:
        blocks.append(model.NoteBlock(words("approval.more", n=len(approvals) - _MAX_LISTED)))
    title = words("approval.list_title", n=len(approvals))
    return model.titled_card(title, *blocks, tone=model.CardTone.WARN)


def decided_text(approval: Approval, words: TextCatalog) -> str:
    """The outcome: a question is answered, not approved."""
    if approval.kind is ApprovalKind.QUESTION and approval.state is ApprovalState.APPROVED:
        return words("approval.question_answered")
    return words(f"approval.decided.{approval.state}")


def mark_settled_in_list(card: model.Card, approval: Approval, words: TextCatalog) -> model.Card:
    """A list card after one request was decided elsewhere: its outcome replaces its first control,
    and its other controls are removed."""
    blocks: list[model.Block] = []
    has_outcome = False
    # How to fill in its form is of no use any more.
    how_to = f"/approve {approval.id} "
    for block in card.blocks:
        if isinstance(block, model.NoteBlock) and how_to in block.markdown:
            continue
        remainder = _remove_decision(block, approval.id)
        if remainder is not block and not has_outcome:
            blocks.append(model.NoteBlock(decided_text(approval, words)))
            has_outcome = True
        if remainder is not None:
            blocks.append(remainder)
    return replace(card, blocks=tuple(blocks), fallback="")


def _remove_decision(block: model.Block, approval_id: str) -> model.Block | None:
    """The block without controls for this request; unchanged if it has none."""
    match block:
        case model.FormBlock(action=AnswerQuestion(question_id=key)) if key == approval_id:
            return None
        case model.ButtonsBlock(items=items):
            remainder = tuple(each for each in items if _approval_id_of(each.action) != approval_id)
            if len(remainder) == len(items):
                return block
            return replace(block, items=remainder) if remainder else None
        case _:
            return block


def _approval_id_of(action: Action) -> str:
    match action:
        case DecideApproval(approval_id=found_id) | AnswerQuestion(question_id=found_id):
            return found_id
        case _:
            return ""


def _decided_card(
    approval: Approval, words: TextCatalog, zone: ZoneInfo, decider: str
) -> model.Card:
    blocks: list[model.Block] = [
        model.TextBlock(f"**{_title_text(approval, words)}**"),
        model.FieldsBlock(_facts(approval, words)),
    ]
    if approval.reason and approval.decided_by is None:
        blocks.append(model.TextBlock(words.get_or_literal(approval.reason)))
    elif approval.reason:
        reason = formats.truncate(approval.reason, _MAX_DETAIL)
        answers = approval.kind is ApprovalKind.QUESTION
        text = words("tools.answered", answer=reason)
        blocks.append(model.TextBlock(text if answers else words("approval.reason", reason=reason)))
    if reach := str(approval.payload.get("reach", "")):
        blocks.append(model.TextBlock(words(f"tools.scope_for_{reach}")))
    if decider and approval.decided_at:
        at = formats.date_time(approval.decided_at, zone)
        name = formats.escape_markdown(decider, _MAX_NAME)
        blocks.append(model.NoteBlock(words("approval.by", name=name, at=at)))
    # With a reason it was withdrawn, so it cannot be requested again.
    if approval.state is ApprovalState.EXPIRED and not approval.reason:
        blocks += _expired_blocks(approval, words)
    return model.titled_card(decided_text(approval, words), *blocks, tone=_TONES[approval.state])


def _expired_blocks(approval: Approval, words: TextCatalog) -> list[model.Block]:
    if approval.kind is ApprovalKind.PAIRING:
        return [model.NoteBlock(words("approval.expired_pairing"))]
    until = str(approval.payload.get("until", ""))
    if until and datetime.fromisoformat(until) <= approval.expires_at:
        return [model.NoteBlock(words("approval.new_day"))]
    if not approval.task_id:
        return []
    again = model.CardButton(
        words("button.retry"),
        RequestApprovalAgain(approval_id=approval.id),
        style=model.ButtonStyle.PRIMARY,
    )
    note = model.NoteBlock(words("approval.expired_task", id=approval.task_id))
    return [model.ButtonsBlock((again,)), note]


def _subject_blocks(
    approval: Approval, words: TextCatalog, zone: ZoneInfo, deciders: Sequence[str] | None = None
) -> list[model.Block]:
    pairs = [*_facts(approval, words)]
    if deciders is not None:
        names = ", ".join(formats.single_line(each, _MAX_NAME) for each in deciders[:_MAX_NAMED])
        if len(deciders) > _MAX_NAMED:
            names = words("approval.deciders_more", names=names, n=len(deciders) - _MAX_NAMED)
        pairs.append((words("approval.deciders"), names or words("approval.owners")))
    pairs.append((words("approval.until"), formats.date_time(_deadline(approval), zone)))
    blocks: list[model.Block] = [model.TextBlock(f"**{_title_text(approval, words)}**")]
    text = formats.single_line(str(approval.payload.get("said", "")), _MAX_PURPOSE)
    if text and text != formats.single_line(approval.title, _MAX_PURPOSE):
        blocks.append(
            model.TextBlock(
                words("approval.said", said=formats.escape_markdown(text, _MAX_PURPOSE))
            )
        )
    blocks += _detail_blocks(approval, words)
    return [*blocks, model.FieldsBlock(tuple(pairs))]


def _deadline(approval: Approval) -> datetime:
    """A step's deadline may be earlier than the request's."""
    closes = str(approval.payload.get("closes", ""))
    own = datetime.fromisoformat(closes) if closes else approval.expires_at
    return min(own, approval.expires_at)


def _facts(approval: Approval, words: TextCatalog) -> tuple[tuple[str, str], ...]:
    pairs = [(words("approval.kind"), words(f"approval.kinds.{approval.kind}"))]
    if approval.task_id:
        title = formats.single_line(str(approval.payload.get("task", "")), _MAX_TITLE)
        pairs.append((words("approval.task"), f"{approval.task_id} {title}".strip()))
    if by := formats.single_line(str(approval.payload.get("by", "")), _MAX_NAME):
        pairs.append((words("approval.asked_by"), by))
    if approval.kind is ApprovalKind.PAIRING:
        pairs.append((words("approval.code"), approval.subject))
    return tuple(pairs)


def _detail_blocks(approval: Approval, words: TextCatalog) -> list[model.Block]:
    if _is_budget_request(approval):
        return [model.TextBlock("\n\n".join(budget_lines(approval.payload, words)))]
    if approval.kind is ApprovalKind.LINK:
        return [model.TextBlock(link_request_text(approval.payload, words))]
    detail = formats.truncate(approval.detail, _MAX_DETAIL)
    if approval.kind in _EXACT_KINDS:
        return _exact_blocks(approval, words)
    if approval.kind is ApprovalKind.QUESTION:
        return [
            model.TextBlock(formats.escape_markdown(detail, _MAX_DETAIL)),
            *question_blocks(approval),
        ]
    if approval.kind is ApprovalKind.CONDITION:
        said = approval.detail.removeprefix(approval.title).strip()
        return [model.TextBlock(formats.escape_markdown_lines(said, _MAX_DETAIL))] if said else []
    detail = detail.removeprefix(approval.title).strip()
    return [model.TextBlock(detail)] if detail else []


def _exact_blocks(approval: Approval, words: TextCatalog) -> list[model.Block]:
    """The exact text, its start and its end if it is long; `_full_text_blocks` has all of it."""
    whole = formats.show_exactly(approval.detail)
    key = _EXACT_TEXTS.get(approval.kind, "exact")
    said, detail = words(f"approval.{key}"), whole
    if len(whole) > _MAX_DETAIL:
        said = words(f"approval.{key}_long", n=len(approval.detail))
        hidden = words("approval.hidden", n=len(whole) - _MAX_DETAIL)
        detail = formats.head_and_tail(whole, _MAX_DETAIL, hidden)
    blocks: list[model.Block] = [
        model.TextBlock(said),
        model.CodeBlock(detail, language=_language(approval)),
    ]
    if approval.kind is ApprovalKind.TOOL:
        return [*blocks, *tool_request_notes(approval, words)]
    if approval.kind is ApprovalKind.PROMPT:
        return [*change_notes(approval.payload, words), *blocks]
    if approval.kind is ApprovalKind.PAGE:
        return [_page_edit_reason(approval, words), *blocks]
    if word := str(approval.payload.get("word", "")):
        blocks.append(
            model.NoteBlock(words("approval.word", word=formats.escape_markdown(word, _MAX_WORD)))
        )
    return blocks


def _page_edit_reason(approval: Approval, words: TextCatalog) -> model.TextBlock:
    reason = formats.escape_markdown(str(approval.payload.get("reason", "")), _MAX_PURPOSE * 2)
    task = formats.escape_markdown(str(approval.payload.get("task", "")), _MAX_WORD)
    return model.TextBlock(words("approval.page_reason", task=task, reason=reason))


def _full_text_blocks(approval: Approval, words: TextCatalog) -> list[model.Block]:
    """The complete text, so that people can read all that they approve."""
    shown = formats.show_exactly(approval.detail)
    if approval.kind not in _EXACT_KINDS or len(shown) <= _MAX_DETAIL:
        return []
    title = words("approval.whole", n=len(approval.detail))
    whole = model.CodeBlock(shown, language=_language(approval))
    return [model.CollapsibleBlock(title, (whole,))]


def _language(approval: Approval) -> str:
    return "diff" if approval.detail.startswith(("--- ", "diff ")) else ""


def _title_text(approval: Approval, words: TextCatalog) -> str:
    """The title; a name that a person chose is escaped and introduced."""
    if approval.kind not in {ApprovalKind.PAIRING, ApprovalKind.LINK}:
        return formats.single_line(approval.title, _MAX_TITLE)
    name = formats.escape_markdown(approval.title or "?", _MAX_NAME)
    return words(f"approval.{approval.kind}_title", name=name)


def _is_budget_request(approval: Approval) -> bool:
    return approval.kind is ApprovalKind.BUDGET and "scope" in approval.payload


def _approve_label(approval: Approval, words: TextCatalog) -> str:
    if _is_budget_request(approval):
        return extend_label(approval.payload, words)
    return words(f"approval.yes.{approval.kind}")


_NOTES = {
    ApprovalKind.PAIRING: "approval.note_pairing",
    ApprovalKind.QUESTION: "tools.note_question",
    ApprovalKind.MCP: "mcp.consent.note",
    ApprovalKind.LINK: "link.ask_note",
}


def _note_text(approval: Approval, words: TextCatalog) -> str:
    match approval.kind:
        case ApprovalKind.TOOL if approval.payload.get("pattern"):
            scope = "task" if approval.task_id else "chat"
            return words("tools.note", id=approval.id, scope=scope)
        case ApprovalKind.TOOL:
            return words("tools.note_once", id=approval.id)
        case _:
            return words(_NOTES.get(approval.kind, "approval.note"), id=approval.id)


def _control_blocks(
    approval: Approval, words: TextCatalog, *, details: bool = False
) -> list[model.Block]:
    if approval.kind is ApprovalKind.QUESTION:
        controls = question_controls(approval, words)
        if details:
            return controls
        # A list has no room for forms.
        return [each for each in controls if isinstance(each, model.ButtonsBlock)]
    if form := form_of(approval):
        return _form_controls(approval, words, form, details=details)
    items = decision_buttons(approval, words)
    if details and approval.task_id:
        button = model.CardButton(words("button.details"), ShowTask(task_id=approval.task_id))
        items.append(button)
    return [model.ButtonsBlock(tuple(items))]


def decision_buttons(approval: Approval, words: TextCatalog) -> list[model.CardButton]:
    """One to approve it for each possible scope, and one to reject it."""
    yes = model.CardButton(
        _approve_label(approval, words),
        DecideApproval(approval_id=approval.id, approve=True),
        style=model.ButtonStyle.PRIMARY,
    )
    no = model.CardButton(
        words(f"approval.no.{approval.kind}"),
        DecideApproval(approval_id=approval.id, approve=False),
        style=model.ButtonStyle.DANGER,
    )
    items = [yes]
    if approval.kind is ApprovalKind.TOOL:
        items = tool_request_buttons(approval, words)
    return [*items, no]
