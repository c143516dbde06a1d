"""What the web chat asks of the rest: the conversation so far, and an answer to wait for."""

from __future__ import annotations

from collections.abc import Sequence

from bot.transports.intake import Intake
from bot.transports.routing import Router
from bot.transports.web.ports import CardShown, Said, Spoken
from cards.card_json import BadCard, load_card
from handlers.request import Reply
from storage.db import Database
from storage.mail.chats import Chats
from storage.mail.history import Heard, Turn, recent_turns
from storage.records.messages import InboxRow, MessageIn, Place


class WebHistory:
    """Satisfies `bot.transports.web.ports.History`."""

    def __init__(self, db: Database, chats: Chats) -> None:
        self._db = db
        self._chats = chats

    async def recent(self, place: Place, limit: int) -> Sequence[Said]:
        chat = await self._chats.find(place)
        if chat is None:
            return ()
        turns = await recent_turns(self._db, chat.id, limit)
        return [said for turn in turns if (said := _said(turn)) is not None]


class Overheard:
    """A router that lets one listen: the replies to messages somebody waits for are kept."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.replies: dict[str, Reply | None] = {}

    def is_immediate(self, incoming: MessageIn) -> bool:
        return self._router.is_immediate(incoming)

    def arriving(self, row: InboxRow) -> None:
        self._router.arriving(row)

    async def waiting(self, row: InboxRow) -> Reply | None:
        refusal = await self._router.waiting(row)
        said = row.incoming
        if refusal and isinstance(said, MessageIn) and said.message_id in self.replies:
            self.replies[said.message_id] = refusal
        return refusal

    async def knows(self, incoming: MessageIn) -> bool:
        return await self._router.knows(incoming)

    async def handle(self, row: InboxRow, files: tuple[str, ...]) -> Reply:
        reply = await self._router.handle(row, files)
        if isinstance(row.incoming, MessageIn) and row.incoming.message_id in self.replies:
            self.replies[row.incoming.message_id] = reply
        return reply


class WebSpeaker:
    """Satisfies `bot.transports.web.ports.Speaker`."""

    def __init__(self, intake: Intake, router: Overheard) -> None:
        self._intake = intake
        self._replies = router.replies

    async def say(self, incoming: MessageIn, *, dedupe: str) -> Spoken:
        self._replies[incoming.message_id] = None
        try:
            inbox_id = await self._intake.accept(incoming, dedupe=dedupe)
            if inbox_id is None:
                return Spoken()
            await self._intake.finished(inbox_id)
            reply = self._replies[incoming.message_id]
            if reply is None:
                return Spoken()
            return spoken_of(reply)
        finally:
            del self._replies[incoming.message_id]


def spoken_of(reply: Reply) -> Spoken:
    cards = () if reply.card is None else (reply.card,)
    return Spoken(cards=cards, good=reply.good, data=reply.data)


def _said(turn: Turn) -> Said | None:
    if isinstance(turn, Heard):
        return turn.row.incoming if isinstance(turn.row.incoming, MessageIn) else None
    try:
        card = load_card(turn.row.card)
    except BadCard:
        return None
    return CardShown(
        outbox_id=turn.row.id,
        revision=turn.row.revision,
        card=card,
        at=turn.at,
        reply_to=turn.row.reply_to,
    )
