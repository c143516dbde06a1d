"""The router with fakes around it, used as an intake uses it."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards.model import Card
from cards.render.text import render
from handlers.request import Reply
from handlers.router import Router
from storage.records.messages import (
    ChatAddress,
    InboxId,
    InboxRow,
    InboxState,
    Incoming,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    MessageSender,
)
from storage.records.people import Channel, ChatId, ChatKind, Language
from storage.records.tasks import Task
from tests.builders import NOW
from tests.fakes.services import FakeModels, FakeServices


class RouterHarness:
    """`say` and `press` hand arrivals to the router and send its replies, as the program does."""

    def __init__(
        self, *tasks: Task, language: Language | None = None, models: FakeModels | None = None
    ) -> None:
        self.world = FakeServices(*tasks)
        self.world.models = models or self.world.models
        self.now: datetime = NOW
        self.incidents = 0
        self.router = Router(
            self.world.services,
            clock=lambda: self.now,
            zone=ZoneInfo("Asia/Shanghai"),
            new_incident=self._incident,
            language=language,
        )
        self._rows = 0
        self._messages = 0

    def advance_time(self, **units: float) -> None:
        self.now += timedelta(**units)

    async def send_message(
        self,
        text: str,
        *,
        who: str = "x-ann",
        chat: str = "c1",
        files: tuple[str, ...] = (),
        reply_to: str = "",
        message_id: str = "",
        hint: str = "",
        edited: bool = False,
        is_bot: bool = False,
    ) -> Reply:
        incoming = self.message(
            text,
            who=who,
            chat=chat,
            reply_to=reply_to,
            message_id=message_id,
            hint=hint,
            edited=edited,
            is_bot=is_bot,
        )
        return await self.deliver(self.row(incoming, chat), files)

    async def press(
        self,
        token: str,
        *,
        who: str = "x-ann",
        chat: str = "c1",
        value: str = "",
        form: dict[str, str] | None = None,
    ) -> Reply:
        incoming = IncomingPress(
            place=self._place(chat),
            sender=MessageSender(external_id=who),
            token=token,
            message_id="m",
            value=value,
            form=form or {},
        )
        return await self.deliver(self.row(incoming, chat))

    async def enter_chat(self, *, who: str = "x-ann", chat: str = "c1") -> Reply:
        incoming = IncomingChatOpen(place=self._place(chat), sender=MessageSender(external_id=who))
        return await self.deliver(self.row(incoming, chat))

    async def deliver(self, row: InboxRow, files: tuple[str, ...] = ()) -> Reply:
        reply = await self.router.handle(row, files)
        if reply.card is not None:
            key = reply.key or f"reply:{row.id}"
            await self.world.post.send(row.chat_id, reply.card, key=key, urgency=reply.urgency)
        return reply

    def row(self, incoming: Incoming, chat: str = "c1") -> InboxRow:
        self._rows += 1
        return InboxRow(
            id=InboxId(self._rows),
            incoming=incoming,
            chat_id=ChatId(chat),
            state=InboxState.NEW,
            attempts=0,
            received_at=self.now,
        )

    def message(
        self,
        text: str,
        *,
        who: str = "x-ann",
        chat: str = "c1",
        reply_to: str = "",
        message_id: str = "",
        hint: str = "",
        edited: bool = False,
        is_bot: bool = False,
    ) -> IncomingMessage:
        self._messages += 1
        return IncomingMessage(
            place=self._place(chat),
            sender=MessageSender(external_id=who, name=who, language=hint, is_bot=is_bot),
            message_id=message_id or f"m{self._messages}",
            text=text,
            addressed=True,
            sent_at=self.now,
            reply_to=reply_to,
            edited=edited,
        )

    def _place(self, chat: str) -> ChatAddress:
        kind = ChatKind.GROUP if chat.startswith("g") else ChatKind.PRIVATE
        return ChatAddress(channel=Channel.TELEGRAM, chat=f"ext-{chat}", kind=kind)

    def _incident(self) -> str:
        self.incidents += 1
        return f"inc-{self.incidents}"


def text_of(what: Reply | Card | None) -> str:
    """All that a person reads."""
    if isinstance(what, Reply):
        return "\n".join(part for part in (text_of(what.card), what.toast) if part)
    return render(what).text if what else ""
