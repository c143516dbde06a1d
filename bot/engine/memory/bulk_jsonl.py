"""JSON lines for bulk import of conversations and for batch queries. One bad line does not affect
the others."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from typing import Annotated, Any, BinaryIO

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from storage.records.memory import (
    MAX_ENTRY_TEXT,
    MemoryKind,
    MemoryMatch,
    MemoryOrigin,
    MemoryScope,
    MemoryTier,
    NewMemoryEntry,
)
from storage.search.dates import find_dates
from storage.search.terms import SAID_DAY_KEY

_DAY_TOKEN = re.compile(r"=\d{4}-\d\d-\d\d")
_TIME_OF_DAY = re.compile(
    r"(?P<zh>上午|早上|凌晨|中午|下午|晚上|傍晚)?\s*(?<!\d)(?P<hour>\d{1,2})"
    r"(?:(?:[:：]|[点时])(?P<minute>\d{1,2})(?:[:：](?P<second>\d{2})(?:\.\d+)?)?分?|[点时]"
    r"|(?=\s*[ap]\.?m\b))\s*(?P<half>[ap]\.?m\b\.?)?"
    r"\s*(?:(?P<utc>utc|gmt|z)\b|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)\b)?",
    re.IGNORECASE,
)
_CTIME_FORMATS = ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y")
"""ctime formats of C, with the time before the year."""
_SECONDS_BELOW = 1e11
_VALID_YEARS = range(1970, 2200)
_REFERENCE_DAY = datetime(2000, 1, 1, tzinfo=UTC).date()
_NOON = 12
_MAX_TIME_CHARS = 200
_PM_BELOW = {"下午": 12, "晚上": 12, "傍晚": 12, "中午": 3}
"""Hours below these limits are counted from noon."""


def parse_time(text: str, zone: tzinfo) -> datetime:
    """Parse ISO 8601, a Unix timestamp (s, ms, µs or ns) or a worded day with a time. `zone`
    applies where there is no offset. Raises ValueError."""
    found = _parse_any_time(text.strip()[:_MAX_TIME_CHARS])
    if found is None or found.year not in _VALID_YEARS:
        raise ValueError(f"at: {text[:40]!r} is no time that can be read")
    return found if found.tzinfo else found.replace(tzinfo=zone)


def _parse_any_time(told: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(told)
    with suppress(ValueError, OverflowError, OSError):
        return _parse_epoch(float(told))
    for form in _CTIME_FORMATS:
        with suppress(ValueError):
            return datetime.strptime(told, form)  # noqa: DTZ007 - the caller gives it a zone
    with suppress(ValueError):
        return _parse_worded_day(told)
    return None


def _parse_epoch(number: float) -> datetime | None:
    if number in _VALID_YEARS or not math.isfinite(number):
        return None  # a year alone is too vague
    while abs(number) > _SECONDS_BELOW:
        number /= 1000
    return datetime.fromtimestamp(number, UTC)


def _parse_worded_day(told: str) -> datetime | None:
    """Relative days such as "yesterday" are not parsed: their reference day is unknown."""
    tokens = (
        token
        for each in find_dates(told, _REFERENCE_DAY)
        if not each.is_relative
        for token in each.tokens
    )
    day = next((token for token in tokens if _DAY_TOKEN.fullmatch(token)), None)
    if day is None:
        return None
    return datetime.combine(datetime.fromisoformat(day[1:]), _parse_time_of_day(told))


def _parse_time_of_day(told: str) -> time:
    match = _TIME_OF_DAY.search(told)
    if match is None:
        return time()
    hour = int(match["hour"])
    if match["half"]:
        hour = hour % _NOON + _NOON * (match["half"][0].lower() == "p")
    elif hour < _PM_BELOW.get(match["zh"] or "", 0):
        hour += _NOON
    return time(
        hour, int(match["minute"] or 0), int(match["second"] or 0), tzinfo=_parse_offset(match)
    )


def _parse_offset(match: re.Match[str]) -> tzinfo | None:
    if match["utc"]:
        return UTC
    if not match["sign"]:
        return None
    away = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
    return timezone(-away if match["sign"] == "-" else away)


GIVEN_ID_KEY = "id"
"""Key in an entry's `extra`: the ID that the line came with."""

_MAX_LINE_BYTES = 1_000_000
_MAX_ID_CHARS = 200


def _validate_id(given: object) -> object:
    if given is None or given == "":
        return None
    is_number = isinstance(given, int | float) and math.isfinite(given)
    if isinstance(given, bool) or not (is_number or isinstance(given, str)):
        raise ValueError("is neither a string nor a number")
    if len(str(given)) > _MAX_ID_CHARS:
        raise ValueError(f"is longer than {_MAX_ID_CHARS} characters")
    return given


GivenId = Annotated[str | int | float | None, BeforeValidator(_validate_id)]
"""The original type is preserved, so that a number is returned as a number."""


