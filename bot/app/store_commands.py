"""Backs up, restores and checks a data directory, for shell commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bot.app.backup_source import SECRET_FILES, backup_source, explain_backup_failures
from bot.app.lifecycle import StartFailure
from bot.app.preflight import explain_start_failures
from bot.app.running_program import forget_address
from bot.config.settings import SQLITE_FILE, Settings
from bot.config.values import DATABASE_FORMS
from cards.catalog import catalog_for
from storage.backup_archive import Backup, create_backup
from storage.data_directory import DataDirectoryLock
from storage.errors import MoveRefused, StoreUnavailable
from storage.migrate import is_database_url, sqlite_url
from storage.records.people import Language
from storage.restore import Restored, RestoreTarget, check_restorable, restore_backup
from storage.store_check import CheckReport, check_backup, check_home
from storage.store_identity import STORE_SIDECARS
from storage.store_move import StoreMove, check_empty, move_store


def make_backup(settings: Settings, folder: Path | None, *, with_secrets: bool) -> Backup:
    """Blocking; works beside a running program. Raises StartFailure."""
    with explain_backup_failures():
        source = backup_source(settings, with_secrets=with_secrets)
        if isinstance(source.database, Path) and not source.database.is_file():
            raise StartFailure(f"there is nothing to back up: no file {source.database}")
        target = (folder or settings.backup_folder).expanduser().absolute()
        return create_backup(source, target, now=datetime.now(UTC))


def restore(settings: Settings, archive: Path, *, replace: bool) -> Restored:
    """Into a server's database by way of a file in the data directory, which is removed at the end.
    Blocking. Raises StartFailure."""
    words = catalog_for(settings.fixed_language or Language.ENGLISH)
    with explain_start_failures(settings), explain_backup_failures():
        place = backup_source(settings).database
        file = place if isinstance(place, Path) else settings.home / SQLITE_FILE
        # Before the directory is made or touched.
        check_restorable(archive, settings.home)
        if not isinstance(place, Path):
            with _explain_moves("restored"):
                check_empty(place)
        target = RestoreTarget(
            home=settings.home, database=file, secret_names=SECRET_FILES | {".env"}
        )
        with DataDirectoryLock(settings.home):
            forget_address(settings)
            done = restore_backup(
                archive,
                target,
                replace=replace,
                reason=words("work.restored"),
                now=datetime.now(UTC),
            )
            if not isinstance(place, Path):
                with _explain_moves():
                    move_store(settings.home, sqlite_url(file), place)
                for suffix in STORE_SIDECARS:
                    Path(f"{file}{suffix}").unlink(missing_ok=True)
            return done


@contextmanager
def _explain_moves(wanted: str = "moved") -> Iterator[None]:
    try:
        yield
    except MoveRefused as error:
        raise StartFailure(f"nothing was {wanted}: {error}") from error
    except StoreUnavailable as error:
        raise StartFailure(
            f"the move was cut off, repeat it with `shiftboss migrate --to URL`: {error}"
        ) from error


def move(settings: Settings, target: str, source: str) -> StoreMove:
    """Move the store to another database. Without a `source` it is the one in use, or the SQLite
    file of the home where the settings name the target already. Blocking. Raises StartFailure."""
    if not is_database_url(target):
        raise StartFailure(f"--to: {DATABASE_FORMS}")
    in_use = settings.database
    if in_use == target:
        in_use = sqlite_url(settings.home / SQLITE_FILE)
    with explain_start_failures(settings), DataDirectoryLock(settings.home), _explain_moves():
        forget_address(settings)
        return move_store(settings.home, source or in_use, target)


def check(settings: Settings, archive: Path | None) -> CheckReport:
    """Check the data directory, or a backup. Blocking. Raises StartFailure."""
    if archive is not None:
        with explain_backup_failures():
            return check_backup(archive)
    return check_home(settings.home, backup_source(settings).database, settings.backup_folder)
