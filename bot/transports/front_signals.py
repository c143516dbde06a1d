"""Signals between the fronts of one store, sent at once and never stored."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from storage.errors import StoreUnavailable
from storage.store_signals import open_live_channel, pack_live, unpack_live

log = logging.getLogger(__name__)

_MAX_WAITING = 1_000
_PAUSE_SECONDS = 0.1
_RECONNECT_SECONDS = 1.0


class FrontSignal(StrEnum):
    """The kinds of signals, most urgent first. `SESSIONS_ENDED` carries ids of browser sessions.
    `WRITTEN`: another front has changed something through its pages or its API. `TABLE_CHANGED`:
    Feishu has announced a change of a table. `PARTIALS_WANTED` asks for the unfinished answers.
    `PARTIAL_ANSWER` and `WORKING` are for open pages. `WRONG_TOKEN` carries the address that sent a
    wrong token.
    """

    SESSIONS_ENDED = "sessions_ended"
    WRITTEN = "written"
    TABLE_CHANGED = "table_changed"
    PARTIALS_WANTED = "partials_wanted"
    PARTIAL_ANSWER = "partial_answer"
    WORKING = "working"
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a signal, not a password


class FrontSignals:
    """Exchanges signals between the processes that share a store; a service. Signals may be lost,
    so whatever must not be lost is stored too. With an empty `url` there are no other processes.
    """

    name = "signals to other fronts"

    def __init__(self, url: str, sender: str) -> None:
        self._url = url
        self._sender = sender
        self._listeners: dict[str, Callable[[Any], None]] = {}
        # Each kind has its own: a flood of one pushes no other out.
        self._waiting: Mapping[FrontSignal, OrderedDict[str, str]] = {
            kind: OrderedDict() for kind in FrontSignal
        }
        self._has_news = asyncio.Event()
        self._count = 0

    def connect(self, kind: FrontSignal, listener: Callable[[Any], None]) -> None:
        """Call `listener` with the data of each signal of another process. It must not raise."""
        self._listeners[kind] = listener

    def tell(self, kind: FrontSignal, data: Any = None, *, about: str = "") -> None:
        """Send a signal to the other processes soon. Of signals with the same `about` only the last
        one is sent; a signal that is too long is not sent.
        """
        if not self._url or (text := pack_live(self._sender, kind, data)) is None:
            return
        self._count += 1
        waiting = self._waiting[kind]
        waiting[about or str(self._count)] = text
        if len(waiting) > _MAX_WAITING:
            waiting.popitem(last=False)
        self._has_news.set()

    def receive(self, text: str) -> None:
        """Handle a signal of any process, this one included."""
        try:
            sender, kind, data = unpack_live(text)
        except ValueError:
            log.warning("another process said something unknown: %.200r", text)
            return
        listener = self._listeners.get(kind)
        if sender != self._sender and listener is not None:
            listener(data)

    async def start(self, stack: Any) -> None:
        """Do nothing: the connection is made for the first signal."""

    async def run(self) -> None:
        while True:
            await self._has_news.wait()
            try:
                async with open_live_channel(self._url) as channel:
                    while True:
                        await self._has_news.wait()
                        self._has_news.clear()
                        while waiting := next(filter(None, self._waiting.values()), None):
                            about, text = next(iter(waiting.items()))
                            await channel.send(text)
                            # A newer one about the same may have come meanwhile.
                            if waiting.get(about) is text:
                                del waiting[about]
                        await asyncio.sleep(_PAUSE_SECONDS)
            except StoreUnavailable as error:
                log.warning("other fronts cannot be told: %s", error)
                self._has_news.set()
            await asyncio.sleep(_RECONNECT_SECONDS)
