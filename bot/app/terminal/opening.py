"""What has to be true of a home before anything runs on it, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bot.app.failures import StartFailure, unusable
from bot.config.logs import set_up_logs
from bot.config.settings import Settings
from bot.engine.agent.masking import Masking
from bot.transports.web.errors import WebStartError
from cards.words import words_for
from storage.errors import HomeBusy, HomeUnusable, StoreTooNew, StoreUnavailable
from storage.migrate import migrate
from storage.records.people import Language


def prepare(settings: Settings, level: str) -> None:
    """Logs and a database of this version. Blocking; to be called by whoever holds the home."""
    if not settings.database.startswith("sqlite"):
        raise StartFailure(
            "DATABASE_URL: this version stores in SQLite only; leave it empty, or give sqlite:///PATH"
        )
    with home_writable(settings):
        set_up_logs(level, Masking(settings.secrets).mask, settings.home / "logs")
    migrate(settings.database)


@contextmanager
def home_writable(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or settings.home
        raise HomeUnusable(str(where), error.strerror or str(error)) from error


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
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
        raise unusable(error) from error
    except StoreTooNew as error:
        raise StartFailure(
            f"the database in {home} was made by a newer Shiftboss ({error.revision}) and has"
            " not been touched: install that version, or set SHIFTBOSS_HOME to another folder"
        ) from error
    except StoreUnavailable as error:
        raise StartFailure(f"the database in {home} cannot be used: {error}") from error
    except WebStartError as error:
        raise StartFailure(words_for(Language.ENGLISH)(error.key, **error.facts)) from error
