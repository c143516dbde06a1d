"""Lines of conversations from elsewhere, read one by one: one that is bad spoils no other."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, tzinfo
from typing import Annotated, BinaryIO

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from storage.memory.fields import DAY
from storage.memory.lexicon.dates import mentions
from storage.records.memory.entries import (
    MOST_TEXT,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    Tier,
)

GIVEN_ID = "id"
"""Of what an entry has besides: the id that it came with."""

_LONGEST_LINE = 1_000_000
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?", re.IGNORECASE)
_MILLISECONDS_FROM = 1e11
_NOON = 12
_FULL_DAY = re.compile(r"=\d{4}-\d\d-\d\d")
_YEARS = range(1970, 2200)


class _Row(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    text: Annotated[str, StringConstraints(max_length=MOST_TEXT)]
    id: Annotated[str, StringConstraints(max_length=200)] | None = None
    sender: Annotated[str, StringConstraints(max_length=200)] | None = None
    at: Annotated[str, StringConstraints(max_length=100)] | None = None
    thread: Annotated[str, StringConstraints(max_length=200)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    number: int
    why: str


@dataclass(slots=True)
class Reading:
    """Makes entries of the lines of one file. What has neither thread nor time nor sender is a
    note of its own, and no part of a conversation."""

    scope: Scope
    zone: tzinfo
    now: datetime
    mask: Callable[[str], str]
    bad: list[BadLine] = field(default_factory=list)
    _seen: dict[str, str] = field(default_factory=dict)
    _again: Counter[str] = field(default_factory=Counter)

    def entries(self, file: BinaryIO) -> Iterator[NewEntry]:
        for number, line in lines_of(file):
            try:
                entry = self._entry(line)
            except ValueError as error:
                self.bad.append(BadLine(number=number, why=why(error)))
                continue
            if entry is not None:
                yield entry

    def _entry(self, line: bytes) -> NewEntry | None:
        """None for a line that is empty."""
        if len(line) > _LONGEST_LINE:
            raise ValueError("the line is too long")
        if not line.strip():
            return None
        row = _Row.model_validate_json(line)
        text = self.mask(row.text).strip()
        if not text:
            raise ValueError("text: is empty")
        at = self.now if row.at is None else moment(row.at, self.zone)
        given = {} if row.id is None else {GIVEN_ID: row.id}
        return NewEntry(
            kind=MemoryKind.CELL,
            scope=self.scope,
            text=text,
            sender=row.sender or "",
            thread=row.thread or "",
            said_at=at.astimezone(UTC),
            source=self._source(row, text),
            tier=Tier.PERIPHERAL,
            origin=Origin.IMPORT,
            extra=given if row.at is None else {**given, DAY: at.date().isoformat()},
        )

    def _source(self, row: _Row, text: str) -> str:
        """The same for the same line of the same file, whenever it is read."""
        content = "\0".join((text, row.sender or "", row.thread or "", row.at or ""))
        hashed = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:32]
        if row.id is None:
            self._again[hashed] += 1
            return f"import:{self.scope}:#{hashed}:{self._again[hashed]}"
        if self._seen.setdefault(row.id, hashed) != hashed:
            raise ValueError(f"id: {row.id!r} is taken by a line before")
        return f"import:{self.scope}:{row.id}"


def moment(told: str, zone: tzinfo) -> datetime:
    """When that is: ISO 8601, seconds or milliseconds since 1970, or a day in words with a time of
    day. Without an offset it is told by the clock of `zone`. Raises ValueError."""
    found = _moment(told.strip())
    if found is None or found.year not in _YEARS:
        raise ValueError(f"at: {told[:40]!r} is no time that can be read")
    return found if found.tzinfo else found.replace(tzinfo=zone)


def _moment(told: str) -> datetime | None:
    try:
        return datetime.fromisoformat(told)
    except ValueError:
        pass
    try:
        seconds = float(told)
        return datetime.fromtimestamp(
            seconds / 1000 if abs(seconds) > _MILLISECONDS_FROM else seconds, UTC
        )
    except (ValueError, OverflowError, OSError):
        pass
    tokens = (
        token
        for each in mentions(told, datetime(2000, 1, 1, tzinfo=UTC).date())
        for token in each.tokens
    )
    day = next((token for token in tokens if _FULL_DAY.fullmatch(token)), None)
    if day is None:
        return None
    return datetime.combine(datetime.fromisoformat(day[1:]), _clock(told))


def _clock(told: str) -> time:
    match = _CLOCK.search(told)
    if match is None:
        return time()
    hour = int(match[1])
    if match[4]:
        hour = hour % _NOON + _NOON * (match[4].lower() == "pm")
    return time(hour, int(match[2]), int(match[3] or 0))


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Of a line without an end only the beginning, and one byte too many."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        rest = line
        while not rest.endswith(b"\n") and len(rest) > _LONGEST_LINE:
            rest = file.readline(_LONGEST_LINE + 1)
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def why(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]
