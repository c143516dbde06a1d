"""Names what a backup of this installation holds, and explains why one was not made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from bot.app.lifecycle import StartFailure
from bot.config.settings import Settings, secret_setting_names
from bot.engine.redaction import SecretMasker
from bot.engine.upkeep.settings_masking import SECRET_FILES, settings_masker
from bot.transports.web.access_token import read_token
from storage.backup_archive import BackupSource
from storage.errors import BackupFailed, BadBackup, RestoreRefused
from storage.migrate import sqlite_path


def backup_source(settings: Settings, *, with_secrets: bool = False) -> BackupSource:
    """Raises StartFailure if the database is not a SQLite file."""
    database = sqlite_path(settings.database)
    if database is None:
        raise StartFailure("DATABASE_URL: only a SQLite database can be backed up here")
    masker = SecretMasker((*settings.secret_values, read_token(settings.home)))
    return BackupSource(
        home=settings.home,
        database=database,
        version=version("shiftboss"),
        mask=settings_masker(secret_setting_names(), masker.mask),
        secret_names=SECRET_FILES,
        with_secrets=with_secrets,
    )


@contextmanager
def explain_backup_failures() -> Iterator[None]:
    """Turn errors of backups into a StartFailure."""
    try:
        yield
    except BackupFailed as error:
        raise StartFailure(f"no backup was made: {error}") from error
    except RestoreRefused as error:
        raise StartFailure(f"nothing was restored: {error}") from error
    except BadBackup as error:
        raise StartFailure(f"this backup cannot be used: {error}") from error
