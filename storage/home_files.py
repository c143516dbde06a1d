"""Stores what has to happen to files of several data directories: what is to be erased in each and
in the object store, and which results are not there yet."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

import sqlalchemy as sa

from storage.db import Database, Transaction, record_from, records_from
from storage.dialect import dump_json, insert_or_ignore, upsert
from storage.errors import NotFound, WrongState
from storage.process_schema import file_erasures, forgotten_folders, homes, late_files
from storage.records.processes import HOME_SILENT_AFTER, WaitingHome
from storage.records.tasks import TaskId

OBJECT_STORE = ""
"""In place of a data directory."""

_ERASURE_PATIENCE = timedelta(minutes=10)
_FIRST_SECONDS = 5.0
_LONGEST_SECONDS = 600.0
_H, _F, _E, _L = homes.c, forgotten_folders.c, file_erasures.c, late_files.c


class NotLate(Exception):
    """A file that was late has come meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileErasure:
    """`what` is for the caller to understand."""

    home: str
    key: str
    what: Mapping[str, Any]
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateFile:
    """A result that only the data directory `home` has."""

    path: str
    home: str
    task_id: TaskId
    is_told: bool
    tries: int


class HomeFileRepo:
    """`home` is the id of this process's data directory."""

    def __init__(self, db: Database, home: str) -> None:
        self._db = db
        self.home = home

    async def register(self, name: str, *, now: datetime) -> None:
        """Say that this data directory is looked after."""
        values = {"id": self.home, "name": name, "seen_at": now}
        async with self._db.write() as tx:
            await tx.execute(upsert(tx.dialect.name, homes, values, ("id",)), values)

    async def forget(
        self, folders: Sequence[str], what: Mapping[str, Any], *, in_store: bool, now: datetime
    ) -> None:
        """The folders must come back nowhere; `what` is to be erased in all other data directories,
        and `in_store` in the object store too. May be repeated."""
        key = hashlib.sha256(dump_json(what).encode()).hexdigest()
        async with self._db.write() as tx:
            names = [*await tx.scalars(sa.select(_H.id).where(_H.id != self.home))]
            for home in [*names, OBJECT_STORE] if in_store else names:
                values = {"home": home, "key": key, "what": dict(what), "tries": 0}
                row = insert_or_ignore(tx.dialect.name, file_erasures)
                await tx.execute(row.values(**values, asked_at=now, due_at=now))
            for path in folders:
                place = insert_or_ignore(tx.dialect.name, forgotten_folders)
                await tx.execute(place.values(path=path, at=now))
                inside = _L.path.startswith(f"{path}/", autoescape=True)
                await tx.execute(sa.delete(late_files).where(inside))

    async def is_forgotten(self, path: str) -> bool:
        folders = [str(each) for each in PurePosixPath(path).parents]
        query = sa.select(_F.path).where(_F.path.in_(folders)).limit(1)
        return await self._db.fetch_value(query) is not None

    async def list_due_erasures(self, now: datetime) -> Sequence[FileErasure]:
        """Of this data directory and of the object store."""
        mine = _E.home.in_([self.home, OBJECT_STORE])
        query = sa.select(file_erasures).where(mine, _E.due_at <= now).order_by(_E.asked_at)
        return records_from(FileErasure, await self._db.fetch_all(query))

    async def drop_erasure(self, erasure: FileErasure) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(file_erasures).where(*_key_of(erasure)))

    async def retry_erasure(self, erasure: FileErasure, *, now: datetime) -> None:
        async with self._db.write() as tx:
            later = {"tries": erasure.tries + 1, "due_at": now + _delay(erasure.tries)}
            await tx.execute(sa.update(file_erasures).where(*_key_of(erasure)).values(later))

    async def add_late(self, path: str, task_id: TaskId, *, now: datetime) -> None:
        values: dict[str, Any] = {"path": path, "home": self.home, "task_id": task_id, "tries": 1}
        values |= {"is_told": False, "due_at": now + _delay(0)}
        async with self._db.write() as tx:
            await tx.execute(upsert(tx.dialect.name, late_files, values, ("path",)), values)

    async def find_late(self, path: str) -> LateFile | None:
        query = sa.select(late_files).where(_L.path == path)
        return record_from(LateFile, await self._db.fetch_one(query))

    async def list_late(self, paths: Sequence[str]) -> Sequence[str]:
        """Those of them that only another data directory has."""
        query = sa.select(_L.path).where(_L.path.in_(paths), _L.home != self.home)
        late = await self._db.fetch_column(query)
        return [each for each in paths if each in late]

    async def list_due_late(self, now: datetime) -> Sequence[LateFile]:
        """Of this data directory."""
        query = sa.select(late_files).where(_L.home == self.home, _L.due_at <= now)
        return records_from(LateFile, await self._db.fetch_all(query.order_by(_L.path)))

    async def mark_told(self, tx: Transaction, paths: Sequence[str]) -> None:
        """The files have to follow a card that goes out without them. Raises NotLate if one is out
        meanwhile."""
        told = sa.update(late_files).where(_L.path.in_(paths)).values(is_told=True)
        if (await tx.execute(told)).rowcount != len(set(paths)):
            raise NotLate

    async def drop_late(self, tx: Transaction, path: str) -> bool:
        """Returns whether the file has to follow."""
        gone = sa.delete(late_files).where(_L.path == path).returning(_L.is_told)
        return bool((await tx.execute(gone)).scalar())

    async def retry_late(self, late: LateFile, *, now: datetime) -> None:
        async with self._db.write() as tx:
            later = {"tries": late.tries + 1, "due_at": now + _delay(late.tries)}
            await tx.execute(sa.update(late_files).where(_L.path == late.path).values(later))


