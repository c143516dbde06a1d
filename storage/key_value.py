"""Stores small named values: counters, dates, last choices."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, select

from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.schema import marks

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
