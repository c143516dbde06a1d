"""The check of the store: broken pages, rows and files of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bot.engine.autonomy.checks.storage import StoreHealthCheck
from storage.store_check import CheckFinding, check_quickly
from tests.bot.engine.autonomy.checks.health_world import HealthWorld, found_by, health_world


def check_of(world: HealthWorld, seconds: float = 20) -> StoreHealthCheck:
    return StoreHealthCheck(home=world.home, database=world.database, seconds=seconds)


async def test_a_sound_store_passes(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        assert await found_by(check_of(world)) == {}


async def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.run_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        size = world.database.stat().st_size
        with world.database.open("r+b") as file:
            file.seek(size // 2 // 4096 * 4096)
            file.write(b"\xff" * 4096)

        found = await found_by(check_of(world))

        assert found["store_page"].points >= 40


async def test_a_missing_table_is_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.run_sql("DROP TABLE task_graphs")

        found = await found_by(check_of(world))

        assert "task_graphs" in str(found["store_table"].facts["first"])


async def test_a_task_without_its_graph_and_a_missing_file_are_found(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        world.add_task("ab12cd", "blocked", graph_version=1, files='["files/inbox/2/a.txt"]')
        (tmp_path / "files/tasks/zz99zz").mkdir(parents=True)

        found = await found_by(check_of(world))

        assert "ab12cd" in str(found["store_missing_row"].facts["first"])
        assert "files/inbox/2/a.txt" in str(found["store_missing_file"].facts["first"])
        assert not found["store_orphan"].is_told, "it costs only space"


async def test_a_store_too_large_to_read_in_time_is_no_problem(tmp_path: Path) -> None:
    async with health_world(tmp_path) as world:
        rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 20000)"
        world.run_sql(f"INSERT INTO marks (name, value) {rows} SELECT 'n' || i, '0' FROM n")

        found = await found_by(check_of(world, seconds=0))

        assert [*found] == ["store_unfinished"]
        assert found["store_unfinished"].points == 0


async def test_a_stop_ends_the_look_at_the_store(tmp_path: Path) -> None:
    begun, ended = Event(), Event()

    def look(*_: Any, is_stopped: Callable[[], bool], **__: Any) -> Sequence[CheckFinding]:
        begun.set()
        try:
            with pytest.raises(TimeoutError):
                # The query is without an end.
                check_quickly(tmp_path, world.database, seconds=1e9, is_stopped=is_stopped)
        finally:
            ended.set()
        return ()

    async with health_world(tmp_path) as world:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        # Not constants: SQLite would see before it looks that no row is asked for.
        path = "CASE WHEN i > 0 THEN '@plan' END"
        row = f"SELECT '' AS task_id, {path} AS path, {path} AS status FROM n"
        world.run_sql("ALTER TABLE node_runs RENAME TO kept_runs")
        world.run_sql(f"CREATE VIEW node_runs AS {endless} {row}")
        check = StoreHealthCheck(home=world.home, database=world.database, look=look)
        looking = asyncio.create_task(check.find())
        await asyncio.to_thread(begun.wait)

        looking.cancel()

        await asyncio.to_thread(ended.wait)
        with pytest.raises(asyncio.CancelledError):
            await looking
