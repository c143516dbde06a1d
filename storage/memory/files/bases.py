"""Files as they were written by us, number by number, without their words: what a person began
from who changes one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, bindparam, delete, func, select

from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.memory.markdown.began import Began
from storage.memory.tables import memory_files

KEPT = 50
"""Of one file; an editor that was opened before these removes nothing."""

DAYS = 7
"""For so long the older ones of a file are kept."""

_F = memory_files.c
_SIGN = "#"
_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """`number` counts what was written, from 1; `hash` is that of the whole file."""

    path: str
    number: int
    hash: str
    began: Began
    at: datetime

    def is_of(self, body: str) -> bool:
        return self.hash == hash_of(body)


class Bases:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def latest(self, path: str, *, tx: Transaction | None = None) -> Base | None:
        query = select(memory_files).where(_of_file(path)).order_by(_F.path.desc()).limit(1)
        async with self._db.read(tx) as view:
            row = (await view.execute(query)).one_or_none()
        return None if row is None else _base(row)

    async def numbered(self, path: str, number: int) -> Began | None:
        """What the file said when it was written for the n-th time."""
        async with self._db.read() as view:
            query = select(_F.body).where(_F.path == _key(path, number))
            body: str | None = await view.scalar(query)
        return None if body is None else Began.read(body)

    async def is_known(self, path: str, body: str) -> bool:
        """Whether we have written just this."""
        query = select(_F.path).where(_of_file(path), _F.hash == hash_of(body)).limit(1)
        async with self._db.read() as view:
            return await view.scalar(query) is not None

    async def put(self, base: Base) -> None:
        """Known before it is written into the file: a file never says what nobody remembers."""
        row = {
            "path": _key(base.path, base.number),
            "body": base.began.written(),
            "hash": base.hash,
            "at": base.at,
        }
        old = delete(memory_files).where(
            _of_file(base.path),
            (_F.path <= bindparam("last"))
            # What is just replaced lies beside the file for a while, and is to be known as ours.
            | ((_F.at < bindparam("since")) & (_F.path < bindparam("before"))),
        )
        facts = {
            "last": _key(base.path, max(0, base.number - KEPT)),
            "since": base.at - timedelta(days=DAYS),
            "before": _key(base.path, max(0, base.number - 1)),
        }
        async with self._db.write() as tx:
            await tx.execute(upsert(self._db.dialect, memory_files, row, ("path",)), row)
            await tx.execute(old, facts)

    async def drop(self, path: str) -> None:
        async with self._db.write() as tx:
            await tx.execute(delete(memory_files).where(_of_file(path)))

    async def all(self) -> Mapping[str, Base]:
        """How each file that is known was last written."""
        last = select(func.max(_F.path)).group_by(func.substr(_F.path, 1, _name_length()))
        query = select(memory_files).where(_F.path.in_(last)).order_by(_F.path)
        async with self._db.read() as view:
            found = [_base(row) for row in (await view.execute(query)).all()]
        return {each.path: each for each in found}


def _base(row: Row[Any]) -> Base:
    path, _, number = row.path.rpartition(_SIGN)
    began = Began.read(row.body)
    return Base(path=path, number=int(number), hash=row.hash, began=began, at=row.at)


def _name_length() -> ColumnElement[int]:
    return func.length(_F.path) - _DIGITS


def _of_file(path: str) -> ColumnElement[bool]:
    return _F.path.startswith(f"{path}{_SIGN}", autoescape=True)


def _key(path: str, number: int) -> str:
    return f"{path}{_SIGN}{number:0{_DIGITS}}"


def hash_of(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()
