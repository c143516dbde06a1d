"""From exception to card: the one place that decides what a person is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from cards.model import Card, Tone
from cards.views.errors import error_card
from cards.words import Words
from handlers.ports import BackendFailure, Forbidden
from storage.errors import (
    AmbiguousId,
    HomeBusy,
    HomeUnusable,
    LostLease,
    NotAllowed,
    NotFound,
    Overtaken,
    StorageError,
    StoreTooNew,
    StoreUnavailable,
    TooManyTries,
    WrongState,
)

log = logging.getLogger(__name__)


class UserError(Exception):
    """A refusal the person can act on: catalogue texts `error.<key>.title`, which says what is
    wrong, and `error.<key>.hint`, which says what to do next."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


class Usage(UserError):
    """A command was not given what it needs."""

    def __init__(self, command: str) -> None:
        super().__init__("usage", command=command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What happened, and what to do next."""

    title: str
    hint: str


def card_for(error: Exception, words: Words, incident: str) -> Card:
    return card_of(error, explain(error, words, incident))


def card_of(error: Exception, told: Explained) -> Card:
    slip = isinstance(error, UserError | NotFound | AmbiguousId | WrongState)
    return error_card(told.title, told.hint, tone=Tone.WARN if slip else Tone.BAD)


def explain(error: Exception, words: Words, incident: str) -> Explained:
    """The unexpected is logged under the incident id, with its traceback."""
    match error:
        case Usage(facts={"command": command}):
            facts = {"command": command, "usage": words(f"help.{command}.usage")}
            return _told(words, "usage", facts)
        case UserError(key=key, facts=facts):
            return _told(words, key, facts)
        case Forbidden() | NotAllowed():
            return _told(words, "forbidden")
        case BackendFailure():
            return _backend(error, words, incident)
        case StorageError():
            return _storage(error, words, incident)
        case _:
            return _unexpected(error, words, incident)


def _storage(  # noqa: C901, PLR0911 - one answer for each kind of storage error
    error: StorageError, words: Words, incident: str
) -> Explained:
    match error:
        case TooManyTries():
            return _told(words, "too_many_tries")
        case NotFound(noun=noun, key=key):
            return _told(words, _known(words, "not_found", noun), {"key": key})
        case AmbiguousId(prefix=prefix, candidates=candidates):
            listed = " · ".join(f"`{each}`" for each in candidates)
            return _told(words, "ambiguous", {"prefix": prefix, "candidates": listed})
        case WrongState(noun=noun, key=key, state=state):
            facts = {"key": key, "state": _state(words, noun, state)}
            return _told(words, _known(words, "wrong_state", noun), facts)
        case LostLease(task_id=task_id):
            return _told(words, "lost_lease", {"key": task_id})
        case Overtaken():
            return _told(words, "overtaken")
        case HomeUnusable(path=path, reason=reason):
            return _told(words, "home_unusable", {"path": path, "reason": reason})
        case HomeBusy(path=path, pid=pid):
            return _told(words, "home_busy", {"path": path, "pid": pid})
        case StoreTooNew(revision=revision):
            return _told(words, "store_too_new", {"revision": revision})
        case StoreUnavailable():
            log.error("store unavailable, incident=%s", incident, exc_info=error)
            return _told(words, "store_unavailable", {"incident": incident})
        case _:
            return _unexpected(error, words, incident)


def _backend(error: BackendFailure, words: Words, incident: str) -> Explained:
    known = words.has(error.hint)
    # What has a hint is nobody's fault here: where in the code it came up helps no one.
    trace = None if known else error
    log.warning("model failed, incident=%s, hint=%s", incident, error.hint, exc_info=trace)
    told = _told(words, "backend", {"incident": incident})
    if not known:
        return told
    try:
        return Explained(title=told.title, hint=words(error.hint, **error.facts))
    except KeyError:
        # The hint wants a fact that whoever raised it did not know.
        return told


def _unexpected(error: Exception, words: Words, incident: str) -> Explained:
    log.error("unexpected failure, incident=%s", incident, exc_info=error)
    return _told(words, "unexpected", {"incident": incident})


def _told(words: Words, key: str, facts: Mapping[str, object] | None = None) -> Explained:
    return Explained(
        title=words(f"error.{key}.title", **(facts or {})),
        hint=words(f"error.{key}.hint", **(facts or {})),
    )


def _known(words: Words, kind: str, noun: str) -> str:
    key = f"{kind}.{noun}"
    return key if words.has(f"error.{key}.title") else f"{kind}.thing"


def _state(words: Words, noun: str, state: str) -> str:
    key = f"status.{state}" if noun == "task" else f"approval.state.{state}"
    return words(key) if words.has(key) else state
