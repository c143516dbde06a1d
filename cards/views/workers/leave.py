"""What a worker wants leave for, or wants to know: the parts of such a request's card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cards import formats
from cards.actions import Answer, Decide
from cards.model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    FieldKind,
    Form,
    FormField,
    Note,
    Text,
)
from cards.reasons import reason_told
from cards.words import Words
from storage.records.approvals import Approval

_WHY = 200
_PATTERN = 300
_LABEL = 40
_OPTION = 200


def tool_notes(approval: Approval, words: Words) -> list[Block]:
    """Why it is asked, and what leave for more than this once would cover."""
    blocks: list[Block] = []
    if why := str(approval.payload.get("why", "")):
        told = formats.verbatim(reason_told(why, words), _WHY)
        blocks.append(Note(markdown=words("tools.why", why=told)))
    if pattern := _pattern(approval.payload):
        tool = formats.verbatim(str(approval.payload.get("tool", "")), _LABEL)
        covered = formats.verbatim(pattern, _PATTERN)
        blocks.append(Note(markdown=words("tools.covers", tool=tool, pattern=covered)))
    return blocks


def tool_buttons(approval: Approval, words: Words) -> list[Button]:
    """What can be allowed for no more than once is offered once."""
    scopes = [""]
    if _pattern(approval.payload):
        scopes += ["task" if approval.task_id else "chat", "always"]
    return [
        Button(
            label=words(f"tools.yes.{scope or 'once'}"),
            action=Decide(approval_id=approval.id, approve=True, scope=scope),
            style=ButtonStyle.PLAIN if scope else ButtonStyle.PRIMARY,
        )
        for scope in scopes
    ]


def question_blocks(approval: Approval) -> list[Block]:
    """The options, by number: a reply may say the number, or anything else."""
    rows = [
        f"{n}. {formats.verbatim(option, _OPTION)}"
        for n, option in enumerate(options_of(approval), start=1)
    ]
    return [Text(markdown="\n".join(rows))] if rows else []


def question_controls(approval: Approval, words: Words) -> list[Block]:
    """A button for each option, and room for an answer of one's own."""
    buttons = tuple(
        Button(
            label=formats.line(f"{n}. {option}", _LABEL),
            action=Answer(question_id=approval.id, value=option),
        )
        for n, option in enumerate(options_of(approval), start=1)
    )
    name = FormField(name="text", label=words("tools.answer"), field=FieldKind.PARAGRAPH)
    form = Form(fields=(name,), submit=words("tools.send"), action=Answer(question_id=approval.id))
    return [*([Buttons(items=buttons)] if buttons else []), form]


def options_of(approval: Approval) -> Sequence[str]:
    return [str(each) for each in approval.payload.get("options") or ()]


def _pattern(payload: Mapping[str, Any]) -> str:
    return str(payload.get("pattern", ""))
