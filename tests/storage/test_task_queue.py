"""Ten thousand tasks wait: who is next is found by index, whatever they wait for."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, update

from storage import schema
from storage.db import Database
from storage.records.tasks import TaskPriority, TaskStatus
from storage.task_queue import TaskQueue
from storage.tasks import TaskRepo
from tests.engine_harness import BOSS, CHAT, START, open_seeded_database
from tests.postgresql_server import sqlite_only

PATIENCE = timedelta(hours=12)
LEASE = timedelta(seconds=90)
MANY = 10_000
TABLES = ("SCAN tasks", "SCAN busy", "SCAN held", "SCAN other")


@pytest.fixture
async def db(tmp_path: Path) -> AsyncGenerator[Database, None]:
    async with AsyncExitStack() as stack:
        yield await open_seeded_database(tmp_path / "shiftboss.db", stack)


def row(n: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"t{n:05}",
        "source": f"s{n}",
        "title": f"task {n}",
        "instruction": "Do it.",
        "priority": "normal",
        "rank": 3,
        "status": "pending",
        "phase": "queued",
        "control": "run",
        "chat_id": CHAT.id,
        "created_by": BOSS.id,
        "project_dir": "",
        "files": [],
        "holds_dir": False,
        "let_in": False,
        "outside": False,
        "created_at": START + timedelta(seconds=n),
        "waiting_since": START + timedelta(seconds=n),
        **changes,
    }


async def fill(db: Database, *rows: dict[str, Any]) -> None:
    async with db.write() as tx:
        await tx.execute(insert(schema.tasks), list(rows))


async def instructions(db: Database, path: Path, sql: list[tuple[str, Any]]) -> dict[str, int]:
    """How many steps of SQLite's machine each statement takes now."""
    taken: dict[str, int] = {}
    with closing(sqlite3.connect(path)) as store:
        store.execute("BEGIN")
        for statement, values in sql:
            count = 0

            def tick() -> int:
                nonlocal count
                count += 1
                return 0

            store.set_progress_handler(tick, 10)
            store.execute(statement, values).fetchall()
            store.set_progress_handler(None, 10)
            taken[statement] = count * 10
        store.execute("ROLLBACK")
    return taken


