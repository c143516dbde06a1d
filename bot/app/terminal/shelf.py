"""An MCP message where no program runs: the store is opened, the message answered, that is all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from bot.app.build import build_core, serving_of
from bot.app.memory.serving import BadScope
from bot.config.settings import Settings
from bot.engine.agent.mcp.serving import rpc
from storage.db import Database


async def answer(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    """To be called by whoever holds the home, after `opening.prepare`."""
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        core = await build_core(settings, db)
        stack.push_async_callback(core.engine.place.models.aclose)
        try:
            return await serving_of(settings, core).answer(message, scopes)
        except BadScope as wrong:
            return rpc.error(message["id"], rpc.BAD_PARAMS, str(wrong))
