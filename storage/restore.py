"""Puts a backup into a data directory, in steps that can be repeated after a crash, and makes its
database safe to start."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError

from storage import bitable_schema, schema, web_schema
from storage.backup_archive import (
    DATABASE,
    HOME_PREFIX,
    BackupManifest,
    extract_backup,
    find_damage,
    verify_backup,
)
from storage.data_directory import fsync_path, write_private_file
from storage.db import Database, Transaction
from storage.errors import (
    BadBackup,
    RestoreRefused,
    StorageError,
    StoreTooNew,
    StoreUnavailable,
)
from storage.key_value import KeyValueStore
from storage.migrate import (
    HEAD_REVISION,
    inspect_store,
    known_revisions,
    migrate,
    migration_engine,
    sqlite_url,
)
from storage.records.approvals import ApprovalState
from storage.records.messages import InboxState, OutboxState
from storage.records.people import AccountLinkState, ChatId, ChatKind
from storage.records.schedules import FiringState
from storage.records.system import RestoreRecord
from storage.records.tasks import EventKind, SubagentStatus, TaskControl, TaskStatus
from storage.store_identity import (
    RESTORE_PHASE,
    RESTORING,
    STORE_SIDECARS,
    StoreMarker,
    write_marker,
)
from storage.web_schema import account_links

# --- a database from a backup, safe to start
# Work that was unfinished when the backup was taken is neither sent nor done again.

RESTORED_ERROR = "restored from a backup"
"""The error of messages that a restore left unsent: they may have been sent before."""
_MARK = "store.restored"
_NEVER = datetime.fromtimestamp(0, UTC)
_DROPPED = "dropped"
_QUOTE_CHARS, _MAX_QUOTES = 200, 20
_UNFINISHED = ("accepted", "running")
# Requests are settled by their own expiry, which also updates the cards that show these buttons.
_DECISIONS = ("decide", "answer")


async def find_restore(key_values: KeyValueStore) -> RestoreRecord | None:
    """The last restore of this store, None if there never was one."""
    return _parse(await key_values.get(_MARK))


async def list_chats_with_held(db: Database) -> Sequence[ChatId]:
    """Chats with messages that wait for a decision."""
    inbox = schema.inbox
    held = sa.select(inbox.c.chat_id).where(inbox.c.state == InboxState.HELD.value).distinct()
    return [ChatId(each) for each in await db.fetch_column(held)]


async def mark_restore_told(
    key_values: KeyValueStore, tx: Transaction, record: RestoreRecord
) -> None:
    await key_values.write(tx, _MARK, _dump(replace(record, is_told=True)))


def settle_restored(
    database: Path, *, backup_at: datetime, now: datetime, reason: str
) -> RestoreRecord:
    """Settle everything that is open, in one transaction. Blocking. `reason` is shown on tasks.

    Cards to be sent count as not sent. Messages that wait are held, to be offered; presses
    that wait are dropped. Queued tasks
    and those that wait for a time are paused; running ones become work that was interrupted long
    ago, which the next start offers. What schedules should have done since the backup is left out.
    Requests have expired, and the next start offers to ask again.
    Buttons of earlier cards no longer work. Browsers have to sign in again; API tokens are void.
    """
    engine = migration_engine(sqlite_url(database))
    try:
        with engine.begin() as tx:
            messages, presses = _settle_inbox(tx, now)
            record = RestoreRecord(
                id=secrets.token_hex(4),
                backup_at=backup_at,
                restored_at=now,
                unsent=_settle_outbox(tx, now),
                unhandled_count=len(messages),
                unhandled=messages[:_MAX_QUOTES],
                presses=presses,
                tasks=_settle_tasks(tx, now, reason),
                approvals=_settle_approvals(tx, now),
            )
            _settle_subagents(tx, now, reason)
            _settle_schedules(tx, now)
            tx.execute(sa.delete(web_schema.web_sessions))
            tx.execute(sa.delete(web_schema.web_keys))
            usable = [AccountLinkState.OPEN.value, AccountLinkState.ASKED.value]
            tx.execute(sa.delete(account_links).where(account_links.c.state.in_(usable)))
            _settle_bitable(tx)
            marks = schema.marks
            tx.execute(sa.delete(marks).where(marks.c.name == _MARK))
            tx.execute(sa.insert(marks).values(name=_MARK, value=_dump(record)))
    finally:
        engine.dispose()
    return record


def _settle_bitable(tx: sa.Connection) -> None:
    """Look for rows that were created after the backup: they exist in the tables, but not in the
    store."""
    bases = bitable_schema.bitable_bases
    for row in tx.execute(sa.select(bases.c.id, bases.c.progress)).all():
        progress = {**row.progress, "needs_scan": True}
        tx.execute(sa.update(bases).where(bases.c.id == row.id).values(progress=progress))


def _settle_outbox(tx: sa.Connection, now: datetime) -> int:
    outbox, events = schema.outbox, schema.events
    queued = outbox.c.state == OutboxState.QUEUED.value
    gone = sa.update(outbox).where(queued)
    unsent = tx.execute(
        gone.values(state=OutboxState.DEAD.value, tried_revision=0, error=RESTORED_ERROR)
    ).rowcount
    untold = sa.update(events).where(events.c.told_at.is_(None)).values(told_at=now)
    return int(unsent + tx.execute(untold).rowcount)


def _settle_inbox(tx: sa.Connection, now: datetime) -> tuple[Sequence[str], int]:
    """Hold the messages of people, and drop everything else. Returns quotes of the messages, and
    the number of presses."""
    inbox, chats = schema.inbox, schema.chats
    waits = inbox.c.state == InboxState.NEW.value
    rows = tx.execute(
        sa.select(inbox.c.id, inbox.c.incoming, chats.c.person_id, chats.c.kind)
        .join(chats, chats.c.id == inbox.c.chat_id)
        .where(waits)
        .order_by(inbox.c.id)
    ).all()
    held = [row for row in rows if _can_be_offered(row)]
    hold = sa.update(inbox).where(inbox.c.id == sa.bindparam("which"))
    for row in held:
        tx.execute(hold.values(state=InboxState.HELD.value, attempts=0), {"which": row.id})
    tx.execute(
        sa.update(inbox)
        .where(waits)
        .values(
            state=InboxState.FAILED.value,
            error=RESTORED_ERROR,
            outcome=_DROPPED,
            handled_at=now,
        )
    )
    presses = sum(row.incoming.get("kind") == "press" for row in rows)
    return [_quote(row.incoming) for row in held], presses


def _can_be_offered(row: Any) -> bool:
    """A message of a person with access."""
    said = row.incoming
    known = row.person_id is not None or row.kind != ChatKind.PRIVATE.value
    return known and said.get("kind") == "message" and not said.get("told")


def _quote(incoming: Any) -> str:
    sender = incoming["sender"].get("name") or incoming["sender"]["external_id"]
    text = " ".join(str(incoming.get("text", "")).split())[:_QUOTE_CHARS]
    return f"{sender}: {text or '📎'}"


def _settle_tasks(tx: sa.Connection, now: datetime, reason: str) -> Sequence[tuple[str, str]]:
    tasks, events = schema.tasks, schema.events
    running = tasks.c.status == TaskStatus.RUNNING.value
    parked = (tasks.c.status == TaskStatus.PENDING.value) | (
        (tasks.c.status == TaskStatus.WAITING.value) & tasks.c.wake_at.is_not(None)
    )
    named = tx.execute(
        sa.select(tasks.c.id, tasks.c.title, running.label("runs"))
        .where(running | parked, tasks.c.deleted_at.is_(None))
        .order_by(tasks.c.created_at, tasks.c.id)
    ).all()
    tx.execute(sa.update(tasks).where(running).values(lease_until=_NEVER, wake_at=None))
    tx.execute(
        sa.update(tasks)
        .where(parked)
        .values(
            status=TaskStatus.PAUSED.value,
            status_reason=reason,
            control=TaskControl.RUN.value,
            wake_at=None,
        )
    )
    told = [
        {"task_id": row.id, "kind": EventKind.PAUSED.value, "text": reason, "at": now}
        for row in named
        if not row.runs
    ]
    if told:
        tx.execute(sa.insert(events), told)
    return [(row.id, row.title) for row in named]


def _settle_approvals(tx: sa.Connection, now: datetime) -> int:
    approvals, actions = schema.approvals, schema.actions
    waiting = approvals.c.state == ApprovalState.WAITING.value
    late = sa.update(approvals).where(waiting, approvals.c.expires_at > now)
    tx.execute(late.values(expires_at=now))
    old = actions.c.action["kind"].as_string().not_in(_DECISIONS)
    tx.execute(sa.update(actions).where(~actions.c.retired, old).values(retired=True))
    return int(tx.scalar(sa.select(sa.func.count()).select_from(approvals).where(waiting)) or 0)


def _settle_subagents(tx: sa.Connection, now: datetime, reason: str) -> None:
    helpers = schema.helpers
    tx.execute(
        sa.update(helpers)
        .where(helpers.c.status.in_(_UNFINISHED))
        .values(status=SubagentStatus.FAILED.value, result=reason, ended_at=now)
    )
    # A chat would get their results as an answer at once; a task reads them when it is resumed.
    talk = helpers.c.task_id.is_(None) & helpers.c.delivered_at.is_(None)
    tx.execute(sa.update(helpers).where(talk).values(delivered_at=now))


def _settle_schedules(tx: sa.Connection, now: datetime) -> None:
    schedules, firings = schema.schedules, schema.firings
    # The next start computes the due times to come.
    tx.execute(sa.update(schedules).where(schedules.c.next_due <= now).values(next_due=None))
    retries = sa.update(firings).where(firings.c.retry_at.is_not(None))
    tx.execute(retries.values(retry_at=None, state=FiringState.FAILED.value, ended_at=now))


def _dump(record: RestoreRecord) -> dict[str, Any]:
    times = {name: getattr(record, name).isoformat() for name in ("backup_at", "restored_at")}
    return asdict(record) | times


def _parse(value: Any) -> RestoreRecord | None:
    if value is None:
        return None
    times = {name: datetime.fromisoformat(value[name]) for name in ("backup_at", "restored_at")}
    tasks = [(str(task), str(title)) for task, title in value["tasks"]]
    return RestoreRecord(**value | times | {"tasks": tasks})


# --- the restore, in steps that can be repeated after a crash
# Everything is unpacked, verified and migrated in a folder inside the directory first. Only then
# are entries renamed: the old ones aside, the new ones into place. A file says how far this has
# come; while it exists, nothing else starts, and the next restore goes on from there.

_KEPT = frozenset({"lock", "backups", RESTORING})
_ASIDE_PREFIX = "replaced-"
_NEW, _OLD = "new", "old"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTarget:
    """Where to restore. `database` is where the program expects it, in `home` or elsewhere. Secrets
    by these names in `home` stay there if the backup has none; `.env` is one of them."""

    home: Path
    database: Path
    secret_names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """`aside` is where the old contents are, None if there were none. `was_cut_off` says that this
    call only finished an earlier one."""

    manifest: BackupManifest
    aside: Path | None
    was_cut_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    phase: str
    stamp: str
    database: str
    kept: tuple[str, ...]
    backup: str


def check_restorable(archive: Path, home: Path) -> BackupManifest:
    """Verify an archive before anything is touched. Blocking. Raises BadBackup, also if it does not
    fit on the disk of `home`, and StoreTooNew for one of a newer version."""
    there = next(each for each in (home, *home.absolute().parents) if each.is_dir())
    manifest = verify_backup(archive, max_bytes=shutil.disk_usage(there).free)
    if manifest.schema != HEAD_REVISION and manifest.schema not in known_revisions():
        raise StoreTooNew(manifest.schema)
    return manifest


def restore_backup(
    archive: Path, target: RestoreTarget, *, replace: bool, reason: str, now: datetime
) -> Restored:
    """Restore into an empty directory, or put its contents aside if `replace`. Blocking; the caller
    must hold the directory. `reason` is shown on tasks that are not resumed by themselves.

    Raises BadBackup, StoreTooNew and RestoreRefused, and then has changed nothing. Killed at any
    point, the next call with the same archive finishes it.
    """
    manifest = check_restorable(archive, target.home)
    _check_place(archive, target.home)
    with _translate_disk_errors(target.home):
        plan = _read_plan(target.home)
        if plan is not None:
            aside = _finish(target.home, plan)
            if plan.backup == _identify(manifest):
                return Restored(manifest=manifest, aside=aside, was_cut_off=True)
        staging = target.home / RESTORING
        shutil.rmtree(staging, ignore_errors=True)
        kept = () if manifest.secrets else _existing(target.home, target.secret_names)
        if not replace and (found := _foreign_entries(target, kept)):
            raise RestoreRefused(
                f"{found[0]} exists: restore into an empty directory, or use --replace, which"
                " moves the old contents aside"
            )
        try:
            _stage(archive, staging, manifest, target, now=now, reason=reason)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            _partial(target.database).unlink(missing_ok=True)
            raise
        plan = _Plan(
            phase=_OLD,
            stamp=f"{now:%Y%m%d-%H%M%S}",
            database=str(target.database),
            kept=kept,
            backup=_identify(manifest),
        )
        _write_plan(target.home, plan)
        return Restored(manifest=manifest, aside=_finish(target.home, plan))


def _check_place(archive: Path, home: Path) -> None:
    """Raise if the archive lies where the restore moves things aside: it would be lost."""
    place, inside = archive.resolve(), home.resolve()
    if place.is_relative_to(inside) and place.relative_to(inside).parts[0] not in _KEPT:
        raise RestoreRefused(
            f"{archive} is in the directory that it replaces: move it to {home / 'backups'} first"
        )


def _stage(
    archive: Path,
    staging: Path,
    manifest: BackupManifest,
    target: RestoreTarget,
    *,
    now: datetime,
    reason: str,
) -> None:
    """Unpack and prepare everything, so that only renames are left."""
    new = staging / _NEW
    new.mkdir(mode=0o700, parents=True)
    extract_backup(archive, new)
    home, database = new / HOME_PREFIX, new / DATABASE
    home.mkdir(mode=0o700, exist_ok=True)
    if damage := find_damage(database):
        raise BadBackup(f"the database in it is damaged: {damage[0]}")
    _remove_other_databases(home, target)
    facts = inspect_store(database)
    if (facts.store_id, facts.revision or "") != (manifest.store_id, manifest.schema):
        raise BadBackup("the database in it is not the one that its manifest names")
    try:
        migrate(sqlite_url(database))
        settle_restored(database, backup_at=manifest.created, now=now, reason=reason)
    except (DatabaseError, StoreUnavailable) as error:
        told = getattr(error, "orig", None) or error
        if "disk is full" in str(told):
            raise RestoreRefused(f"{staging}: no space left on the disk") from error
        raise BadBackup(f"the database in it cannot be used: {told}") from error
    facts = inspect_store(database)
    write_marker(home, StoreMarker(id=facts.store_id, schema=HEAD_REVISION))
    inside = _place_in_home(target)
    if inside is not None:
        (home / inside).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        database.rename(home / inside)
    else:
        _move_beside(database, target.database)
    for each in new.rglob("*"):
        if each.is_dir():
            fsync_path(each)
    fsync_path(new)


def _remove_other_databases(home: Path, target: RestoreTarget) -> None:
    """Remove staged files by the names of the database and its logs. They were of another one when
    the backup was made, and a log would be replayed into this one."""
    inside = _place_in_home(target)
    for each in () if inside is None else _existing_database(home / inside):
        each.unlink()


def _place_in_home(target: RestoreTarget) -> Path | None:
    """The database's path from the home; None if it is elsewhere."""
    database, home = target.database.absolute(), target.home.absolute()
    if not database.is_relative_to(home):
        database, home = database.resolve(), home.resolve()
    return database.relative_to(home) if database.is_relative_to(home) else None


