"""Stores small named values: counters, dates, last choices."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select

from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.schema import marks

_KEPT = timedelta(days=1)
_MAX_KEPT = 500
_SELECT_VALUE = select(marks.c.value).where(marks.c.name == bindparam("name"))


class KeyValueStore:
    """Values are JSON; a missing key reads as None."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, name: str) -> Any:
        return await self._db.fetch_value(_SELECT_VALUE, {"name": name})

    async def put(self, name: str, value: Any) -> None:
        async with self._db.write() as tx:
            await self.write(tx, name, value)

    async def read(self, tx: Transaction, name: str) -> Any:
        return (await tx.execute(_SELECT_VALUE, {"name": name})).scalar()

    async def write(self, tx: Transaction, name: str, value: Any) -> None:
        values = {"name": name, "value": value}
        await tx.execute(upsert(tx.dialect.name, marks, values, ("name",)), values)

    async def first_time(self, name: str, what: str, *, now: datetime) -> datetime:
        """When this was called first with `what`: now, or up to a day ago. The value `name` keeps
        the newest of these times."""
        async with self._db.write() as tx:
            known: dict[str, str] = await self.read(tx, name) or {}
            if (seen := known.get(what)) and now - datetime.fromisoformat(seen) < _KEPT:
                return datetime.fromisoformat(seen)
            known.pop(what, None)
            newest = dict([*known.items(), (what, now.isoformat())][-_MAX_KEPT:])
            await self.write(tx, name, newest)
        return now
