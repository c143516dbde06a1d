"""Reads and changes HEARTBEAT.md: a list of what to look after."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.data_directory import write_private_file
from storage.records.autonomy import HeartbeatTask, TaskFileState

MAX_BYTES = 64 * 1024
TITLE = "# Heartbeat Tasks"
_NEW_MODE = 0o600

_CHECKBOX = re.compile(r"^\s*[-*+]\s+\[(?P<mark>[ xX])\](?:\s+(?P<text>.*))?$")
_BULLET = re.compile(r"^\s*[-*+]\s+(?P<text>\S.*)$")
_RULE = re.compile(r"^\s*(?:[-*+]\s*){3,}$")
_FENCE = "---"
_COMMENT_START, _COMMENT_END = "<!--", "-->"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The file's text and tasks. Only a file that was READ has any."""

    state: TaskFileState
    text: str = ""
    tasks: tuple[HeartbeatTask, ...] = ()

    @property
    def pending(self) -> tuple[HeartbeatTask, ...]:
        return tuple(each for each in self.tasks if not each.is_done)


def read_task_file(path: Path) -> TaskFile:
    """Read the file, at most MAX_BYTES of it: one that is larger is not used at all, because a part
    of it may say the opposite of the whole. Blocking; never raises."""
    try:
        data = _read_regular(path)
        text = data.decode("utf-8-sig") if len(data) <= MAX_BYTES else ""
    except FileNotFoundError:
        return TaskFile(state=TaskFileState.MISSING)
    except (OSError, ValueError):
        return TaskFile(state=TaskFileState.UNUSABLE)
    if len(data) > MAX_BYTES:
        return TaskFile(state=TaskFileState.TOO_LARGE)
    if "\0" in text:
        return TaskFile(state=TaskFileState.UNUSABLE)
    return TaskFile(state=TaskFileState.READ, text=text, tasks=parse_tasks(text))


def _read_regular(path: Path) -> bytes:
    """The beginning of the file, one byte more than is used. Raises OSError."""
    # Non-blocking, because opening a pipe at this path would wait forever.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        return file.read(MAX_BYTES + 1)


def parse_tasks(text: str) -> tuple[HeartbeatTask, ...]:
    """The list items of a text. Blank lines, headings, paragraphs, front matter and comments are no
    tasks; plain bullets are pending."""
    return tuple(task for number, line in _plain_lines(text) if (task := _parse(line, number)))


def complete_task(text: str, wanted: str) -> str:
    """Tick the first open checkbox with this text. Unchanged if there is none."""
    for task in parse_tasks(text):
        if task.checkbox and not task.is_done and task.text == wanted:
            lines = text.split("\n")
            lines[task.line - 1] = lines[task.line - 1].replace("[ ]", "[x]", 1)
            return "\n".join(lines)
    return text


def add_task(text: str, task: str) -> str:
    """Add an open checkbox at the end, under a heading if the file is empty."""
    body = text.rstrip() or f"{TITLE}\n"
    return f"{body}\n- [ ] {' '.join(task.split())}\n"


def tick_tasks(path: Path, wanted: Sequence[str]) -> None:
    """Tick these lines in the file as it is now; those that are gone are left out. Blocking. Raises
    OSError."""
    found = read_task_file(path)
    text = found.text
    for each in wanted:
        text = complete_task(text, each)
    if text != found.text:
        _replace(path, text)


def append_task(path: Path, task: str) -> TaskFileState:
    """Add a task to the file, which is made if it is missing. One that could not be read is left
    alone. Returns how it could be read. Blocking. Raises OSError."""
    found = read_task_file(path)
    if found.state in {TaskFileState.READ, TaskFileState.MISSING}:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, add_task(found.text, task))
    return found.state


def _plain_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside front matter and comments, counted from 1."""
    lines = text.split("\n")
    begin = 0
    if lines[0].strip() == _FENCE:
        ends = [n for n, line in enumerate(lines[1:], start=1) if line.strip() == _FENCE]
        begin = ends[0] + 1 if ends else 0
    in_comment = False
    for number, line in enumerate(lines[begin:], start=begin + 1):
        if in_comment or line.lstrip().startswith(_COMMENT_START):
            in_comment = _COMMENT_END not in line
        else:
            yield number, line.rstrip("\r")


def _parse(line: str, number: int) -> HeartbeatTask | None:
    if (found := _CHECKBOX.match(line)) is not None:
        text = (found["text"] or "").strip()
        done = found["mark"] != " "
        return HeartbeatTask(line=number, text=text, is_done=done, checkbox=True) if text else None
    found = None if _RULE.match(line) else _BULLET.match(line)
    if found is None:
        return None
    return HeartbeatTask(line=number, text=found["text"].strip(), is_done=False, checkbox=False)


def _replace(path: Path, text: str) -> None:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _NEW_MODE
    write_private_file(path, text.encode(), mode=mode)
