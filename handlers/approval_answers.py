"""Reads what people type or fill in to decide a request: scopes, answers and forms."""

from __future__ import annotations

from collections.abc import Mapping

from cards.actions import SubmitApprovalForm
from cards.catalog import TextCatalog
from cards.model import FormBlock
from cards.views.approvals import form_of, question_options
from cards.views.workflows import input_field
from handlers.errors import UserError
from handlers.parsing import parse_form_reply
from handlers.request import Request
from handlers.workflow_inputs import parse_inputs
from handlers.workflows import input_problems
from storage.records.approvals import Approval, ApprovalKind
from storage.records.workflows import WorkflowInputValue

ALWAYS_SCOPE = "always"
_SCOPES = {
    "task": ("task", "任务", "本任务"),
    "chat": ("chat", "会话", "本会话"),
    ALWAYS_SCOPE: (ALWAYS_SCOPE, "始终", "总是"),
}


def parse_scope(approval: Approval, word: str) -> str:
    """How far an approval of a tool call reaches. Raises for an unknown word, which must not count
    as an approval."""
    if not word:
        return ""
    scope = next((each for each, words in _SCOPES.items() if word.casefold() in words), "")
    if approval.kind is not ApprovalKind.TOOL or not scope:
        raise UserError("approve_how", word=word[:60])
    return scope


def resolve_answer(approval: Approval, text: str) -> str:
    """An option by its number, or the text itself."""
    options = question_options(approval)
    number = text.strip().rstrip(".)）。")
    if number.isdecimal() and 0 < int(number) <= len(options):
        return options[int(number) - 1]
    return text.strip()


def is_meant_for_form(approval: Approval, text: str, words: TextCatalog) -> bool:
    """Whether a reply to the request's card names a field of its form, or gives all it needs."""
    if not (fields := form_of(approval)):
        return False
    action = SubmitApprovalForm(approval_id=approval.id)
    block = FormBlock(
        fields=tuple(input_field(each, words) for each in fields), submit="", action=action
    )
    given = parse_form_reply(block, text)
    names_one = any(value != text.strip() for value in given.values())
    return names_one or all(each.name in given for each in fields if each.must_be_given)


def parse_form(
    request: Request, approval: Approval, texts: Mapping[str, str], free: str = ""
) -> Mapping[str, WorkflowInputValue]:
    """The values of the request's form, from texts by name and, for the first text field, one
    without. Raises UserError with all that is wrong."""
    fields = form_of(approval)
    parsed = parse_inputs(fields, texts, free)
    if parsed.is_complete:
        return parsed.values
    missing = ", ".join(each.label for each in parsed.missing)
    lacking = (request.words("approval.form_missing", names=missing),) if missing else ()
    problems = " · ".join((*input_problems(request, fields, parsed), *lacking))
    names = " ".join(f"{each.name}=…" for each in fields if each.must_be_given)
    line = f"/approve {approval.id} {names}".strip()
    raise UserError("form_refused", problems=problems, line=line)
