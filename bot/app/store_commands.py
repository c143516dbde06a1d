"""Backs up, restores and checks a data directory, for shell commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bot.app.lifecycle import StartFailure
from bot.config.settings import Settings, secret_setting_names
from bot.engine.redaction import SecretMasker
from bot.engine.upkeep.settings_masking import SECRET_FILES, settings_masker
from bot.transports.web.access_token import read_token
from storage.backup_archive import Backup, BackupSource, create_backup
from storage.errors import BackupFailed, BadBackup
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


def make_backup(settings: Settings, folder: Path | None, *, with_secrets: bool) -> Backup:
    """Blocking; works beside a running program. Raises StartFailure."""
    with explain_backup_failures():
        source = backup_source(settings, with_secrets=with_secrets)
        if not source.database.is_file():
            raise StartFailure(f"there is nothing to back up: no file {source.database}")
        target = (folder or settings.backup_folder).expanduser().absolute()
        return create_backup(source, target, now=datetime.now(UTC))


@contextmanager
def explain_backup_failures() -> Iterator[None]:
    try:
        yield
    except BackupFailed as error:
        raise StartFailure(f"no backup was made: {error}") from error
    except BadBackup as error:
        raise StartFailure(f"this backup cannot be used: {error}") from error
