"""Only a message that really died in six lives may be put aside, and never without an apology."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.inspection import witness_file
from tests.chaos.skipped_messages import (
    count_deaths,
    rightly_skipped,
    skipped_without_effect,
    wrongly_skipped,
)

CUT = ["a life", "begins 4", "died sendMessage:before:1"]
FIRST = ["a life", "moved inbox.>new 4", "died inbox._store:after:1"]
OTHER = ["a life", "begins 5", "died sendMessage:before:2"]
UNCOUNTED = ["a life", "begins 4", "died inbox.count_attempt:before:1"]
KILLED = ["a life", "begins 4"]
NOTHING = ["a life", "died people.ensure_owners:before:1"]
LAST = ["a life", "begins 4", "moved inbox.new>failed 4"]


@pytest.mark.parametrize(
    ("lives", "deaths"),
    [
        ([FIRST, *[CUT] * 5, LAST], 6),
        ([FIRST, *[CUT] * 4, KILLED, LAST], 6),
        ([FIRST, *[CUT] * 4, LAST], 5),
        ([FIRST, *[CUT] * 4, OTHER, LAST], 5),
        ([FIRST, *[CUT] * 4, UNCOUNTED, LAST], 5),
        ([FIRST, *[CUT] * 4, NOTHING, LAST], 5),
        ([*[FIRST], [*LAST, "died outbox.mark_shown:before:1"], NOTHING], 1),
    ],
)
def test_only_crashes_while_a_message_is_handled_count(
    lives: Sequence[Sequence[str]], deaths: int
) -> None:
    assert count_deaths([line for life in lives for line in life], 4) == deaths


@pytest.mark.parametrize(
    ("deaths", "error", "told", "is_right"),
    [
        (6, "failed 6 times", True, True),
        (7, "failed 7 times", True, True),
        (6, "failed 7 times", True, False),
        (5, "failed 6 times", True, False),
        (6, "failed 6 times", False, False),
        (6, "failed 3 times", True, False),
    ],
)
def test_a_message_is_skipped_only_after_six_crashes_and_with_an_apology(
    tmp_path: Path, deaths: int, error: str, told: bool, is_right: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with closing(sqlite3.connect(home / "shiftboss.db")) as store:
        store.execute("CREATE TABLE inbox (id, state, error, outcome)")
        store.execute("CREATE TABLE outbox (key)")
        store.execute("INSERT INTO inbox VALUES (4, 'failed', ?, '')", (error,))
        store.execute("INSERT INTO inbox VALUES (3, 'failed', ?, 'joined 4')", (error,))
        if told:
            store.execute("INSERT INTO outbox VALUES ('reply:4')")
        store.commit()
    points = [line for life in [*[CUT] * deaths, LAST] for line in life]

    assert rightly_skipped(home, points) == ({3, 4} if is_right else set())
    assert bool(wrongly_skipped(home, points)) is not is_right


@pytest.mark.parametrize(
    ("task", "written", "is_sent_again"),
    [("", "", True), ("message:7:m1", "", False), ("", "hand:inbox:4", False)],
)
def test_only_a_message_that_led_to_nothing_is_sent_again(
    tmp_path: Path, task: str, written: str, is_sent_again: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with closing(sqlite3.connect(home / "shiftboss.db")) as store:
        store.execute("CREATE TABLE inbox (id, state, error, outcome, incoming, chat_id)")
        store.execute("CREATE TABLE outbox (key)")
        store.execute("CREATE TABLE tasks (source)")
        message = json.dumps({"kind": "message", "message_id": "m1", "text": "/memory add tea"})
        store.execute(
            "INSERT INTO inbox VALUES (4, 'failed', 'failed 6 times', '', ?, 7)", (message,)
        )
        store.execute("INSERT INTO outbox VALUES ('reply:4')")
        store.execute("INSERT INTO tasks VALUES (?)", (task,))
        store.commit()
    witness_file(home).write_text("\n".join(each for life in [*[CUT] * 6, LAST] for each in life))

    found = list(skipped_without_effect(home, told=(), written={written}))

    assert found == ([(4, "/memory add tea")] if is_sent_again else [])
