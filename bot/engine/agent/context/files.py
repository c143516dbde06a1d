"""Text files of any size read safely: never more than is used, never from outside."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from storage.records.context import PartState

BUDGET = 20_000
"""Characters of one file."""

_HEAD, _TAIL = 0.7, 0.2
_WIDEST = 4
"""Bytes of a character in UTF-8, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of reading a file. `size` is in characters, or in bytes where it was not read
    whole."""

    text: str = ""
    size: int = 0
    state: PartState = PartState.LOADED


def read_within(path: Path, root: Path | None, budget: int = BUDGET) -> Reading:
    """The file's text: whole, or its first 70 and last 20 percent of the budget with a line between
    them. `root` is the folder that it must lie in, wherever links lead. Blocking, never raises."""
    try:
        true = path.resolve(strict=True)
        if root is not None and not true.is_relative_to(root.resolve(strict=True)):
            return Reading(state=PartState.UNUSABLE)
        return _read(true, budget)
    except FileNotFoundError:
        gone = not path.is_symlink()
        return Reading(state=PartState.MISSING if gone else PartState.UNUSABLE)
    except (OSError, RuntimeError, ValueError):
        # Unreadable, a circle of links, or a name that no file can have.
        return Reading(state=PartState.UNUSABLE)


def clipped(text: str, budget: int, *, left_out: int = 0) -> str:
    """The text, or its first 70 and last 20 percent of the budget around a line that says how much
    is missing; `left_out` is what is missing already."""
    if len(text) <= budget and not left_out:
        return text
    head, tail = text[: int(budget * _HEAD)], text[len(text) - int(budget * _TAIL) :]
    missing = len(text) - len(head) - len(tail) + left_out
    return f"{head}\n\n[… about {missing} characters left out here …]\n\n{tail}"


def _read(path: Path, budget: int) -> Reading:
    # Without waiting: a pipe that took the file's place would be waited for for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            return Reading(state=PartState.UNUSABLE)
        most = budget * _WIDEST
        data = file.read(most + 1)
        if b"\0" in data:
            return Reading(size=seen.st_size, state=PartState.UNUSABLE)
        if len(data) <= most:
            return _whole(data, budget)
        file.seek(-int(most * _TAIL), os.SEEK_END)
        end = file.read(int(most * _TAIL))
    return _parts(data, end, seen.st_size, budget)


def _whole(data: bytes, budget: int) -> Reading:
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return Reading(size=len(data), state=PartState.UNUSABLE)
    state = PartState.LOADED if len(text) <= budget else PartState.CUT
    return Reading(text=clipped(text, budget), size=len(text), state=state)


def _parts(start: bytes, end: bytes, size: int, budget: int) -> Reading:
    """Of a file too large to be read whole."""
    if b"\0" in end:
        return Reading(size=size, state=PartState.UNUSABLE)
    head = start.decode("utf-8", "ignore")[: int(budget * _HEAD)]
    tail = end.decode("utf-8", "ignore")[-int(budget * _TAIL) :]
    left_out = max(1, size - len(head.encode()) - len(tail.encode()))
    text = f"{head}\n\n[… about {left_out} bytes left out here …]\n\n{tail}"
    return Reading(text=text, size=size, state=PartState.CUT)
