"""Small facts the program keeps about itself, by name: a counter, a date, a last choice."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, select

from storage.db import Database, Transaction
from storage.dialect import upsert
from storage.schema import marks

_VALUE = select(marks.c.value).where(marks.c.name == bindparam("name"))


class Marks:
    """Values are JSON; None and an absent mark are the same."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, name: str) -> Any:
        async with self._db.read() as view:
            return await self.read(view, name)

    async def put(self, name: str, value: Any) -> None:
        async with self._db.write() as tx:
            await self.write(tx, name, value)

    async def read(self, tx: Transaction, name: str) -> Any:
        return (await tx.execute(_VALUE, {"name": name})).scalar()

    async def write(self, tx: Transaction, name: str, value: Any) -> None:
        values = {"name": name, "value": value}
        await tx.execute(upsert(tx.dialect.name, marks, values, ("name",)), values)