class _ConversationRow(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    text: Annotated[str, StringConstraints(max_length=MAX_ENTRY_TEXT)]
    id: GivenId = None
    sender: Annotated[str, StringConstraints(max_length=200)] | None = None
    at: Annotated[str, StringConstraints(max_length=100)] | None = None
    thread: Annotated[str, StringConstraints(max_length=200)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRow:
    number: int
    reason: str


@dataclass(slots=True)
class BulkReader:
    """Turns the lines of one file into entries. A line without thread, time and sender becomes a
    standalone note, not a part of a conversation."""

    scope: MemoryScope
    zone: tzinfo
    now: datetime
    redact: Callable[[str], str]
    unreadable: list[UnreadableRow] = field(default_factory=list)
    _hash_by_id: dict[str, str] = field(default_factory=dict)
    _repeats: Counter[str] = field(default_factory=Counter)

    def read_entries(self, file: BinaryIO) -> Iterator[NewMemoryEntry]:
        for number, line in read_lines(file):
            try:
                entry = self._parse_entry(line)
            except ValueError as error:
                self.unreadable.append(UnreadableRow(number=number, reason=explain_error(error)))
                continue
            if entry is not None:
                yield entry

    def _parse_entry(self, line: bytes) -> NewMemoryEntry | None:
        """None for an empty line."""
        if len(line) > _MAX_LINE_BYTES:
            raise ValueError("the line is too long")
        if not line.strip():
            return None
        row = _ConversationRow.model_validate_json(line)
        text = self.redact(row.text).strip()
        if not text:
            raise ValueError("text: is empty")
        at = parse_time(row.at, self.zone) if row.at else self.now
        given = {} if row.id is None else {GIVEN_ID_KEY: row.id}
        return NewMemoryEntry(
            kind=MemoryKind.CELL,
            scope=self.scope,
            text=text,
            sender=row.sender or "",
            thread=row.thread or "",
            said_at=at.astimezone(UTC),
            source=self._source(row, text),
            tier=MemoryTier.PERIPHERAL,
            origin=MemoryOrigin.IMPORT,
            extra={**given, SAID_DAY_KEY: at.date().isoformat()} if row.at else given,
        )

    def _source(self, row: _ConversationRow, text: str) -> str:
        """Deterministic: the same line of the same file always has the same source."""
        content = "\0".join((text, row.sender or "", row.thread or "", row.at or ""))
        hashed = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:32]
        if row.id is None:
            self._repeats[hashed] += 1
            return f"import:{self.scope}:#{hashed}:{self._repeats[hashed]}"
        if self._hash_by_id.setdefault(str(row.id), hashed) != hashed:
            raise ValueError(f"id: {row.id!r} is taken by a line before")
        return f"import:{self.scope}:{row.id}"


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Line numbers with at most the allowed bytes, plus one, of each line."""
    number = 0
    while line := file.readline(_MAX_LINE_BYTES + 1):
        number += 1
        rest = line
        while not rest.endswith(b"\n") and len(rest) > _MAX_LINE_BYTES:
            rest = file.readline(_MAX_LINE_BYTES + 1)
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def explain_error(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "value_error":
        return f"{first['loc'][0]}: {first['ctx']['error']}"
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


class BulkQuery(BaseModel):
    """One query; aliases cover the field names of other programs, and a bare string is the query
    itself."""

    model_config = ConfigDict(coerce_numbers_to_str=True, frozen=True, populate_by_name=True)

    query: Annotated[
        str,
        StringConstraints(max_length=10_000),
        Field(validation_alias=AliasChoices("query", "question", "q", "text")),
    ]
    id: GivenId = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, line: object) -> object:
        return {"query": line} if isinstance(line, str) else line


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableQuery:
    """A line that is not a valid query."""

    number: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"id": None, "error": f"line {self.number}: {self.reason}", "results": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkQueryResult:
    query: BulkQuery
    hits: Sequence[MemoryMatch]

    def to_json(self, *, whole: bool = False) -> dict[str, Any]:
        """With `whole`, results include their texts as well as IDs and scores."""
        told = {} if self.query.id is None else {"id": self.query.id}
        results = [_hit_to_json(hit, whole=whole) for hit in self.hits]
        return {**told, "query": self.query.query, "results": results}


def read_queries(file: BinaryIO) -> Iterator[BulkQuery | UnreadableQuery]:
    """One item for each non-empty line."""
    for number, line in read_lines(file):
        if not line.strip():
            continue
        try:
            yield BulkQuery.model_validate_json(line)
        except ValidationError as error:
            yield UnreadableQuery(number=number, reason=explain_error(error))


def to_json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _hit_to_json(hit: MemoryMatch, *, whole: bool) -> dict[str, Any]:
    entry = hit.entry
    given = entry.extra.get(GIVEN_ID_KEY)
    found = {"id": entry.id if given is None else given, "score": round(hit.score, 6)}
    if not whole:
        return found
    return {
        **found,
        "entry": entry.id,
        "scope": str(entry.scope),
        "kind": entry.kind.value,
        "text": entry.text,
        "sender": entry.sender,
        "at": entry.said_at.isoformat(),
        "thread": entry.thread,
        "parts": dict(hit.parts),
    }
