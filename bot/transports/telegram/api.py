"""Telegram Bot API client: connection pools, error mapping, token redaction in logs, and the
command menu."""

from __future__ import annotations

import logging
import os
import re
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum

import httpx
from telegram import Bot, BotCommand, MenuButtonCommands
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    RetryAfter,
    TelegramError,
)
from telegram.request import HTTPXRequest

from bot.config.server_dates import note_response
from bot.config.tls import context_for
from bot.transports import ports
from storage.records.people import Language

# Errors that prove that the request was never sent.
_NOT_SENT_ERRORS = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class TelegramErrorKind(Enum):
    """Kinds of 400 errors, recognised by lower-case words in the description."""

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


def classify_bad_request(error: BadRequest) -> TelegramErrorKind:
    text = str(error).lower()
    return next(
        (kind for kind in TelegramErrorKind if any(words in text for words in kind.value)),
        TelegramErrorKind.OTHER,
    )


def translate_error(error: TelegramError, *, repeatable: bool = False) -> ports.DeliveryError:
    """Map to a DeliveryError. `repeatable` means that repeating the call is harmless (an edit, a
    download), so an unknown result can be retried."""
    match error:
        case RetryAfter():
            return ports.DeliveryRateLimited(retry_after_seconds(error))
        case Forbidden() | ChatMigrated():
            return ports.ChatUnreachable(_error_text(error))
        case InvalidToken() | Conflict():
            return ports.PlatformUnavailable(type(error).__name__)
        case BadRequest():
            return _translate_bad_request(error)
    return _translate_network_error(error, repeatable)


def retry_after_seconds(error: RetryAfter) -> float:
    wait = error.retry_after
    return float(wait) if isinstance(wait, int | float) else wait.total_seconds()


def describe_failure(error: TelegramError) -> str:
    """The error's type, without addresses and tokens."""
    cause = error.__cause__
    return type(cause if isinstance(cause, httpx.HTTPError) else error).__name__


def _translate_network_error(error: TelegramError, repeatable: bool) -> ports.DeliveryError:
    cause = error.__cause__
    if "too large" in str(error).lower():
        return ports.ContentRefused(_error_text(error))
    answered = not isinstance(cause, httpx.HTTPError)  # with a 5xx status
    if repeatable or answered or isinstance(cause, _NOT_SENT_ERRORS):
        return ports.PlatformUnavailable(describe_failure(error))
    return ports.DeliveryUncertain(describe_failure(error))


def _translate_bad_request(error: BadRequest) -> ports.DeliveryError:
    match classify_bad_request(error):
        case TelegramErrorKind.CHAT_GONE:
            return ports.ChatUnreachable(_error_text(error))
        case TelegramErrorKind.TOO_BIG:
            return ports.FileTooLarge(_error_text(error))
        case _:
            return ports.ContentRefused(_error_text(error))


def _error_text(error: TelegramError) -> str:
    return str(error)[:200]


PUBLIC_API = "https://api.telegram.org"

_LOGGERS_WITH_URLS = ("httpx", "telegram.Bot")
_SENDING_POOL_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramClient:
    """`polling` is used for getUpdates only, so that long polling never blocks sending."""

    bot: Bot
    polling: HTTPXRequest

    async def reopen_polling(self) -> None:
        """Reset the getUpdates connection."""
        await self.polling.shutdown()
        await self.polling.initialize()


async def open_telegram_client(
    stack: AsyncExitStack, *, token: str, base_url: str, request_seconds: float
) -> TelegramClient:
    """Create the client without sending anything. `request_seconds` limits one request."""
    # The library warns at each rate limit unless it may return timedeltas.
    os.environ.setdefault("PTB_TIMEDELTA", "1")
    _redact_in_logs(stack, token)
    root = (base_url or PUBLIC_API).rstrip("/")
    trust = context_for(root)
    polling = _build_pool(1, request_seconds, trust)
    sending = _build_pool(_SENDING_POOL_SIZE, request_seconds, trust)
    for pool in (polling, sending):
        await pool.initialize()
        stack.push_async_callback(pool.shutdown)
    bot = Bot(
        token or "none",  # an empty token would raise here rather than become an alert
        base_url=f"{root}/bot",
        base_file_url=f"{root}/file/bot",
        request=sending,
        get_updates_request=polling,
    )
    return TelegramClient(bot=bot, polling=polling)


def _build_pool(size: int, timeout: float, trust: ssl.SSLContext) -> HTTPXRequest:
    return HTTPXRequest(
        connection_pool_size=size,
        connect_timeout=timeout,
        read_timeout=timeout,
        write_timeout=timeout,
        pool_timeout=timeout,
        media_write_timeout=timeout * 4,
        httpx_kwargs={"verify": trust, "event_hooks": {"response": [note_response]}},
    )


class _TokenRedactor(logging.Filter):
    """Removes the token from request URLs in the HTTP library's logs."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if self._token and self._token in message:
            record.msg, record.args = message.replace(self._token, "***"), ()
        return True


def _redact_in_logs(stack: AsyncExitStack, token: str) -> None:
    hide = _TokenRedactor(token)
    for name in _LOGGERS_WITH_URLS:
        logger = logging.getLogger(name)
        logger.addFilter(hide)
        stack.callback(logger.removeFilter, hide)


_COMMAND_NAME = re.compile(r"[a-z0-9_]{1,32}")
_MAX_COMMANDS = 100
_MAX_DESCRIPTION = 256

log = logging.getLogger(__name__)


async def publish_command_menu(bot: Bot, menu: ports.CommandMenu) -> None:
    """Set the command menu in English, and in Chinese for Chinese clients. Best effort."""
    try:
        await bot.set_my_commands(_bot_commands(menu, Language.ENGLISH))
        await bot.set_my_commands(_bot_commands(menu, Language.CHINESE), language_code="zh")
        await bot.set_chat_menu_button(menu_button=MenuButtonCommands())
    except TelegramError as error:
        log.warning("The Telegram command menu could not be set: %s", describe_failure(error))


def _bot_commands(menu: ports.CommandMenu, language: Language) -> list[BotCommand]:
    """Telegram rejects the whole menu for one invalid name; Chinese names work but cannot be
    listed."""
    return [
        BotCommand(name, " ".join(text.split())[:_MAX_DESCRIPTION])
        for name, text in menu(language)
        if _COMMAND_NAME.fullmatch(name) and text.strip()
    ][:_MAX_COMMANDS]
