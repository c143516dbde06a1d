"""Translates exceptions of the model libraries into backend errors."""

from __future__ import annotations

import re
from typing import TypeAlias

from pydantic import ValidationError
from pydantic_ai import exceptions as theirs

from bot.engine.llm.answer_schemas import find_faults
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    ContextTooLong,
    InvalidAnswer,
    LimitKind,
    OutageKind,
    RunLimitReached,
    TokenUsage,
)


class AnswerRepeatsItself(theirs.UnexpectedModelBehavior):
    """The model went on with the same words without end, and was stopped."""


class ModelSilent(theirs.AgentRunError):
    """The model said nothing for too long, over a connection that stayed open."""


ErrorType: TypeAlias = type[BackendDenied | BackendUnavailable | InvalidAnswer | RunLimitReached]

# More specific hints than those of the error classes.
HINT_BY_ERROR: tuple[tuple[type[Exception], str], ...] = (
    (AnswerRepeatsItself, "backend.repeats_words"),
    (theirs.ModelQuotaExceededError, "backend.no_credit"),
    (theirs.ModelAuthenticationError, "backend.bad_key"),
    (theirs.ModelNotFoundError, "backend.no_model"),
    (theirs.RunTimedOut, LimitKind.SECONDS.hint),
)

REDACTED = "••••"
MAX_TEXT = 500
_SERVER_ERROR = 500
_TOO_MANY = 429
_OVERLOADED = 529
_TRANSIENT = frozenset({408, 409, 425, 429})

_BAD_REQUEST = frozenset({400, 413, 422})
_TOO_LONG = re.compile(
    r"(?i)context.?(?:length|size|window|limit)|exceed_context|too many (?:input )?tokens|"
    r"(?:prompt|input|messages?|conversation) (?:is|are|was|were)? ?too long|token limit|"
    r"tokens allowed|range of input length|reduce (?:the length|your message)|超长"
)
"""Matches context overflow errors of services that have no error code for them."""
_WINDOW_PATTERNS = (
    re.compile(r"> ?(\d{4,8})"),
    re.compile(r"(?i)limit (\d{4,8}), requested"),
    re.compile(r"\[\d+, ?(\d{4,8})\]"),
    re.compile(
        r"(?i)(?:context[ -]?(?:length|size|window|limit)|token limit|tokens allowed|max_model_len|"
        r"n_ctx)[^\d>]{0,30}(\d{4,8})"
    ),
)
_THOUSANDS_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3})")

# Order matters: specific before general.
ERROR_TABLE: tuple[tuple[type[Exception], ErrorType], ...] = (
    (theirs.ModelContextWindowExceededError, ContextTooLong),
    (theirs.ModelQuotaExceededError, BackendDenied),
    (theirs.ModelRateLimitError, BackendUnavailable),
    (theirs.ModelUnavailableError, BackendUnavailable),
    (theirs.ModelServerError, BackendUnavailable),
    (theirs.ModelConnectionError, BackendUnavailable),
    (theirs.ModelRequestTimeout, BackendUnavailable),
    (ModelSilent, BackendUnavailable),
    (theirs.ConcurrencyLimitExceeded, BackendUnavailable),
    (theirs.SuspendedResponseExpired, BackendUnavailable),
    (theirs.UsageLimitExceeded, RunLimitReached),
    (theirs.RunTimedOut, RunLimitReached),
    (theirs.RunCancelled, BackendUnavailable),
    (theirs.UnexpectedModelBehavior, InvalidAnswer),
    (theirs.UserError, BackendDenied),
)


def is_library_error(error: Exception) -> bool:
    """Return True for exceptions with which the library ends a run."""
    return isinstance(error, theirs.AgentRunError | theirs.UserError)


def translate_error(error: Exception, usage: TokenUsage, key: str) -> BackendError:
    """Return our exception; its texts never contain the key."""
    translated = _translate(error, usage, key)
    translated.answer = _service_answer(error, key)
    return translated


