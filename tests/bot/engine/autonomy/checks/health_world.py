"""A real store with one owner, for the checks."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

from bot.engine.autonomy.check import SelfCheck
from cards.catalog import catalog_for
from cards.views.self_checks import finding_text, next_step_text
from storage.db import Database
from storage.key_value import KeyValueStore
from storage.records.autonomy import HealthFinding
from storage.records.people import Language
from storage.self_checks import HealthFigures
from tests.migrated_database import database_file, open_database

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)

_OWNER = """
INSERT INTO people VALUES ('p1', 'Ann', 'owner', 'en', 0);
INSERT INTO chats (id, channel, external_id, thread, kind, title, settings, created_at)
  VALUES ('c1', 'web', 'x', '', 'private', '', '{}', 0);
"""


def micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


@dataclass
class HealthWorld:
    home: Path
    db: Database
    time: datetime = NOW

    @property
    def figures(self) -> HealthFigures:
        return HealthFigures(self.db)

    @property
    def key_values(self) -> KeyValueStore:
        return KeyValueStore(self.db)

    @property
    def database(self) -> Path:
        return database_file(self.home)

    def now(self) -> datetime:
        return self.time

    def advance(self, **span: float) -> None:
        self.time += timedelta(**span)

    def run_sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.database)) as raw, raw:
            raw.executescript(script)

    def add_task(self, id: str, status: str, **columns: object) -> None:
        values = {
            "id": id,
            "source": id,
            "title": f"Title of {id}",
            "instruction": "x",
            "priority": "normal",
            "rank": 3,
            "status": status,
            "phase": "queued",
            "control": "run",
            "chat_id": "c1",
            "created_by": "p1",
            "files": "[]",
            "created_at": micros(NOW) - 1,
            "waiting_since": micros(NOW),
            **columns,
        }
        with closing(sqlite3.connect(self.database)) as raw, raw:
            marks = ", ".join("?" for _ in values)
            raw.execute(
                f"INSERT INTO tasks ({', '.join(values)}) VALUES ({marks})",
                [*values.values()],
            )

    def add_message_out(self, id: int, state: str, at: datetime, error: str = "") -> None:
        self.run_sql(
            "INSERT INTO outbox (id, key, chat_id, urgency, card, revision, state, due_at, error,"
            f" created_at, updated_at) VALUES ({id}, 'k{id}', 'c1', 1, '{{}}', 1, '{state}',"
            f" {micros(at)}, '{error}', {micros(at)}, {micros(at)})"
        )

    def state_out(self, id: int) -> str:
        with closing(sqlite3.connect(self.database)) as raw:
            query = "SELECT state FROM outbox WHERE id = ?"
            return str(raw.execute(query, (id,)).fetchone()[0])


@asynccontextmanager
async def health_world(home: Path) -> AsyncGenerator[HealthWorld, None]:
    async with open_database(home) as db:
        world = HealthWorld(home=home, db=db)
        world.run_sql(_OWNER)
        yield world


async def found_by(check: SelfCheck) -> dict[str, HealthFinding]:
    """What the check finds, by kind. Each has its texts, with all facts filled in."""
    found = await check.find()
    for each, language in product(found, Language):
        words = catalog_for(language)
        for text in (finding_text(each, words), next_step_text(each, words)):
            assert text
            assert not text.startswith("`self."), text
    return {each.text: each for each in found}
