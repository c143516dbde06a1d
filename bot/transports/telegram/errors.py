"""Telegram's refusals in our words: one table for the whole channel."""

from __future__ import annotations

from enum import Enum

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    RetryAfter,
    TelegramError,
)

from bot.transports.base import (
    Ambiguous,
    DeliveryError,
    RateLimited,
    Refused,
    TooLarge,
    Unavailable,
    Unreachable,
)

# The request never left this machine, or was never taken: it certainly did not arrive.
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class Trouble(Enum):
    """What a 400 is about; the words are matched in lower case anywhere in the description."""

    NOT_MODIFIED = ("message is not modified",)
    EDIT_GONE = ("message to edit not found", "message can't be edited", "message_id_invalid")
    REPLY_GONE = ("message to be replied not found", "reply message not found", "replied message")
    THREAD_GONE = ("message thread not found", "topic_deleted", "topic_closed")
    CHAT_GONE = (
        "chat not found",
        "peer_id_invalid",
        "have no rights",
        "not enough rights",
        "chat_write_forbidden",
        "need administrator rights",
        "group chat was deactivated",
        "chat_restricted",
        "channel_private",
        "user is deactivated",
    )
    TOO_BIG = ("file is too big",)
    PICTURE = ("image_process_failed", "photo_invalid", "too big for a photo", "photo_save_file")
    KEYBOARD = ("button_", "inline keyboard", "reply markup", "reply_markup")
    MARKS = ("can't parse", "entit")
    DRAFT = ("textdraft",)
    QUERY_OLD = ("query is too old", "query_id_invalid")
    OTHER = ()


def trouble(error: BadRequest) -> Trouble:
    text = str(error).lower()
    return next(
        (kind for kind in Trouble if any(words in text for words in kind.value)), Trouble.OTHER
    )


def translate(error: TelegramError, *, repeatable: bool = False) -> DeliveryError:
    """The error as the delivery loop understands it.

    `repeatable`: doing it twice does no harm (an edit, a download), so not knowing whether it
    arrived is no reason to hesitate.
    """
    match error:
        case RetryAfter():
            return RateLimited(seconds(error))
        case Forbidden() | ChatMigrated():
            return Unreachable(_words(error))
        case InvalidToken() | Conflict():
            return Unavailable(type(error).__name__)
        case BadRequest():
            return _refusal(error)
    return _network_trouble(error, repeatable)


def seconds(error: RetryAfter) -> float:
    wait = error.retry_after
    return float(wait) if isinstance(wait, int | float) else wait.total_seconds()


def reason(error: TelegramError) -> str:
    """The kind of failure in one word; addresses and tokens never appear in it."""
    cause = error.__cause__
    return type(cause if isinstance(cause, httpx.HTTPError) else error).__name__


def _network_trouble(error: TelegramError, repeatable: bool) -> DeliveryError:
    cause = error.__cause__
    if "too large" in str(error).lower():
        return Refused(_words(error))
    answered = not isinstance(cause, httpx.HTTPError)  # and it was a 5xx
    if repeatable or answered or isinstance(cause, _NEVER_SENT):
        return Unavailable(reason(error))
    return Ambiguous(reason(error))


def _refusal(error: BadRequest) -> DeliveryError:
    match trouble(error):
        case Trouble.CHAT_GONE:
            return Unreachable(_words(error))
        case Trouble.TOO_BIG:
            return TooLarge(_words(error))
        case _:
            return Refused(_words(error))


def _words(error: TelegramError) -> str:
    return str(error)[:200]