def _translate(error: Exception, usage: TokenUsage, key: str) -> BackendError:
    kind = _error_type(error)
    text = _error_text(error, key)
    if issubclass(kind, BackendUnavailable):
        retry_after = getattr(error, "retry_after", None)
        return BackendUnavailable(
            text, usage=usage, retry_after=retry_after, outage=_outage_kind(error)
        )
    if issubclass(kind, ContextTooLong):
        return ContextTooLong(text, usage=usage, window=_context_window(error))
    hint = next((hint for known, hint in HINT_BY_ERROR if isinstance(error, known)), "")
    if kind is InvalidAnswer:
        return InvalidAnswer(text, usage=usage, hint=hint, faults=_answer_faults(error))
    if isinstance(error, theirs.UsageLimitExceeded):
        # Only the message says which one.
        hint = (LimitKind.TOKENS if "output_tokens_limit" in str(error) else LimitKind.TURNS).hint
    return kind(text, usage=usage, hint=hint)


def _error_type(error: Exception) -> ErrorType:
    for known, kind in ERROR_TABLE:
        if isinstance(error, known):
            return kind
    if isinstance(error, theirs.ModelHTTPError):
        status = error.status_code
        if status in _BAD_REQUEST and _TOO_LONG.search(
            _service_message(error.body) or str(error.body)
        ):
            return ContextTooLong
        passing = status >= _SERVER_ERROR or status in _TRANSIENT
        return BackendUnavailable if passing else BackendDenied
    if isinstance(error, theirs.ModelRequestRejectedError):
        return BackendDenied
    if isinstance(error, theirs.ModelAPIError) and error.in_stream:
        return BackendUnavailable
    # Any other library error means a response that it couldn't parse.
    return InvalidAnswer


def _answer_faults(error: Exception) -> str:
    """Describe the faults of the last answer, if it came but did not have the required form."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ValidationError):
            return find_faults(cause)
        cause = cause.__cause__
    return ""


def _context_window(error: Exception) -> int:
    """Return the window stated in the error message, in tokens; 0 if none."""
    message = str(error.body) if isinstance(error, theirs.ModelAPIError) else str(error)
    plain = _THOUSANDS_SEPARATOR.sub("", message)
    found = next(filter(None, (each.search(plain) for each in _WINDOW_PATTERNS)), None)
    return int(found[1]) if found else 0


def _outage_kind(error: Exception) -> OutageKind:
    status = error.status_code if isinstance(error, theirs.ModelHTTPError) else 0
    if isinstance(error, theirs.ModelRateLimitError) or status == _TOO_MANY:
        return OutageKind.RATE_LIMITED
    if isinstance(error, theirs.ModelOverloadedError) or status == _OVERLOADED:
        return OutageKind.OVERLOADED
    return OutageKind.SERVER_ERROR if status == _SERVER_ERROR else OutageKind.UNREACHABLE


def _error_text(error: Exception, key: str) -> str:
    if isinstance(error, theirs.ModelAuthenticationError):
        # Services quote the key here, not always fully masked.
        return "the service refused the key"
    text = str(error)
    if isinstance(error, theirs.ModelAPIError):
        text = _service_message(error.body) or text
    if isinstance(error, theirs.ModelHTTPError):
        text = f"{error.status_code}: {text}"
    text = text.replace(key, REDACTED) if key else text
    return f"{type(error).__name__}: {text[:MAX_TEXT]}"


def _service_answer(error: Exception, key: str) -> str:
    if not isinstance(error, theirs.ModelHTTPError):
        return ""
    is_about_key = isinstance(error, theirs.ModelAuthenticationError)
    message = "" if is_about_key else _service_message(error.body)
    text = f"HTTP {error.status_code}" + (f": {message}" if message else "")
    return (text.replace(key, REDACTED) if key else text)[:MAX_TEXT]


def _service_message(body: object) -> str:
    """Return the message from either provider's error format."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return str(inner["message"])
    return ""
