"""Converts errors to status codes and texts in the reader's language."""

from __future__ import annotations

import re

from bot.dashboard.request import DashboardRequest
from cards.catalog import TextCatalog
from cards.views.channels import code_text
from handlers.command_table import COMMANDS
from handlers.errors import ActionForbidden, BackendFailure, UserError
from handlers.memory import rejection_error
from handlers.middleware import explain_error
from handlers.ports_workers import MemoryRequestRejected
from handlers.workflows import refusal_error
from storage import errors
from storage.records.channels import FeishuCodeState, FeishuSetup
from storage.records.tasks import RerunRefused
from storage.records.workflows import WorkflowRefused

_SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_SLASH_WORD = re.compile(r"(?<![\w/.:])/([a-z\u4e00-\u9fff]+)(?![\w/])")

_STATUS_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.TooManyAttempts, 429),
    (errors.NotFound, 404),
    (errors.AmbiguousId, 409),
    (errors.WrongState, 409),
    (errors.ConcurrentUpdate, 409),
    (errors.LostLease, 409),
    (errors.NotAllowed, 403),
    (ActionForbidden, 403),
    (UserError, 422),
    (BackendFailure, 502),
    (errors.StoreUnavailable, 503),
)
_CODES_BY_KEY = {
    **dict.fromkeys(
        ("memory_unknown", "memory_not_yours", "workflow_unknown", "workflow_no_version"), 404
    ),
    **dict.fromkeys(
        ("memory_ambiguous", "memory_changed", "memory_wrong_state", "settings_changed"), 409
    ),
    **dict.fromkeys(("memory_forgotten", "workflow_exists"), 409),
    **dict.fromkeys(("workflow_changed", "workflow_conflict", "workflow_same_version"), 409),
    **dict.fromkeys(
        ("rerun_running", "rerun_no_way_on", "rerun_not_reached", "rerun_undone_in_old_plan"), 409
    ),
    "form_too_long": 413,
}


def as_told(error: Exception, words: TextCatalog) -> Exception:
    """Convert refusals of memory and workflows to errors with texts; other errors are unchanged."""
    match error:
        case MemoryRequestRejected():
            return rejection_error(error)
        case WorkflowRefused():
            return refusal_error(error, words)
        case RerunRefused(key=key, facts=facts):
            return UserError(f"rerun_{key}", **facts)
        case _:
            return error


def failure_texts(error: UserError, words: TextCatalog) -> tuple[str, str]:
    """The problem and the next step."""
    told = explain_error(error, words, "")
    return told.title, told.hint


def without_commands(text: str, words: TextCatalog) -> str:
    """Remove sentences that name chat commands: programs cannot send them."""
    kept = [each.strip() for each in _SENTENCES.split(text) if not _names_command(each)]
    return " ".join(filter(None, kept)) or words("api.see_document")


def _names_command(text: str) -> bool:
    return any(COMMANDS.find(word) is not None for word in _SLASH_WORD.findall(text))


def kind_of(error: Exception) -> str:
    """A short name of the error for programs."""
    if isinstance(error, UserError):
        return error.key
    found = next((kind for kind, _ in _STATUS_CODES if isinstance(error, kind)), None)
    name = found.__name__ if found else "Unexpected"
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in name).strip("-")


def status_of(error: Exception) -> int:
    if isinstance(error, UserError) and error.key in _CODES_BY_KEY:
        return _CODES_BY_KEY[error.key]
    return next((code for kind, code in _STATUS_CODES if isinstance(error, kind)), 500)


def tell_code(request: DashboardRequest, setup: FeishuSetup) -> tuple[str, ...]:
    """How a Feishu code was used or has expired; empty while it waits."""
    if setup.code is None or setup.code.state is FeishuCodeState.WAITING:
        return ()
    told = code_text(setup.code, request.words)
    if setup.code.error is None:
        return (told,)
    explained = explain_error(setup.code.error, request.words, request.deps.new_incident())
    return told, explained.title, explained.hint
