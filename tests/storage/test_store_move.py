"""A store moves from SQLite to PostgreSQL and back, whole, whatever happens on the way."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from storage import store_move
from storage.errors import MoveRefused, StoreMismatch
from storage.migrate import inspect_database
from storage.store_identity import prepare_store, read_marker
from storage.store_move import move_store
from tests.postgresql_server import create_database, execute
from tests.thoroughness import sampled

_HOSTILE = "0\x00 \U0001f989 一 'x' \\u0000 {}"
_FIRST_NUMBER = 7


def prepare(home: Path, url: str) -> None:
    prepare_store(home, url, before_migration=lambda _revision: None)


def make_home(tmp_path: Path) -> tuple[Path, str]:
    """A home whose store has rows of all kinds of values."""
    home = tmp_path / "home"
    home.mkdir()
    url = f"sqlite:///{home / 'shiftboss.db'}"
    (home / "shiftboss.db").touch()
    prepare(home, url)
    with closing(sqlite3.connect(home / "shiftboss.db")) as db, db:
        db.execute("INSERT INTO people VALUES ('p1', ?, 'owner', NULL, 0)", (_HOSTILE,))
        db.execute(
            "INSERT INTO chats (id, channel, external_id, kind, title, settings, person_id,"
            " created_at) VALUES ('c1', 'web', 'x', 'private', '', ?, 'p1', ?)",
            (json.dumps({"a": _HOSTILE, "b": [1.5, None]}, ensure_ascii=False), 2**53 + 1),
        )
        db.execute(
            "INSERT INTO inbox (id, channel, dedupe, chat_id, incoming, state, received_at)"
            " VALUES (?, 'web', 'd', 'c1', 'null', 'new', 1)",
            (_FIRST_NUMBER,),
        )
        db.execute("INSERT INTO memory_scopes (id, name, length) VALUES (1, 'person:p1', 0.1)")
        for n, value in enumerate(("1", "1.0", "1e16", "0.1", "-3", '"1"', "null")):
            db.execute("INSERT INTO marks VALUES (?, ?)", (f"number {n}", value))
        db.execute("INSERT INTO memory_postings VALUES (1, 0, '猫', ?)", (bytes(range(256)),))
    return home, url


def test_a_store_moves_to_postgresql_and_back(tmp_path: Path) -> None:
    home, file = make_home(tmp_path)
    server = create_database(migrated=False)

    there = move_store(home, file, server)
    assert there.tables["memory_postings"].rows == 1
    with pytest.raises(StoreMismatch, match="moved to postgresql"):
        prepare(home, file)
    prepare(home, server)
    again = execute(
        server,
        "INSERT INTO inbox (channel, dedupe, chat_id, incoming, state, received_at)"
        " VALUES ('web', 'e', 'c1', 'null', 'new', 1) RETURNING id",
    )
    assert again == [(_FIRST_NUMBER + 1,)], "numbers go on after those that were moved"
    execute(server, f"DELETE FROM inbox WHERE id > {_FIRST_NUMBER}")

    back = move_store(home, server, file)
    with pytest.raises(StoreMismatch, match="moved to"):
        prepare(home, server)
    prepare(home, file)

    changed = {"marks"}
    for name, table in there.tables.items():
        assert name in changed or back.tables[name] == table
    with closing(sqlite3.connect(home / "shiftboss.db")) as db:
        assert db.execute("SELECT name FROM people").fetchone() == (_HOSTILE.replace("\x00", "�"),)
        assert db.execute("SELECT data FROM memory_postings").fetchone() == (bytes(range(256)),)


class Killed(BaseException):
    """As kill -9 would be: nothing after it runs but what the databases do themselves."""


_POINTS = [
    ("_copy_into", "after", False),
    ("_finish", "before", False),
    ("set_marks", "after", True),
    *product(
        ("set_marks", "_copy_into", "_finish", "copy_store"), ("before", "after"), (False, True)
    ),
    *product(("fsync_path",), ("before", "after"), (True,)),
]


@pytest.mark.parametrize(("point", "when", "back"), _POINTS[: sampled(len(_POINTS), 3)])
def test_a_move_killed_at_any_point_is_finished_by_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, when: str, back: bool
) -> None:
    home, source = make_home(tmp_path)
    target = create_database(migrated=False)
    if back:
        move_store(home, source, target)
        source, target = target, source
    real: Callable[..., Any] = getattr(store_move, point)

    def die(*args: Any) -> None:
        if when == "after":
            real(*args)
        raise Killed

    monkeypatch.setattr(store_move, point, die)
    with suppress(Killed):
        move_store(home, source, target)
    monkeypatch.undo()
    usable = [url for url in (source, target) if can_start(home, url)]
    assert len(usable) <= 1

    if usable != [target]:
        move_store(home, source, target)
    assert not can_start(home, source)
    prepare(home, target)
    with pytest.raises(MoveRefused, match=r"already|moved to"):
        move_store(home, target, target)


def can_start(home: Path, url: str) -> bool:
    facts, marker = inspect_database(url), read_marker(home)
    if facts is None or facts.revision is None or marker is None:
        return False
    return facts.store_id == marker.id and not facts.moved_to and not facts.is_arriving


def test_a_target_that_cannot_take_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    home, source = make_home(tmp_path)
    foreign = create_database(migrated=False)
    execute(foreign, "CREATE TABLE customers (id int)")
    empty = make_url(create_database(migrated=False))
    weak = empty.update_query_dict({"options": "-c role=pg_monitor"})

    for target, said in (
        (create_database(migrated=False, encoding="SQL_ASCII"), "stores text as SQL_ASCII"),
        (empty.set(database="nowhere").render_as_string(hide_password=False), "does not exist"),
        (weak.render_as_string(hide_password=False), "permission denied"),
        (foreign, "another program"),
        (create_database(), "another store"),
        (source, "already"),
    ):
        with pytest.raises(MoveRefused, match=said):
            move_store(home, source, target)

    prepare(home, source)


def test_a_store_in_use_elsewhere_is_not_moved(tmp_path: Path) -> None:
    home, file = make_home(tmp_path)
    server = create_database(migrated=False)
    move_store(home, file, server)
    import psycopg

    with (
        psycopg.connect(server, application_name="shiftboss"),
        pytest.raises(MoveRefused, match="1 connections of running"),
    ):
        move_store(home, server, file)


def test_two_homes_do_not_share_a_database(tmp_path: Path) -> None:
    server = create_database()
    first, second = tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        home.mkdir()

    prepare(first, server)
    prepare(first, server)
    with pytest.raises(StoreMismatch, match=f"another data directory .*{first}"):
        prepare(second, server)

    assert read_marker(second) is None
