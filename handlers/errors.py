"""Turns exceptions into error messages for people."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from cards.catalog import TextCatalog
from cards.model import Card, CardTone, error_card
from handlers.ports import ActionForbidden, BackendFailure
from storage import errors

log = logging.getLogger(__name__)


class UserError(Exception):
    """A refusal the person can act on, with the catalogue texts `error.<key>.title` (the problem)
    and `error.<key>.hint` (the next step)."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


class UsageError(UserError):
    """A command lacks an argument."""

    def __init__(self, command: str) -> None:
        super().__init__("usage", command=command)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorExplanation:
    """The problem and the next step."""

    title: str
    hint: str


def explanation_card(error: Exception, explanation: ErrorExplanation) -> Card:
    slip = isinstance(error, UserError | errors.NotFound | errors.AmbiguousId | errors.WrongState)
    return error_card(
        explanation.title, explanation.hint, tone=CardTone.WARN if slip else CardTone.BAD
    )


def explain_error(error: Exception, words: TextCatalog, incident: str) -> ErrorExplanation:
    """Explain an error. Unexpected ones are logged with traceback under `incident`."""
    match error:
        case UsageError(facts={"command": command}):
            facts = {"command": command, "usage": words(f"help.{command}.usage")}
            return _catalog_explanation(words, "usage", facts)
        case UserError(key=key, facts=facts):
            return _catalog_explanation(words, key, facts)
        case ActionForbidden() | errors.NotAllowed():
            return _catalog_explanation(words, "forbidden")
        case BackendFailure():
            return _explain_backend(error, words, incident)
        case errors.StorageError():
            return _explain_storage(error, words, incident)
        case _:
            return _explain_unexpected(error, words, incident)


def _explain_storage(  # noqa: C901, PLR0911, PLR0912 - one answer for each kind of storage error
    error: errors.StorageError, words: TextCatalog, incident: str
) -> ErrorExplanation:
    match error:
        case errors.TooManyAttempts():
            return _catalog_explanation(words, "too_many_tries")
        case errors.NotFound(noun=noun, key=key):
            return _catalog_explanation(words, _known_key(words, "not_found", noun), {"key": key})
        case errors.AmbiguousId(prefix=prefix, candidates=candidates):
            names = " · ".join(f"`{each}`" for each in candidates)
            return _catalog_explanation(words, "ambiguous", {"prefix": prefix, "candidates": names})
        case errors.WrongState(noun=noun, key=key, state=state):
            facts = {"key": key, "state": _state_label(words, noun, state)}
            return _catalog_explanation(words, _known_key(words, "wrong_state", noun), facts)
        case errors.LostLease(task_id=task_id):
            return _catalog_explanation(words, "lost_lease", {"key": task_id})
        case errors.ConcurrentUpdate():
            return _catalog_explanation(words, "overtaken")
        case errors.DataDirectoryUnusable(path=path, reason=reason):
            return _catalog_explanation(words, "home_unusable", {"path": path, "reason": reason})
        case errors.DataDirectoryInUse(path=path, pid=pid):
            return _catalog_explanation(words, "home_busy", {"path": path, "pid": pid})
        case errors.StoreTooNew(revision=revision):
            return _catalog_explanation(words, "store_too_new", {"revision": revision})
        case errors.StoreMismatch(expected=expected, found=found):
            return _catalog_explanation(
                words, "store_mismatch", {"expected": expected, "found": found}
            )
        case errors.BackupFailed() | errors.RestoreRefused() | errors.BadBackup():
            return _catalog_explanation(words, "backup", {"reason": str(error)})
        case errors.StoreUnavailable():
            log.error("store unavailable, incident=%s", incident, exc_info=error)
            return _catalog_explanation(words, "store_unavailable", {"incident": incident})
        case _:
            return _explain_unexpected(error, words, incident)


def _explain_backend(error: BackendFailure, words: TextCatalog, incident: str) -> ErrorExplanation:
    has_hint = words.has(error.hint)
    # Errors with a hint are no bugs, so their traceback helps nobody.
    trace = None if has_hint else error
    log.warning("model failed, incident=%s, hint=%s", incident, error.hint, exc_info=trace)
    explanation = _catalog_explanation(words, "backend", {"incident": incident})
    if not has_hint:
        return explanation
    try:
        return ErrorExplanation(title=explanation.title, hint=words(error.hint, **error.facts))
    except KeyError:
        # The hint needs a fact that the error does not carry.
        return explanation


def _explain_unexpected(error: Exception, words: TextCatalog, incident: str) -> ErrorExplanation:
    log.error("unexpected failure, incident=%s", incident, exc_info=error)
    return _catalog_explanation(words, "unexpected", {"incident": incident})


def _catalog_explanation(
    words: TextCatalog, key: str, facts: Mapping[str, object] | None = None
) -> ErrorExplanation:
    return ErrorExplanation(
        title=words(f"error.{key}.title", **(facts or {})),
        hint=words(f"error.{key}.hint", **(facts or {})),
    )


def _known_key(words: TextCatalog, kind: str, noun: str) -> str:
    key = f"{kind}.{noun}"
    return key if words.has(f"error.{key}.title") else f"{kind}.thing"


def _state_label(words: TextCatalog, noun: str, state: str) -> str:
    key = f"status.{state}" if noun == "task" else f"approval.state.{state}"
    return words(key) if words.has(key) else state
