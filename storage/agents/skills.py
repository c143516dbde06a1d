"""Which skills owners have let in, by exact hash, and what those files were."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from storage.agents import tables
from storage.db import Database
from storage.dialect import upsert
from storage.marks import Marks
from storage.records.workers.skills import SeenSkill, SkillDecision

_ALL = select(tables.skills).order_by(tables.skills.c.decided_at)


class SkillRepo:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._marks = Marks(db)

    async def decisions(self) -> Sequence[SkillDecision]:
        """Oldest first."""
        async with self._db.read() as view:
            rows = (await view.execute(_ALL)).all()
        return [
            SkillDecision(
                name=row.name,
                hash=row.hash,
                source=row.source,
                enabled=row.enabled,
                decided_by=row.decided_by,
                decided_at=row.decided_at,
            )
            for row in rows
        ]

    async def decide(self, decision: SkillDecision, seen: SeenSkill | None = None) -> None:
        """The last decision about a hash counts. `seen` is kept with one that enables it."""
        values = {
            "name": decision.name,
            "hash": decision.hash,
            "source": decision.source,
            "enabled": decision.enabled,
            "decided_by": decision.decided_by,
            "decided_at": decision.decided_at,
        }
        async with self._db.write() as tx:
            await tx.execute(
                upsert(tx.dialect.name, tables.skills, values, ("name", "hash")), values
            )
            if seen is not None:
                kept = {"files": seen.files, "text": seen.text}
                await self._marks.write(tx, _mark(decision.hash), kept)

    async def seen(self, hash: str) -> SeenSkill | None:
        """What was enabled under this hash, where that is known."""
        kept = await self._marks.get(_mark(hash))
        return None if kept is None else SeenSkill(files=kept["files"], text=kept["text"])


def _mark(hash: str) -> str:
    return f"skill:{hash}"
