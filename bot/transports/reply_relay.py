"""Relays the reply to an event from the process that handles it to the process that stored it and
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from bot.transports.ports import Clock, wait_for_event
from cards.card_json import CardDecodeError, dump_card, load_card
from handlers.request import Reply
from storage.db import STORE_RETRY_SECONDS
from storage.errors import StoreUnavailable
from storage.messages.inbox import InboxRepo
from storage.records.messages import InboxId, InboxState

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
"""How late a reply is seen whose notification was lost."""


class ReplyRelay:
    """Waits in this process for replies that another process stores."""

    def __init__(self, inbox: InboxRepo, clock: Clock) -> None:
        self._inbox = inbox
        self._clock = clock
        self._waiting: dict[InboxId, asyncio.Event] = {}

    def notify_changed(self, inbox_id: InboxId | None) -> None:
        """Call this when an event may have been settled; None means any event."""
        for each, event in self._waiting.items():
            if inbox_id is None or each == inbox_id:
                event.set()

    async def look(self, inbox_id: InboxId) -> Reply | None:
        """Take a reply that nobody has taken yet; None if there is none."""
        stored = await self._inbox.find_reply(inbox_id)
        return None if stored is None else _load_reply(stored)

    async def wait(self, inbox_id: InboxId) -> Reply:
        """The reply to an event for which `InboxRepo.expect_reply` was called; empty if another
        message's answer covers it.
        """
        changed = self._waiting[inbox_id] = asyncio.Event()
        try:
            while True:
                changed.clear()
                try:
                    row = await self._inbox.get(inbox_id)
                    if row is None or row.state is not InboxState.NEW:
                        return _load_reply(await self._inbox.take_reply(inbox_id))
                except StoreUnavailable as error:
                    log.warning("the reply to inbox %s cannot be read now: %s", inbox_id, error)
                    await self._clock.sleep(STORE_RETRY_SECONDS)
                await wait_for_event(changed, self._clock, _LOOK_SECONDS)
        finally:
            del self._waiting[inbox_id]


def dump_reply(reply: Reply) -> dict[str, Any]:
    """The parts of a reply that the waiting process shows."""
    return {
        "card": None if reply.card is None else dump_card(reply.card),
        "toast": reply.toast,
        "good": reply.good,
        "data": None if reply.data is None else dict(reply.data),
    }


def _load_reply(stored: Mapping[str, Any] | None) -> Reply:
    if stored is None:
        return Reply()
    try:
        card = None if stored["card"] is None else load_card(stored["card"])
    except CardDecodeError:
        # Another version wrote it; the chat shows it.
        card = None
    return Reply(card=card, toast=stored["toast"], good=stored["good"], data=stored["data"])
