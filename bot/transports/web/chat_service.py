"""History and request-response access to the conversation for the web chat."""

from __future__ import annotations

from datetime import datetime

from bot.transports.inbox import InboxService
from bot.transports.web.ports import HistoryItem, HistoryPage, SayResult, ShownCard
from cards.card_json import CardDecodeError, load_card
from handlers.request import Reply
from storage.db import Database
from storage.messages.chats import ChatRepo
from storage.messages.history import ChatTurn, ReceivedMessage, recent_turns
from storage.records.messages import ChatAddress, InboxRow, IncomingMessage


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
    """Implements `bot.transports.web.ports.WebSayHandler`. Records the replies to messages with a
    waiting caller."""

    def __init__(self, inbox: InboxService) -> None:
        self._inbox = inbox
        self._replies: dict[str, Reply | None] = {}
        inbox.tap_replies(self._record_reply)

    async def say(self, incoming: IncomingMessage, *, dedupe: str) -> SayResult:
        self._replies[incoming.message_id] = None
        try:
            inbox_id = await self._inbox.accept(incoming, dedupe=dedupe)
            if inbox_id is None:
                return SayResult()
            await self._inbox.wait_handled(inbox_id)
            reply = self._replies[incoming.message_id]
            if reply is None:
                return SayResult()
            cards = () if reply.card is None else (reply.card,)
            return SayResult(cards=cards, good=reply.good, data=reply.data)
        finally:
            del self._replies[incoming.message_id]

    def _record_reply(self, row: InboxRow, reply: Reply) -> None:
        if isinstance(row.incoming, IncomingMessage) and row.incoming.message_id in self._replies:
            self._replies[row.incoming.message_id] = reply


def _history_entry(turn: ChatTurn) -> HistoryItem | None:
    if isinstance(turn, ReceivedMessage):
        return turn.row.incoming if isinstance(turn.row.incoming, IncomingMessage) else None
    try:
        card = load_card(turn.row.card)
    except CardDecodeError:
        return None
    return ShownCard(
        outbox_id=turn.row.id,
        revision=turn.row.revision,
        card=card,
        at=turn.at,
        reply_to=turn.row.reply_to,
    )
