"""History and request-response access to the conversation for the web chat."""

from __future__ import annotations

from datetime import datetime

from bot.transports.inbox import InboxService
from bot.transports.web.ports import HistoryItem, HistoryPage, SayResult, ShownCard
from cards.card_json import CardDecodeError, load_card
from storage.db import Database
from storage.messages.chats import ChatRepo
from storage.messages.history import ChatTurn, ReceivedMessage, recent_turns
from storage.records.messages import ChatAddress, IncomingMessage, OutboxRow


class WebChatHistory:
    """Implements `bot.transports.web.ports.WebHistoryReader`."""

    def __init__(self, db: Database, chats: ChatRepo) -> None:
        self._db = db
        self._chats = chats

    async def read(
        self, place: ChatAddress, limit: int, before: datetime | None = None
    ) -> HistoryPage:
        chat = await self._chats.find(place)
        if chat is None:
            return HistoryPage(items=())
        turns = await recent_turns(self._db, chat.id, limit + 1, before)
        shown = turns[-limit:]
        found = (_history_entry(turn) for turn in shown)
        return HistoryPage(
            items=tuple(each for each in found if each is not None),
            before=shown[0].at if len(turns) > limit else None,
        )


class WebChatSender:
    """Implements `bot.transports.web.ports.WebSayHandler`."""

    def __init__(self, inbox: InboxService) -> None:
        self._inbox = inbox

    async def say(self, incoming: IncomingMessage, *, dedupe: str) -> SayResult:
        reply = await self._inbox.ask(incoming, dedupe=dedupe)
        if reply is None:
            return SayResult()
        cards = () if reply.card is None else (reply.card,)
        return SayResult(cards=cards, good=reply.good, data=reply.data)


def shown_card(row: OutboxRow, at: datetime) -> ShownCard | None:
    """The stored card; None if another version wrote it."""
    try:
        card = load_card(row.card)
    except CardDecodeError:
        return None
    return ShownCard(
        outbox_id=row.id, revision=row.revision, card=card, at=at, reply_to=row.reply_to
    )


def _history_entry(turn: ChatTurn) -> HistoryItem | None:
    if isinstance(turn, ReceivedMessage):
        return turn.row.incoming if isinstance(turn.row.incoming, IncomingMessage) else None
    return shown_card(turn.row, turn.at)
