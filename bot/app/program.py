"""The whole program, from its settings to a clean end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import version

from bot.app.address import note_address
from bot.app.build import build
from bot.app.failures import StartFailure
from bot.app.lifecycle import App, stop_on_signals
from bot.config.logs import set_up_logs
from bot.config.settings import Settings
from bot.transports.web.errors import WebStartError
from cards.words import words_for
from storage.db import Database
from storage.errors import HomeBusy, HomeUnusable, StoreTooNew, StoreUnavailable
from storage.home import Home
from storage.migrate import migrate
from storage.records.people import Language

log = logging.getLogger(__name__)


async def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT. Raises StartFailure if it cannot begin."""
    if not settings.database.startswith("sqlite"):
        raise StartFailure(
            "DATABASE_URL: this version stores in SQLite only; leave it empty, or give sqlite:///PATH"
        )
    with _explained(settings), Home(settings.home):
        with _home_writable(settings):
            set_up_logs(settings.log_level, settings.secrets, settings.home / "logs")
        # Blocking on purpose: nothing else runs yet, and nothing may before this is done.
        migrate(settings.database)
        await _run(settings, announce)


async def _run(settings: Settings, announce: Callable[[str], None]) -> None:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        parts = await build(settings, db)
        stack.push_async_callback(parts.models.aclose)
        async with App(parts.services) as app:
            with _home_writable(settings):
                note_address(settings, parts.web.address.rstrip("/"))
            log.info("shiftboss %s on %s", version("shiftboss"), settings.home)
            announce(f"Shiftboss is ready. Open the web chat: {parts.web.invitation}")
            await app.run(stop)
    announce("Shiftboss has stopped. What was under way goes on at the next start.")


@contextmanager
def _home_writable(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or settings.home
        raise HomeUnusable(str(where), error.strerror or str(error)) from error


@contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    """What keeps the program from starting, each with the way out."""
    home = settings.home
    try:
        yield
    except HomeBusy as error:
        raise StartFailure(
            f"another Shiftboss (process {error.pid}) runs on {home}: stop it, or set"
            " SHIFTBOSS_HOME to another folder"
        ) from error
    except HomeUnusable as error:
        raise StartFailure(
            f"{error.path} cannot be used ({error.reason}): make it writable, or set SHIFTBOSS_HOME"
        ) from error
    except StoreTooNew as error:
        raise StartFailure(
            f"the database in {home} was made by a newer Shiftboss ({error.revision}) and has"
            " not been touched: install that version, or set SHIFTBOSS_HOME to another folder"
        ) from error
    except StoreUnavailable as error:
        raise StartFailure(f"the database in {home} cannot be used: {error}") from error
    except WebStartError as error:
        raise StartFailure(words_for(Language.ENGLISH)(error.key, **error.facts)) from error
