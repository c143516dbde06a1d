"""Answers a hook of a coding CLI where no Shiftboss runs. The CLI waits for it, so the rest of the
engine is not loaded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from bot.app.memory_retrieval import (
    MemoryRepositories,
    build_local_retriever,
    build_mcp_memory,
)
from bot.config.settings import Settings
from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.hook_context import answer_hook_message
from bot.engine.mcp.server.memory_access import (
    ForbiddenScope,
    McpMemoryAccess,
    ScopedReader,
    parse_served_scopes,
)
from bot.engine.redaction import SecretMasker
from bot.transports.ports import SystemClock
from bot.transports.web.access_token import read_token
from bot.transports.web.ports import LOCAL_PLACE
from storage.db import Database
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo


async def answer_hook(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    """Answers as the running program does. The caller must hold the data directory and have called
    `prepare_home`."""
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        clock, ids = SystemClock(), IdGenerator()
        chat = await ChatRepo(db, ids).find(LOCAL_PLACE)
        if chat is None:
            # Without this chat nothing was ever remembered.
            return protocol.result_message(message["id"], {"text": ""})
        memory = MemoryRepositories.create(db, ids, settings.zone)
        masker = SecretMasker((*settings.secret_values, *filter(None, [read_token(settings.home)])))
        stores = build_mcp_memory(
            settings,
            db,
            memory,
            clock,
            recall=build_local_retriever(settings, db, memory, clock),
            mask=masker.mask,
        )
        try:
            allowed = parse_served_scopes(scopes, chat)
        except ForbiddenScope as wrong:
            return protocol.error_message(message["id"], protocol.INVALID_PARAMS, str(wrong))
        reader = ScopedReader(chat=chat, person=chat.person_id, allowed_scopes=allowed)
        return await answer_hook_message(message, McpMemoryAccess(stores, reader), stores.mask)
