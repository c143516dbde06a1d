"""A command where no program runs: the store is opened, the command handled, and that is all."""

from __future__ import annotations

from contextlib import AsyncExitStack
from uuid import uuid4

from bot.app.build import Core, build_core
from bot.app.terminal.calls import Answer
from bot.config.settings import Settings
from bot.transports.cleaning import cleaned
from bot.transports.web.ports import PLACE, SENDER
from cards.render import text as plain
from handlers.request import Reply
from storage.db import Database
from storage.records.messages import InboxRow, InboxState, MessageIn


async def answer(settings: Settings, text: str) -> Answer:
    """Handle a message of the local owner and nothing else: no channel, no dispatcher. What it
    leads to is stored, and shown and worked on by the next `shiftboss run`. To be called by whoever
    holds the home, after `opening.prepare`."""
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        core = await build_core(settings, db)
        stack.push_async_callback(core.engine.place.models.aclose)
        reply = await _handled(core, text)
    shown = "" if reply.card is None else plain.render(reply.card, pressable=False).text
    return Answer(text=shown, good=reply.good, data=reply.data, running=False)


async def _handled(core: Core, text: str) -> Reply:
    row = await _stored(core, text)
    return Reply() if row is None else await core.router.handle(row, ())


async def _stored(core: Core, text: str) -> InboxRow | None:
    """As handled: whoever typed it sees what became of it, and types it again if they want."""
    now = core.clock.now()
    incoming = cleaned(
        MessageIn(
            place=PLACE,
            sender=SENDER,
            message_id=uuid4().hex,
            text=text,
            addressed=True,
            sent_at=now,
            quiet=True,
        )
    )
    async with core.store.db.write() as tx:
        chat = await core.store.chats.meet(tx, incoming.place, incoming.sender, now)
        return await core.store.inbox.accept(
            tx,
            incoming,
            dedupe=uuid4().hex,
            chat_id=chat.id,
            now=now,
            state=InboxState.HANDLED,
            attempts=1,
        )
