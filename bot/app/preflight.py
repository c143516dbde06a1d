"""Holds and prepares the data directory, and explains start failures."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bot.app.lifecycle import StartFailure, home_unusable
from bot.app.running_program import forget_address
from bot.config.logs import configure_logging
from bot.config.settings import Settings
from bot.engine.redaction import SecretMasker
from bot.transports.web.ports import WebStartError
from cards.catalog import catalog_for
from storage.data_directory import DataDirectoryLock, make_private, remove_unfinished_exports
from storage.errors import (
    DataDirectoryInUse,
    DataDirectoryUnusable,
    StoreMismatch,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from storage.migrate import HEAD_REVISION, database_place, describe_place, sqlite_path
from storage.records.people import Language
from storage.records.processes import ProcessRole
from storage.store_identity import join_store, prepare_store, set_store_aside, verify_store

if TYPE_CHECKING:
    from bot.app.parts import ProcessPlan

PROCESSES_FOLDER = "processes"
"""Has a folder for each process that shares the data directory: its lock and its log."""


@contextmanager
def hold_home(settings: Settings) -> Iterator[None]:
    """Hold the data directory. DataDirectoryInUse is for the caller to handle."""
    try:
        home = DataDirectoryLock(settings.home)
    except DataDirectoryUnusable as error:
        raise home_unusable(error) from error
    with home, explain_start_failures(settings):
        with report_unwritable_home(settings):
            forget_address(settings)
        # Blocking, since nothing else may run before this is done.
        prepare_home(settings, settings.log_level)
        yield


@contextmanager
def join_home(settings: Settings, plan: ProcessPlan) -> Iterator[None]:
    """Use the data directory beside other processes of the same store, each under its own name.
    Only a front migrates the store. Raises StartFailure."""
    if not settings.shares_store:
        raise StartFailure(
            f"`shiftboss {plan.role}` needs a store on PostgreSQL that processes can share: set"
            " DATABASE_URL=postgresql://USER@HOST/DATABASE, or use `shiftboss run` (docs/scale.md)"
        )
    place = settings.home / PROCESSES_FOLDER / f"{plan.role}-{plan.name}"
    try:
        held = DataDirectoryLock(place)
    except DataDirectoryInUse as error:
        raise StartFailure(
            f"a {plan.role} of the name {plan.name} runs already (process {error.pid}):"
            " choose another --name"
        ) from error
    except DataDirectoryUnusable as error:
        raise home_unusable(error) from error
    with held, explain_start_failures(settings):
        settings.home.chmod(stat.S_IRWXU)
        _configure_logging(settings, settings.log_level, place)
        facts = verify_store(settings.home, settings.database, allow_newer=True)
        found = None if facts is None else facts.revision
        if plan.role is ProcessRole.FRONT and (found is None or found < HEAD_REVISION):
            _migrate_store(settings)
        elif found is not None and found < HEAD_REVISION:
            raise StoreTooOld(found)
        elif found is not None and int(found) > int(HEAD_REVISION) + 1:
            # One migration ahead is tolerated, so that machines are upgraded one after another.
            raise StoreTooNew(found)
        join_store(settings.home, settings.database)
        yield


def prepare_home(settings: Settings, level: str) -> None:
    """Make the data directory private, configure logging and migrate the database. Blocking; the
    caller must hold the data directory."""
    with report_unwritable_home(settings):
        make_private(settings.home)
        remove_unfinished_exports(settings.home)
        _configure_logging(settings, level, settings.home)
        _migrate_store(settings)


def _configure_logging(settings: Settings, level: str, folder: Path) -> None:
    configure_logging(
        level,
        SecretMasker(settings.secret_values).mask,
        folder,
        as_json=settings.log_format == "json",
        megabytes=settings.log_megabytes,
        files=settings.log_files,
    )


def _migrate_store(settings: Settings) -> None:
    prepare_store(
        settings.home,
        settings.database,
        before_migration=lambda _revision: _back_up_before_migration(settings),
    )


def _back_up_before_migration(settings: Settings) -> None:
    """There is no way back from a migration but this."""
    # Loaded only for a migration: 0.1 s of CPU, which `shiftboss status` needs for itself.
    from bot.app.backup_source import backup_source, explain_backup_failures
    from storage.backup_archive import create_backup

    label = f"before-{HEAD_REVISION}"
    with explain_backup_failures():
        create_backup(
            backup_source(settings), settings.backup_folder, now=datetime.now(UTC), label=label
        )


def check_store(settings: Settings) -> None:
    """Verify and change nothing, for a command that works beside the holder of the directory."""
    with explain_start_failures(settings):
        verify_store(settings.home, settings.database, in_use=True)


def start_afresh(settings: Settings) -> tuple[str, ...]:
    """Set the store in the data directory aside; returns the new names. Raises StartFailure."""
    now = datetime.now(UTC)
    with explain_start_failures(settings), DataDirectoryLock(settings.home):
        moved = set_store_aside(settings.home, settings.database, suffix=f"old-{now:%Y%m%d-%H%M%S}")
    return tuple(str(each) for each in moved)


@contextmanager
def report_unwritable_home(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or settings.home
        raise DataDirectoryUnusable(str(where), error.strerror or str(error)) from error


@contextmanager
def explain_start_failures(settings: Settings) -> Iterator[None]:
    """Turn known errors into a StartFailure with its solution."""
    home = settings.home
    try:
        yield
    except DataDirectoryInUse as error:
        raise StartFailure(
            f"another Shiftboss (process {error.pid}) uses {home}: stop it, or set"
            " SHIFTBOSS_HOME to another folder"
        ) from error
    except DataDirectoryUnusable as error:
        raise home_unusable(error) from error
    except StoreTooOld as error:
        raise StartFailure(
            f"the store is of an older version ({error.revision}): start the front of this version"
            " first, which migrates it"
        ) from error
    except StoreTooNew as error:
        raise StartFailure(
            f"the database in {home} was made by a newer Shiftboss ({error.revision}) and"
            " was not touched: install that version, or set SHIFTBOSS_HOME to another folder"
        ) from error
    except StoreMismatch as error:
        raise StartFailure(_explain_mismatch(settings, error)) from error
    except StoreUnavailable as error:
        place = describe_place(database_place(settings.database))
        raise StartFailure(f"the database {place} cannot be used: {error}") from error
    except WebStartError as error:
        raise StartFailure(catalog_for(Language.ENGLISH)(error.key, **error.facts)) from error


def _explain_mismatch(settings: Settings, error: StoreMismatch) -> str:
    told = (
        f"the store of {settings.home} cannot be used: expected {error.expected}, found"
        f" {error.found}; nothing was changed\n"
    )
    if sqlite_path(settings.database) is None:
        return (
            f"{told}To move the store of this directory there: `shiftboss migrate --to"
            " postgresql://…` (see docs/reference/postgresql.md). If DATABASE_URL is wrong: correct"
            " it."
        )
    return (
        f"{told}"
        "To restore a backup: `shiftboss restore FILE --replace`. If DATABASE_URL is wrong: correct"
        " it.\n"
        "To start with an empty store instead: `shiftboss run --new-store` (see docs/backup.md)"
    )