async def spoken(db: Database) -> list[tuple[str, Any]]:
    """The statements of a claim, and of looking who must make room."""
    said: list[tuple[str, Any]] = []

    def listen(_c: object, _cursor: object, statement: str, values: Any, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            said.append((statement, values))

    engine = db._writer.sync_engine
    event.listen(engine, "before_cursor_execute", listen)
    queue = TaskQueue(db)
    now = START + timedelta(hours=6)
    async with db.write() as tx:
        await queue.claim(tx, owner="o", now=now, lease=LEASE, aging_after=PATIENCE)
        running = await queue.list_running(tx)
        await queue.list_preempting_candidates(tx, 3, running=running)
        await queue.list_due(tx, now)
        await tx.rollback()
    event.remove(engine, "before_cursor_execute", listen)
    return said


@sqlite_only("its plans of queries")
async def test_every_statement_of_a_claim_goes_by_an_index(db: Database, tmp_path: Path) -> None:
    await fill(db, row(0), row(1, status="running", project_dir="/p", holds_dir=True))
    with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as store:
        for statement, values in await spoken(db):
            plan = store.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            scans = {line[3] for line in plan if line[3].startswith(TABLES)}
            # The holders are read whole, in their own small index.
            assert scans <= {"SCAN held USING INDEX ix_tasks_holders"}, statement
            if "rank > 1" in statement:
                assert any("ix_tasks_aging" in line[3] for line in plan), plan


@sqlite_only("counts its instructions")
@pytest.mark.parametrize("projects", ["none", "each its own"])
async def test_ten_thousand_waiting_tasks_cost_no_more_than_ten(
    db: Database, tmp_path: Path, projects: str
) -> None:
    def of(n: int) -> str:
        return "" if projects == "none" else f"/p{n}"

    path = tmp_path / "shiftboss.db"
    await fill(db, *(row(n, project_dir=of(n)) for n in range(10)))
    few = sum((await instructions(db, path, await spoken(db))).values())
    await fill(db, *(row(n, project_dir=of(n)) for n in range(10, MANY)))
    many = sum((await instructions(db, path, await spoken(db))).values())

    assert many < 2 * few


@sqlite_only("counts its instructions")
@pytest.mark.parametrize("victim", ["urgent", "normal"])
async def test_ten_thousand_tasks_of_one_busy_project_cost_no_more_than_fifty(
    db: Database, tmp_path: Path, victim: str
) -> None:
    path = tmp_path / "shiftboss.db"
    rank = TaskPriority(victim).rank
    await fill(
        db,
        row(0, status="running", project_dir="/p", holds_dir=True, priority="urgent", rank=1),
        row(1, status="running", priority=victim, rank=rank),
        *(row(n, project_dir="/p", priority="urgent", rank=1) for n in range(2, 50)),
    )
    few = sum((await instructions(db, path, await spoken(db))).values())
    await fill(db, *(row(n, project_dir="/p", priority="urgent", rank=1) for n in range(50, MANY)))
    many = sum((await instructions(db, path, await spoken(db))).values())

    assert many < 1.2 * few


async def test_who_may_start_is_found_behind_any_number_of_those_who_may_not(db: Database) -> None:
    queue = TaskQueue(db)
    await fill(
        db,
        row(0, status="running", project_dir="/busy", holds_dir=True),
        row(1, project_dir="/left", holds_dir=True, status="paused"),
        *(row(n, project_dir="/busy") for n in range(2, 100)),
        *(row(n, project_dir="/left") for n in range(100, 200)),
        row(200, project_dir="/left", let_in=True),
        row(201, project_dir="/own", holds_dir=True),
        row(202, project_dir="/own"),
        row(203, project_dir="/free"),
        row(204, project_dir="/free"),
        row(205),
        row(206),
        row(207, project_dir="/far", priority="urgent", rank=1, outside=True),
    )

    async def claim() -> str:
        async with db.write() as tx:
            task = await queue.claim(tx, owner="o", now=START, lease=LEASE, aging_after=PATIENCE)
        return "nobody" if task is None else task.title.removeprefix("task ")

    async with db.write() as tx:
        waiting = await queue.list_preempting_candidates(tx, 4)
    claimed = [await claim() for _ in range(6)]

    assert [task.title for task in waiting] == ["task 200", "task 201", "task 203", "task 204"]
    assert claimed == ["200", "201", "203", "205", "206", "nobody"]


async def test_those_who_wait_too_long_go_first_a_few_at_a_time(db: Database) -> None:
    queue, tasks = TaskQueue(db), TaskRepo(db)
    await fill(db, *(row(n) for n in range(50)), row(99, priority="urgent", rank=1))
    late = START + timedelta(hours=13)

    async def claim() -> str:
        async with db.write() as tx:
            task = await queue.claim(tx, owner="o", now=late, lease=LEASE, aging_after=PATIENCE)
        assert task is not None
        return task.title

    assert [await claim() for _ in range(3)] == ["task 99", "task 0", "task 1"]
    assert (await tasks.count_by_status())[TaskStatus.PENDING] == 48


async def test_nobody_makes_room_for_what_has_waited_long_but_is_no_more_important(
    db: Database,
) -> None:
    queue = TaskQueue(db)
    await fill(
        db,
        row(0, status="running"),
        row(1, rank=1, resumed_first=0),
        row(2, rank=1, resumed_first=0),
        row(3, priority="urgent", rank=1),
    )
    async with db.write() as tx:
        running = await queue.list_running(tx)
        waiting = await queue.list_preempting_candidates(tx, 1, running=running)

    assert [task.priority for task in waiting] == [TaskPriority.URGENT]


@pytest.mark.parametrize(("busy", "waits"), [("/a", "/a/b"), ("/a/b", "/a"), ("/", "/a")])
@pytest.mark.parametrize("left", [False, True])
async def test_work_in_a_folder_and_in_one_inside_it_takes_turns(
    db: Database, busy: str, waits: str, *, left: bool
) -> None:
    queue = TaskQueue(db)
    status = "paused" if left else "running"
    await fill(
        db,
        row(0, status=status, project_dir=busy, holds_dir=True),
        row(1, project_dir=waits),
        row(2, project_dir="/ab" if busy != "/" else ""),
        row(3),
    )

    assert [await _claimed(db, queue) for _ in range(3)] == ["task 2", "task 3", ""]

    async with db.write() as tx:
        await tx.execute(update(schema.tasks).where(schema.tasks.c.id == "t00000").values(**_OVER))
    assert await _claimed(db, queue) == "task 1"


async def test_who_is_let_in_may_start_inside_a_folder_left_half_done(db: Database) -> None:
    queue = TaskQueue(db)
    await fill(
        db,
        row(0, status="paused", project_dir="/a", holds_dir=True),
        row(1, project_dir="/a/b", let_in=True),
    )

    assert await _claimed(db, queue) == "task 1"


async def test_only_who_is_better_than_all_who_work_inside_makes_them_yield(db: Database) -> None:
    queue = TaskQueue(db)
    git = {"branch": "shiftboss/x"}
    await fill(
        db,
        row(0, status="running", project_dir="/a/b", **git),
        row(1, status="running", project_dir="/a/c", priority="important", rank=2, **git),
        row(2, project_dir="/a", priority="important", rank=2, **git),
        row(3, project_dir="/a", priority="urgent", rank=1, **git),
        row(4, project_dir="/a/b/x", priority="important", rank=2, **git),
    )
    async with db.write() as tx:
        running = await queue.list_running(tx)
        waiting = await queue.list_preempting_candidates(tx, 5, running=running)

    assert [task.title for task in waiting] == ["task 3", "task 4"]


async def test_who_is_waited_for_may_work_around_or_inside(db: Database) -> None:
    queue = TaskQueue(db)
    await fill(
        db,
        row(0, status="running", project_dir="/a/b", holds_dir=True),
        row(1, project_dir="/a"),
        row(2, project_dir="/ab"),
    )
    around, beside = await queue.list_first(5)
    holder = await queue.find_directory_holder(around)
    assert holder is not None
    assert holder.title == "task 0"
    assert await queue.find_directory_holder(beside) is None


_OVER = {"status": "completed", "holds_dir": False}


async def _claimed(db: Database, queue: TaskQueue) -> str:
    async with db.write() as tx:
        task = await queue.claim(tx, owner="o", now=START, lease=LEASE, aging_after=PATIENCE)
    return "" if task is None else task.title
