"""Lines of conversations from elsewhere, read one by one: one that is bad spoils no other."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Annotated, BinaryIO

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from bot.engine.memory.bulk.moments import moment
from storage.memory.fields import DAY
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
_LONGEST_ID = 200


def _id(given: object) -> object:
    if given is None or given == "":
        return None
    is_number = isinstance(given, int | float) and math.isfinite(given)
    if isinstance(given, bool) or not (is_number or isinstance(given, str)):
        raise ValueError("is neither a string nor a number")
    if len(str(given)) > _LONGEST_ID:
        raise ValueError(f"is longer than {_LONGEST_ID} characters")
    return given


GivenId = Annotated[str | int | float | None, BeforeValidator(_id)]
"""As it came, to be given back like that: a number stays one."""


class _Row(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    text: Annotated[str, StringConstraints(max_length=MOST_TEXT)]
    id: GivenId = None
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
        at = moment(row.at, self.zone) if row.at else self.now
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
            extra={**given, DAY: at.date().isoformat()} if row.at else given,
        )

    def _source(self, row: _Row, text: str) -> str:
        """The same for the same line of the same file, whenever it is read."""
        content = "\0".join((text, row.sender or "", row.thread or "", row.at or ""))
        hashed = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:32]
        if row.id is None:
            self._again[hashed] += 1
            return f"import:{self.scope}:#{hashed}:{self._again[hashed]}"
        if self._seen.setdefault(str(row.id), hashed) != hashed:
            raise ValueError(f"id: {row.id!r} is taken by a line before")
        return f"import:{self.scope}:{row.id}"


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
    if first["type"] == "value_error":
        return f"{first['loc'][0]}: {first['ctx']['error']}"
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]
