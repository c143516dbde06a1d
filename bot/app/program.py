"""The whole program, from its settings to a clean end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.metadata import version

from bot.app.build import build
from bot.app.lifecycle import App, stop_on_signals
from bot.app.terminal.address import note_address
from bot.app.terminal.opening import explained, home_writable, prepare
from bot.config.settings import Settings
from storage.db import Database
from storage.home import Home

log = logging.getLogger(__name__)


async def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT. Raises StartFailure if it cannot begin."""
    with explained(settings), Home(settings.home):
        # Blocking on purpose: nothing else runs yet, and nothing may before this is done.
        prepare(settings, settings.log_level)
        await _run(settings, announce)


async def _run(settings: Settings, announce: Callable[[str], None]) -> None:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        parts = await build(settings, db)
        stack.push_async_callback(parts.models.aclose)
        async with App(parts.services) as app:
            with home_writable(settings):
                note_address(settings, parts.web.address.rstrip("/"))
            log.info("shiftboss %s on %s", version("shiftboss"), settings.home)
            announce(f"Shiftboss is ready. Open the web chat: {parts.web.invitation}")
            await app.run(stop)
    announce("Shiftboss has stopped. What was under way goes on at the next start.")
