"""The model libraries' exceptions, translated once into ours."""

from __future__ import annotations

import re
from typing import TypeAlias

from pydantic_ai import exceptions as theirs

from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    BadAnswer,
    LimitReached,
    TooLong,
    Trouble,
    Usage,
)

Kind: TypeAlias = type[BackendDenied | BackendUnavailable | BadAnswer | LimitReached]

# What the Boss can do, where that is known closer than the kind of error tells.
HINTS: tuple[tuple[type[Exception], str], ...] = (
    (theirs.ModelQuotaExceededError, "backend.no_credit"),
    (theirs.ModelAuthenticationError, "backend.bad_key"),
    (theirs.ModelNotFoundError, "backend.no_model"),
)

MASK = "••••"
MAX_TEXT = 500
_SERVER_ERROR = 500
_TOO_MANY = 429
_OVERLOADED = 529
_PASSING = frozenset({408, 409, 425, 429})

_UNREADABLE = frozenset({400, 413, 422})
_TOO_LONG = re.compile(
    r"(?i)context.?(?:length|size|window|limit)|exceed_context|too many (?:input )?tokens|"
    r"(?:prompt|input|messages?|conversation) (?:is|are|was|were)? ?too long|token limit|"
    r"tokens allowed|range of input length|reduce (?:the length|your message)|超长"
)
"""How services that give it no code of its own say that they were told too much."""
_WINDOWS = (
    re.compile(r"> ?(\d{4,8})"),
    re.compile(r"(?i)limit (\d{4,8}), requested"),
    re.compile(r"\[\d+, ?(\d{4,8})\]"),
    re.compile(
        r"(?i)(?:context[ -]?(?:length|size|window|limit)|token limit|tokens allowed|max_model_len|"
        r"n_ctx)[^\d>]{0,30}(\d{4,8})"
    ),
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")

# The first that fits counts, so what is special stands before what is general.
TABLE: tuple[tuple[type[Exception], Kind], ...] = (
    (theirs.ModelContextWindowExceededError, TooLong),
    (theirs.ModelQuotaExceededError, BackendDenied),
    (theirs.ModelRateLimitError, BackendUnavailable),
    (theirs.ModelUnavailableError, BackendUnavailable),
    (theirs.ModelServerError, BackendUnavailable),
    (theirs.ModelConnectionError, BackendUnavailable),
    (theirs.ModelRequestTimeout, BackendUnavailable),
    (theirs.ConcurrencyLimitExceeded, BackendUnavailable),
    (theirs.SuspendedResponseExpired, BackendUnavailable),
    (theirs.UsageLimitExceeded, LimitReached),
    (theirs.RunTimedOut, LimitReached),
    (theirs.RunCancelled, BackendUnavailable),
    (theirs.UnexpectedModelBehavior, BadAnswer),
    (theirs.UserError, BackendDenied),
)


def is_theirs(error: Exception) -> bool:
    """An exception with which the library says how a run ended."""
    return isinstance(error, theirs.AgentRunError | theirs.UserError)


def translated(error: Exception, usage: Usage, key: str) -> BackendError:
    """Our exception for theirs. Its text has no key in it, whatever the service sent back."""
    kind = _kind(error)
    text = _text(error, key)
    if issubclass(kind, BackendUnavailable):
        retry_after = getattr(error, "retry_after", None)
        return BackendUnavailable(
            text, usage=usage, retry_after=retry_after, trouble=_trouble(error)
        )
    if issubclass(kind, TooLong):
        return TooLong(text, usage=usage, window=_window(error))
    hint = next((hint for known, hint in HINTS if isinstance(error, known)), "")
    return kind(text, usage=usage, hint=hint)


def _kind(error: Exception) -> Kind:
    for known, kind in TABLE:
        if isinstance(error, known):
            return kind
    if isinstance(error, theirs.ModelHTTPError):
        status = error.status_code
        if status in _UNREADABLE and _TOO_LONG.search(_said(error.body) or str(error.body)):
            return TooLong
        passing = status >= _SERVER_ERROR or status in _PASSING
        return BackendUnavailable if passing else BackendDenied
    if isinstance(error, theirs.ModelRequestRejectedError):
        return BackendDenied
    if isinstance(error, theirs.ModelAPIError) and error.in_stream:
        return BackendUnavailable
    # What a library stumbled over without a word of its own: an answer it could not read.
    return BadAnswer


def _window(error: Exception) -> int:
    """How many tokens the model can take, by the service's own words; 0 where it does not say."""
    told = str(error.body) if isinstance(error, theirs.ModelAPIError) else str(error)
    plain = _THOUSANDS.sub("", told)
    found = next(filter(None, (each.search(plain) for each in _WINDOWS)), None)
    return int(found[1]) if found else 0


def _trouble(error: Exception) -> Trouble:
    status = error.status_code if isinstance(error, theirs.ModelHTTPError) else 0
    if isinstance(error, theirs.ModelRateLimitError) or status == _TOO_MANY:
        return Trouble.RATE_LIMITED
    if isinstance(error, theirs.ModelOverloadedError) or status == _OVERLOADED:
        return Trouble.OVERLOADED
    return Trouble.BROKEN if status == _SERVER_ERROR else Trouble.AWAY


def _text(error: Exception, key: str) -> str:
    if isinstance(error, theirs.ModelAuthenticationError):
        # Services quote the key here, some of it starred out and some not.
        return "the service refused the key"
    text = str(error)
    if isinstance(error, theirs.ModelAPIError):
        text = _said(error.body) or text
    if isinstance(error, theirs.ModelHTTPError):
        text = f"{error.status_code}: {text}"
    text = text.replace(key, MASK) if key else text
    return f"{type(error).__name__}: {text[:MAX_TEXT]}"


def _said(body: object) -> str:
    """The service's own message, out of either provider's form of error."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return str(inner["message"])
    return ""
