from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from storage.errors import Overtaken
from storage.sqlite.driver import Connection


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, word TEXT NOT NULL)")
    return path


@pytest.fixture(params=[False, True], ids=["patient", "hasty"])
async def connection(file: Path, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    made = Connection(
        lambda: sqlite3.connect(file, isolation_level=None, check_same_thread=False),
        hasty=request.param,
    )
    await made
    yield made
    await made.close()


async def words(connection: Connection) -> list[str]:
    answer = await connection.ask("SELECT word FROM t ORDER BY n", ())
    return [word for (word,) in answer.rows]


def committed(file: Path) -> int:
    with closing(sqlite3.connect(file)) as other:
        (n,) = other.execute("SELECT count(*) FROM t").fetchone()
        return int(n)


async def test_what_goes_along_is_seen_by_the_next_answer_and_kept_by_the_commit(
    connection: Connection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    connection.later("INSERT INTO t (word) VALUES (?)", ("one",))
    connection.later("INSERT INTO t (word) VALUES (?)", ("two",))

    assert await words(connection) == ["one", "two"]
    assert committed(file) == 0
    connection.later("INSERT INTO t (word) VALUES (?)", ("three",))
    await connection.commit()

    assert committed(file) == 3


async def test_a_rollback_takes_all_back_whether_it_was_run_yet_or_not(
    connection: Connection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    await connection.ask("INSERT INTO t (word) VALUES (?)", ("run",))
    connection.later("INSERT INTO t (word) VALUES (?)", ("not yet",))

    await connection.rollback()

    assert await words(connection) == []
    assert committed(file) == 0


async def test_what_fails_on_the_way_fails_the_statement_and_says_which_it_was(
    connection: Connection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    connection.later("INSERT INTO t (word) VALUES (?)", ("one",))
    connection.later("INSERT INTO t (word) VALUES (?)", (None,))

    with pytest.raises(sqlite3.IntegrityError) as failed:
        await connection.commit()
    await connection.rollback()

    assert failed.value.__notes__ == ["in: INSERT INTO t (word) VALUES (?)"]
    assert await words(connection) == []
    assert committed(file) == 0


async def test_what_must_change_a_row_and_changes_none_keeps_all_that_follows_from_being_run(
    connection: Connection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    connection.later("UPDATE t SET word = 'two' WHERE word = 'one'", (), must=True)
    connection.later("INSERT INTO t (word) VALUES ('after it')", ())
    with pytest.raises(Overtaken):
        await connection.commit()
    await connection.rollback()
    assert committed(file) == 0

    connection.begin("BEGIN IMMEDIATE")
    connection.later("INSERT INTO t (word) VALUES ('one')", ())
    connection.later("UPDATE t SET word = 'two' WHERE word = 'one'", (), must=True)
    await connection.commit()

    assert await words(connection) == ["two"]


async def test_an_empty_transaction_leaves_the_file_to_others(
    connection: Connection, file: Path
) -> None:
    connection.begin("BEGIN IMMEDIATE")
    await connection.commit()
    connection.begin("BEGIN IMMEDIATE")
    await connection.rollback()

    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert await words(connection) == []


async def test_a_cancelled_statement_is_rolled_back_though_nobody_heard_of_it(
    connection: Connection, file: Path
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
