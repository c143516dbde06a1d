"""Stores owners' decisions about skills, by exact hash, and the enabled files."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from storage import schema
from storage.db import Database, records_from, row_from
from storage.dialect import upsert
from storage.key_value import KeyValueStore
from storage.records.skills import EnabledSkillSnapshot, SkillDecision

_ALL_DECISIONS = select(schema.skills).order_by(schema.skills.c.decided_at)


class SkillRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._key_values = KeyValueStore(db)

    async def list_decisions(self) -> Sequence[SkillDecision]:
        """All decisions, oldest first."""
        return records_from(SkillDecision, await self._db.fetch_all(_ALL_DECISIONS))

    async def save_decision(
        self, decision: SkillDecision, snapshot: EnabledSkillSnapshot | None = None
    ) -> None:
        """The last decision about a hash counts. `snapshot` is stored with one that enables it."""
        values = row_from(decision)
        async with self._db.write() as tx:
            await tx.execute(
                upsert(tx.dialect.name, schema.skills, values, ("name", "hash")), values
            )
            if snapshot is not None:
                kept = row_from(snapshot)
                await self._key_values.write(tx, _snapshot_key(decision.hash), kept)

    async def find_enabled_snapshot(self, hash: str) -> EnabledSkillSnapshot | None:
        """The files enabled under this hash, if known."""
        kept = await self._key_values.get(_snapshot_key(hash))
        return None if kept is None else EnabledSkillSnapshot(**kept)


def _snapshot_key(hash: str) -> str:
    return f"skill:{hash}"