def _finish(home: Path, plan: _Plan) -> Path | None:
    """Complete a restore; every step may have been done before."""
    staging = home / RESTORING
    old, new, database = staging / _OLD, staging / _NEW, Path(plan.database)
    if plan.phase == _OLD:
        old.mkdir(mode=0o700, exist_ok=True)
        for entry in _entries(home, plan.kept):
            entry.rename(old / entry.name)
        for each in _existing_database(database):
            each.rename(each.with_name(f"{each.name}.{_ASIDE_PREFIX}{plan.stamp}"))
        fsync_path(home)
        plan = _Plan(
            phase=_NEW,
            stamp=plan.stamp,
            database=plan.database,
            kept=plan.kept,
            backup=plan.backup,
        )
        _write_plan(home, plan)
    for entry in sorted((new / HOME_PREFIX).iterdir()):
        if entry.name not in plan.kept:
            entry.rename(home / entry.name)
    if _partial(database).exists():
        _partial(database).replace(database)
        fsync_path(database.parent)
    aside = home / f"{_ASIDE_PREFIX}{plan.stamp}"
    if old.is_dir() and any(old.iterdir()):
        old.rename(aside)
    fsync_path(home)
    (home / RESTORE_PHASE).unlink()
    shutil.rmtree(staging, ignore_errors=True)
    return aside if aside.is_dir() else None


