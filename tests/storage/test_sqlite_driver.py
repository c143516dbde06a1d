from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from storage.errors import ConcurrentUpdate
from storage.sqlite_driver import BatchingConnection
from tests.waiting import WAIT_SECONDS, wait_until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, word TEXT NOT NULL)")
    return path


@pytest.fixture(params=[False, True], ids=["patient", "hasty"])
async def connection(
    file: Path, request: pytest.FixtureRequest
) -> AsyncIterator[BatchingConnection]:
    made = BatchingConnection(
        lambda: sqlite3.connect(file, isolation_level=None, check_same_thread=False),
        skip_rollback_wait=request.param,
    )
    await made
    yield made
    await made.close()


async def words(connection: BatchingConnection) -> list[str]:
    answer = await connection.run_statement("SELECT word FROM t ORDER BY n", ())
    return [word for (word,) in answer.rows]


def committed(file: Path) -> int:
    with closing(sqlite3.connect(file)) as other:
        (n,) = other.execute("SELECT count(*) FROM t").fetchone()
        return int(n)


async def test_what_goes_along_is_seen_by_the_next_answer_and_kept_by_the_commit(
    connection: BatchingConnection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    connection.enqueue("INSERT INTO t (word) VALUES (?)", ("one",))
    connection.enqueue("INSERT INTO t (word) VALUES (?)", ("two",))

    assert await words(connection) == ["one", "two"]
    assert committed(file) == 0
    connection.enqueue("INSERT INTO t (word) VALUES (?)", ("three",))
    await connection.commit()

    assert committed(file) == 3


async def test_a_rollback_takes_all_back_whether_it_was_run_yet_or_not(
    connection: BatchingConnection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    await connection.run_statement("INSERT INTO t (word) VALUES (?)", ("run",))
    connection.enqueue("INSERT INTO t (word) VALUES (?)", ("not yet",))

    await connection.rollback()

    assert await words(connection) == []
    assert committed(file) == 0


async def test_what_fails_on_the_way_fails_the_statement_and_says_which_it_was(
    connection: BatchingConnection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    connection.enqueue("INSERT INTO t (word) VALUES (?)", ("one",))
    connection.enqueue("INSERT INTO t (word) VALUES (?)", (None,))

    with pytest.raises(sqlite3.IntegrityError) as failed:
        await connection.commit()
    await connection.rollback()

    assert failed.value.__notes__ == ["in: INSERT INTO t (word) VALUES (?)"]
    assert await words(connection) == []
    assert committed(file) == 0


async def test_what_must_change_a_row_and_changes_none_keeps_all_that_follows_from_being_run(
    connection: BatchingConnection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    connection.enqueue("UPDATE t SET word = 'two' WHERE word = 'one'", (), must_change=True)
    connection.enqueue("INSERT INTO t (word) VALUES ('after it')", ())
    with pytest.raises(ConcurrentUpdate):
        await connection.commit()
    await connection.rollback()
    assert committed(file) == 0

    connection.begin("BEGIN IMMEDIATE")
    connection.enqueue("INSERT INTO t (word) VALUES ('one')", ())
    connection.enqueue("UPDATE t SET word = 'two' WHERE word = 'one'", (), must_change=True)
    await connection.commit()

    assert await words(connection) == ["two"]


async def test_an_empty_transaction_leaves_the_file_to_others(
    connection: BatchingConnection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    await connection.commit()
    connection.begin("BEGIN IMMEDIATE")
    await connection.rollback()

    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert await words(connection) == []


async def test_a_cancelled_statement_is_rolled_back_though_nobody_heard_of_it(
    connection: BatchingConnection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    asked = asyncio.create_task(
        connection.cursor().execute("INSERT INTO t (word) VALUES (?)", ("run",))
    )
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)

    await connection.rollback()

    assert await words(connection) == []
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")


async def test_a_stopped_connection_that_is_closed_does_not_wait_for_its_ended_thread(
    file: Path,
) -> None:
    connection = BatchingConnection(
        lambda: sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    )
    await connection
    busy, go = threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        go.wait()

    connection._tx.put_nowait((None, work))
    await asyncio.to_thread(busy.wait)
    closing_down = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    # What SQLAlchemy does when a graceful close is cancelled.
    connection.stop()
    closing_down.cancel()
    go.set()

    done, _ = await asyncio.wait([closing_down], timeout=WAIT_SECONDS)

    assert done


@pytest.mark.parametrize("is_open", [False, True])
def test_an_answer_after_the_loop_was_closed_is_dropped_and_the_thread_ends(
    file: Path, is_open: bool
) -> None:
    """A task can be cancelled while it opens a connection, or at a statement; its loop may be
    closed before the thread has got to the end of that."""
    thread_waits, loop_closed = threading.Event(), threading.Event()

    def wait_in_thread() -> None:
        thread_waits.set()
        loop_closed.wait()

    def connect() -> sqlite3.Connection:
        if not is_open:
            wait_in_thread()
        return sqlite3.connect(file, isolation_level=None, check_same_thread=False)

    async def use(connection: BatchingConnection) -> None:
        await connection
        connection._tx.put_nowait((None, wait_in_thread))
        await connection.run_statement("SELECT word FROM t", ())

    async def cancel_use(connection: BatchingConnection) -> None:
        using = asyncio.create_task(use(connection))
        await wait_until(thread_waits.is_set)
        using.cancel()
        await asyncio.gather(using, return_exceptions=True)
        connection.stop()

    connection = BatchingConnection(connect)
    asyncio.run(cancel_use(connection))
    loop_closed.set()
    connection._thread.join(timeout=WAIT_SECONDS)

    assert not connection._thread.is_alive()
