"""Defines the middleware that every incoming event passes before it is handled, and turns
exceptions into error messages for people."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import TypeAlias

from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.model import Card, CardTone, error_card, notice_card
from handlers.errors import ActionForbidden, BackendFailure, UsageError, UserError
from handlers.language import guess_language
from handlers.ports import InterruptedMessage, PeoplePort
from handlers.request import Reply
from storage import errors
from storage.records.messages import InboxRow, IncomingMessage, IncomingPress
from storage.records.people import Language, Person
from storage.records.tasks import RerunRefused

log = logging.getLogger(__name__)

_LATE = timedelta(hours=1)

MAX_TOAST = 180
"""Characters of a toast on the strictest platform, with a margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundEvent:
    """One stored event being handled. `person` is None until identified, and for strangers."""

    row: InboxRow
    files: tuple[str, ...]
    now: datetime
    words: TextCatalog
    person: Person | None = None
    interrupted: tuple[InterruptedMessage, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.row.incoming.text if isinstance(self.row.incoming, IncomingMessage) else ""

    @property
    def sender_key(self) -> str:
        """The sender, unique across channels."""
        return f"{self.row.incoming.place.channel}:{self.row.incoming.sender.external_id}"

    @property
    def is_press(self) -> bool:
        return isinstance(self.row.incoming, IncomingPress)

    @property
    def heard_at(self) -> datetime:
        """When it came, or was sent if it came late."""
        said, received_at = self.row.incoming, self.row.received_at
        late = isinstance(said, IncomingMessage) and received_at - said.sent_at > _LATE
        return said.sent_at if late and isinstance(said, IncomingMessage) else received_at


def origin_of(row: InboxRow) -> str:
    """Identifies a message across its edits."""
    message_id = row.incoming.message_id if isinstance(row.incoming, IncomingMessage) else ""
    return f"message:{row.chat_id}:{message_id}" if message_id else row.source


NextHandler: TypeAlias = Callable[[InboundEvent], Awaitable[Reply]]
Middleware: TypeAlias = Callable[[InboundEvent, NextHandler], Awaitable[Reply]]


def chain_middlewares(middlewares: Sequence[Middleware], last: NextHandler) -> NextHandler:
    """One callable that runs all middlewares, the first outermost."""

    def wrap(call_next: NextHandler, middleware: Middleware) -> NextHandler:
        return lambda arrival: middleware(arrival, call_next)

    return reduce(wrap, reversed(middlewares), last)


def refusal_reply(arrival: InboundEvent, title: str, hint: str) -> Reply:
    """A refusal as a card, or as a toast for a press."""
    if arrival.is_press:
        # Toasts are plain text.
        text = " · ".join(filter(None, (title, hint))).replace("`", "")
        return Reply(toast=formats.single_line(text, MAX_TOAST), good=False)
    return Reply(card=notice_card(title, hint), good=False, data={"error": title, "hint": hint})


def error_boundary(new_incident: Callable[[], str]) -> Middleware:
    """Turn any failure further in into a card or a toast."""

    async def boundary(arrival: InboundEvent, call_next: NextHandler) -> Reply:
        try:
            return await call_next(arrival)
        except Exception as error:  # noqa: BLE001 - one message's failure must end with an answer to that message
            explanation = explain_error(error, arrival.words, new_incident())
            if arrival.is_press:
                return refusal_reply(arrival, explanation.title, explanation.hint)
            data = {"error": explanation.title, "hint": explanation.hint}
            return Reply(card=explanation_card(error, explanation), good=False, data=data)

    return boundary


def identify_sender(
    people: PeoplePort, fallback: Language, fixed: Language | None = None
) -> Middleware:
    """Set the sender, their role and their language: `fixed`, else the person's own. The language
    is guessed from their messages once and then stored."""

    async def recogniser(arrival: InboundEvent, call_next: NextHandler) -> Reply:
        incoming = arrival.row.incoming
        person = await people.find_by_account(incoming.place.channel, incoming.sender.external_id)
        guess = guess_language(arrival.text)
        if person and person.language is None and guess and fixed is None:
            await people.set_language(person, guess)
            person = replace(person, language=guess)
        language = (
            fixed
            or (person.language if person else None)
            or guess
            or Language.from_tag(incoming.sender.language)
            or fallback
        )
        return await call_next(replace(arrival, person=person, words=catalog_for(language)))

    return recogniser


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorExplanation:
    """The problem and the next step."""

    title: str
    hint: str


def explanation_card(error: Exception, explanation: ErrorExplanation) -> Card:
    slip = isinstance(
        error,
        UserError | RerunRefused | errors.NotFound | errors.AmbiguousId | errors.WrongState,
    )
    return error_card(
        explanation.title, explanation.hint, tone=CardTone.WARN if slip else CardTone.BAD
    )


def explain_error(  # noqa: PLR0911 - one answer for each kind of error
    error: Exception, words: TextCatalog, incident: str
) -> ErrorExplanation:
    """Explain an error. Unexpected ones are logged with traceback under `incident`."""
    match error:
        case UsageError(facts={"command": command}):
            facts = {"command": command, "usage": words(f"help.{command}.usage")}
            return _catalog_explanation(words, "usage", facts)
        case UserError(key=key, facts=facts):
            return _catalog_explanation(words, key, facts)
        case ActionForbidden() | errors.NotAllowed():
            return _catalog_explanation(words, "forbidden")
        case RerunRefused(key=key, facts=facts):
            return _catalog_explanation(words, f"rerun_{key}", facts)
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
        case errors.StoreTooOld():
            return _catalog_explanation(words, "store_too_old")
        case (
            errors.BackupFailed()
            | errors.RestoreRefused()
            | errors.BadBackup()
            | errors.MoveRefused()
        ):
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
    prefix = {"task": "status.", "schedule": "schedule.state_"}.get(noun, "approval.state.")
    key = f"{prefix}{state}"
    return words(key) if words.has(key) else state