def _move_beside(staged: Path, database: Path) -> None:
    """Only a rename is left then, also on another file system."""
    partial = _partial(database)
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.move(staged, partial)
    partial.chmod(0o600)
    fsync_path(partial)
    fsync_path(database.parent)


def _partial(database: Path) -> Path:
    return database.with_name(f"{database.name}.restoring")


def _entries(home: Path, kept: Iterable[str]) -> Iterator[Path]:
    stay = {*_KEPT, *kept}
    for entry in sorted(home.iterdir()):
        if entry.name not in stay and not entry.name.startswith(_ASIDE_PREFIX):
            yield entry


def _foreign_entries(target: RestoreTarget, kept: Iterable[str]) -> list[Path]:
    return [*_entries(target.home, kept), *_existing_database(target.database)]


def _existing_database(database: Path) -> list[Path]:
    files = (Path(f"{database}{each}") for each in STORE_SIDECARS)
    return [each for each in files if each.exists()]


def _existing(home: Path, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if (home / name).exists()))


def _identify(manifest: BackupManifest) -> str:
    return f"{manifest.store_id} {manifest.created_at}"


def _read_plan(home: Path) -> _Plan | None:
    try:
        loaded = json.loads((home / RESTORE_PHASE).read_text(encoding="utf-8"))
        return _Plan(**{**loaded, "kept": tuple(loaded["kept"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise RestoreRefused(
            f"an earlier restore was cut off, and {home / RESTORE_PHASE} is damaged: the old"
            f" contents are in {home / RESTORING / _OLD}; restore into an empty directory"
        ) from error


def _write_plan(home: Path, plan: _Plan) -> None:
    facts = {each: getattr(plan, each) for each in _Plan.__slots__}
    write_private_file(home / RESTORE_PHASE, json.dumps(facts).encode())


@contextmanager
def _translate_disk_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        where = error.filename or home
        raise RestoreRefused(f"{os.fspath(where)}: {error.strerror or error}") from error