async def list_waiting_homes(db: Database, now: datetime) -> Sequence[WaitingHome]:
    """The places that have not erased for long what they were asked to."""
    asked = sa.func.min(_E.asked_at)
    place = sa.func.coalesce(_H.name, "").label("place")
    query = (
        sa.select(place, _H.seen_at, asked.label("asked_at"), sa.func.count().label("erasures"))
        .select_from(file_erasures.outerjoin(homes, _H.id == _E.home))
        .group_by(_E.home, _H.name, _H.seen_at)
        .having(asked < now - _ERASURE_PATIENCE)
        .order_by(asked)
    )
    return records_from(WaitingHome, await db.fetch_all(query))


async def remove_home(tx: Transaction, place: str, *, now: datetime) -> int:
    """Wait no longer for a data directory that is gone for good: it is asked for nothing more, and
    its late files come no more. Returns how many erasures it owed. Raises NotFound, and WrongState
    if it is looked after."""
    rows = (await tx.execute(sa.select(homes).where(_H.name == place))).all()
    if not rows:
        raise NotFound("place", place)
    if any(now - each.seen_at <= HOME_SILENT_AFTER for each in rows):
        raise WrongState("place", place, "in use")
    ids = [each.id for each in rows]
    owed = await tx.execute(sa.delete(file_erasures).where(_E.home.in_(ids)))
    await tx.execute(sa.delete(late_files).where(_L.home.in_(ids)))
    await tx.execute(sa.delete(homes).where(_H.id.in_(ids)))
    return owed.rowcount


async def drop_late_files(tx: Transaction, task_id: TaskId) -> None:
    """They are not sent any more."""
    await tx.execute(sa.delete(late_files).where(_L.task_id == task_id))


def _key_of(erasure: FileErasure) -> tuple[sa.ColumnElement[bool], ...]:
    return _E.home == erasure.home, _E.key == erasure.key


def _delay(tries: int) -> timedelta:
    seconds = _FIRST_SECONDS * 2.0 ** min(tries, 7)
    return timedelta(seconds=min(_LONGEST_SECONDS, seconds))
