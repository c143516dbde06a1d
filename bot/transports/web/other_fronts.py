"""Shows on the open pages of this front what other processes have stored or are streaming."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bot.transports.limited_dict import LimitedDict
from bot.transports.web.chat_service import shown_card
from bot.transports.web.frames import PartialAnswer
from bot.transports.web.page_connections import WebTabs
from bot.transports.web.ports import LOCAL_PLACE, ShownCard, WebHistoryReader
from bot.transports.web.sessions import WebSessionService
from storage.errors import StorageError
from storage.messages.inbox import InboxRepo
from storage.messages.outbox import OutboxRepo
from storage.records.messages import InboxId, IncomingMessage, OutboxId
from storage.records.people import Channel

log = logging.getLogger(__name__)

_CAUGHT_UP = 100
_MAX_REMEMBERED = 1_000


@dataclass(kw_only=True, eq=False)
class OtherFrontsPages:
    """Updates the open pages. `delivers_here` says whether this process delivers the cards itself.
    `want_partials` asks the other processes for their unfinished answers. Nothing is read while no
    page is open.
    """

    tabs: WebTabs
    history: WebHistoryReader
    inbox: InboxRepo
    outbox: OutboxRepo
    sessions: WebSessionService
    want_partials: Callable[[], None]
    spawn: Callable[[Coroutine[object, object, None]], None]
    delivers_here: Callable[[], bool]
    _said: LimitedDict[str, bool] = field(
        default_factory=lambda: LimitedDict(_MAX_REMEMBERED), init=False
    )

    def notify_sent(self, outbox_id: OutboxId) -> None:
        """A card has a new revision."""
        if not self.delivers_here():
            self._look(self._show_card(outbox_id))

    def notify_received(self, inbox_id: InboxId) -> None:
        """A message was stored, or settled."""
        self._look(self._show_message(inbox_id))

    def notify_gap(self) -> None:
        """Call this when anything may have been missed."""
        self._look(self._end_pages())
        if not self.delivers_here():
            self._look(self._catch_up())
            if self.tabs.has_pages:
                self.want_partials()

    def show_partial(self, told: Mapping[str, Any]) -> None:
        self.tabs.show_partial(load_partial(told))

    def _look(self, work: Coroutine[object, object, None]) -> None:
        if self.tabs.has_pages:
            self.spawn(_log_failure(work))
        else:
            work.close()

    async def _show_card(self, outbox_id: OutboxId) -> None:
        found = await self.outbox.get(outbox_id)
        if found is None or found[1].channel is not Channel.WEB or not found[0].revision:
            return
        row = found[0]
        if (card := shown_card(row, row.created_at)) is not None:
            self.tabs.show_newer(card)

    async def _show_message(self, inbox_id: InboxId) -> None:
        row = await self.inbox.get(inbox_id)
        if row is not None and isinstance(row.incoming, IncomingMessage):
            self._show_said(row.incoming)

    def _show_said(self, said: IncomingMessage) -> None:
        is_shown = said.place == LOCAL_PLACE and not said.quiet and not said.told
        if is_shown and said.message_id not in self._said:
            self._said[said.message_id] = True
            self.tabs.show_user_message(said)

    async def _end_pages(self) -> None:
        """Close the pages of sessions that ended elsewhere."""
        for each in self.tabs.sessions:
            if not await self.sessions.is_live(each):
                self.tabs.close_sessions({each})

    async def _catch_up(self) -> None:
        for each in (await self.history.read(LOCAL_PLACE, _CAUGHT_UP)).items:
            if isinstance(each, ShownCard):
                self.tabs.show_newer(each)
            else:
                self._show_said(each)


async def _log_failure(work: Coroutine[object, object, None]) -> None:
    try:
        await work
    except StorageError as error:
        log.warning("open pages do not show what another process has stored: %s", error)


def dump_partial(partial: PartialAnswer) -> dict[str, Any]:
    return {
        "outbox_id": partial.outbox_id,
        "revision": partial.revision,
        "markdown": partial.markdown,
        "at": partial.at.isoformat(),
    }


def load_partial(told: Mapping[str, Any]) -> PartialAnswer:
    return PartialAnswer(
        outbox_id=OutboxId(told["outbox_id"]),
        revision=int(told["revision"]),
        markdown=str(told["markdown"]),
        at=datetime.fromisoformat(told["at"]),
    )
