"""The Bot API client as this program uses it: two connection pools, and a token no log shows."""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
from telegram import Bot
from telegram.request import HTTPXRequest

PUBLIC_API = "https://api.telegram.org"

_LOG_ADDRESSES = ("httpx", "telegram.Bot")
_POOL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`polling` serves getUpdates alone, so that waiting for messages never blocks sending."""

    bot: Bot
    polling: HTTPXRequest

    async def reopen_polling(self) -> None:
        """Drop the connection getUpdates hangs on."""
        await self.polling.shutdown()
        await self.polling.initialize()


async def open_client(
    stack: AsyncExitStack, *, token: str, base_url: str, patience: float
) -> Client:
    """Build the client; nothing is sent yet. `patience` is the time-out of one request."""
    # The library warns about each rate limit unless it may give durations as such.
    os.environ.setdefault("PTB_TIMEDELTA", "1")
    _hide_in_logs(stack, token)
    root = (base_url or PUBLIC_API).rstrip("/")
    # Loading the trusted certificates is the dearest part of a pool: once is enough, and plain
    # HTTP (an own Bot API server nearby) needs none.
    trust = httpx.create_ssl_context(verify=not root.startswith("http://"))
    polling = _pool(1, patience, trust)
    sending = _pool(_POOL, patience, trust)
    for pool in (polling, sending):
        await pool.initialize()
        stack.push_async_callback(pool.shutdown)
    bot = Bot(
        token or "none",  # an empty one would be an exception here instead of an alert later
        base_url=f"{root}/bot",
        base_file_url=f"{root}/file/bot",
        request=sending,
        get_updates_request=polling,
    )
    return Client(bot=bot, polling=polling)


def _pool(size: int, timeout: float, trust: ssl.SSLContext) -> HTTPXRequest:
    return HTTPXRequest(
        connection_pool_size=size,
        connect_timeout=timeout,
        read_timeout=timeout,
        write_timeout=timeout,
        pool_timeout=timeout,
        media_write_timeout=timeout * 4,
        httpx_kwargs={"verify": trust},
    )


class _HideToken(logging.Filter):
    """Request lines of the HTTP library carry the token in the address."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if self._token and self._token in message:
            record.msg, record.args = message.replace(self._token, "***"), ()
        return True


def _hide_in_logs(stack: AsyncExitStack, token: str) -> None:
    hide = _HideToken(token)
    for name in _LOG_ADDRESSES:
        logger = logging.getLogger(name)
        logger.addFilter(hide)
        stack.callback(logger.removeFilter, hide)
