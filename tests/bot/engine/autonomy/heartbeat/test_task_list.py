"""HEARTBEAT.md: which lines are tasks, and how they are changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.autonomy.heartbeat.task_list import (
    MAX_BYTES,
    add_task,
    append_task,
    complete_task,
    parse_tasks,
    read_task_file,
    tick_tasks,
)
from storage.records.autonomy import TaskFileState

LIST = """\
---
title: not a task
---
# Heartbeat Tasks

A paragraph is no task.
- [ ] Check the backups
* [x] Water the plants
+ [X] Call Ann
- Look at the inbox
  - [ ] indented
<!-- - [ ] a comment
- [ ] still the comment -->
- [ ]
-[ ] no blank
---
* * *
"""


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("", []),
        ("\n \n", []),
        ("# Heartbeat Tasks\n\nnothing here", []),
        ("- [ ] one", [(1, "one", False, True)]),
        ("* [ ] one\r\n+ [x] two\r\n", [(1, "one", False, True), (2, "two", True, True)]),
        ("\n\n- plain", [(3, "plain", False, False)]),
        (
            LIST,
            [
                (7, "Check the backups", False, True),
                (8, "Water the plants", True, True),
                (9, "Call Ann", True, True),
                (10, "Look at the inbox", False, False),
                (11, "indented", False, True),
            ],
        ),
    ],
)
def test_only_list_items_are_tasks(text: str, tasks: list[tuple[int, str, bool, bool]]) -> None:
    found = [(each.line, each.text, each.is_done, each.checkbox) for each in parse_tasks(text)]
    assert found == tasks


def test_the_first_open_line_with_the_text_is_ticked() -> None:
    text = "- [x] done\n- plain\n* [ ] one [ ] two\n- [ ] last\n- [ ] last\n"
    once = complete_task(text, "one [ ] two")
    assert once == "- [x] done\n- plain\n* [x] one [ ] two\n- [ ] last\n- [ ] last\n"
    assert complete_task(text, "last").endswith("- [x] last\n- [ ] last\n")
    for gone in ("plain", "done", "other"):
        assert complete_task(text, gone) == text, "nothing with this text is left to tick"


def test_a_task_is_added_below_the_others_or_a_heading() -> None:
    made = add_task("", "check\n  the - [x] backups")
    assert made == "# Heartbeat Tasks\n\n- [ ] check the - [x] backups\n"
    assert add_task(made, "two") == f"{made}- [ ] two\n"


@given(st.text())
def test_no_text_breaks_the_list(text: str) -> None:
    count = len(text.split("\n"))
    assert all(1 <= each.line <= count for each in parse_tasks(text))
    for task in parse_tasks(text)[:1]:
        assert len(parse_tasks(complete_task(text, task.text))) == len(parse_tasks(text))


def test_a_file_is_read_only_if_all_of_it_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "HEARTBEAT.md"
    assert read_task_file(path).state is TaskFileState.MISSING

    path.write_bytes(b"\xef\xbb\xbf- [ ] one\n")
    assert [each.text for each in read_task_file(path).pending] == ["one"]

    path.write_bytes(b"- [ ] one\n" + b"x" * MAX_BYTES)
    assert read_task_file(path).state is TaskFileState.TOO_LARGE

    for hostile in (b"- [ ] \0", b"- [ ] \xff\xfe"):
        path.write_bytes(hostile)
        assert read_task_file(path).state is TaskFileState.UNUSABLE

    path.unlink()
    os.mkfifo(path)
    assert read_task_file(path).state is TaskFileState.UNUSABLE
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert read_task_file(path).state is TaskFileState.UNUSABLE


def test_ticking_keeps_what_the_owner_has_changed_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "HEARTBEAT.md"
    path.write_text("# Mine\r\n- [ ] new\r\n- [ ] one\r\n", encoding="utf-8", newline="")
    path.chmod(0o600)

    tick_tasks(path, ["one", "gone"])
    tick_tasks(path, ["one"])

    assert path.read_bytes() == b"# Mine\r\n- [ ] new\r\n- [x] one\r\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["HEARTBEAT.md"]


def test_a_file_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "context" / "HEARTBEAT.md"
    assert append_task(path, "one") is TaskFileState.MISSING
    assert append_task(path, "two") is TaskFileState.READ
    assert path.read_text() == "# Heartbeat Tasks\n\n- [ ] one\n- [ ] two\n"

    path.write_bytes(b"\0binary")
    assert append_task(path, "three") is TaskFileState.UNUSABLE
    assert path.read_bytes() == b"\0binary"
