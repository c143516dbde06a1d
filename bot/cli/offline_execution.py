"""Executes a shell command or MCP message in this process while no Shiftboss is running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from bot.app.container import Container, open_container
from bot.cli.local_client import CommandAnswer
from bot.config.settings import Settings
from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.memory_server import ForbiddenScope
from bot.transports.sanitize import sanitize_incoming
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from cards.render import text as plain
from handlers.request import Reply
from storage.records.messages import InboxRow, InboxState, IncomingMessage


async def answer_command(settings: Settings, text: str) -> CommandAnswer:
    """Handle one message of the local owner, without channels and dispatcher. Its effects are
    stored for the next `shiftboss run`. The caller must hold the data directory and have called
    `prepare_home`."""
    async with open_container(settings) as core:
        reply = await _handle(core, text)
    shown = "" if reply.card is None else plain.render(reply.card, include_controls=False).text
    return CommandAnswer(text=shown, good=reply.good, data=reply.data, running=False)


async def _handle(core: Container, text: str) -> Reply:
    row = await _store_message(core, text)
    return Reply() if row is None else await core.router.handle(row, ())


async def _store_message(core: Container, text: str) -> InboxRow | None:
    """Stored as handled: the person sees the result and can repeat the command."""
    now = core.clock.now()
    incoming = sanitize_incoming(
        IncomingMessage(
            place=LOCAL_PLACE,
            sender=LOCAL_SENDER,
            message_id=uuid4().hex,
            text=text,
            addressed=True,
            sent_at=now,
            quiet=True,
        )
    )
    async with core.repositories.db.write() as tx:
        chat = await core.repositories.chats.get_or_create(tx, incoming.place, incoming.sender, now)
        return await core.repositories.inbox.accept(
            tx,
            incoming,
            dedupe=uuid4().hex,
            chat_id=chat.id,
            now=now,
            state=InboxState.HANDLED,
            attempts=1,
        )


async def answer_mcp_message(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    """The caller must hold the data directory and have called `prepare_home`."""
    async with open_container(settings) as core:
        try:
            return await core.memory_server.answer(message, scopes)
        except ForbiddenScope as wrong:
            return protocol.error_message(message["id"], protocol.INVALID_PARAMS, str(wrong))
