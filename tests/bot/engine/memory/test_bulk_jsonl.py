"""Lines from elsewhere: each is read for itself, whatever the others are."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.memory.bulk_jsonl import (
    BulkQuery,
    BulkReader,
    UnreadableQuery,
    parse_time,
    read_queries,
)
from storage.records.memory import MemoryScope, MemoryScopeKind, NewMemoryEntry

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SHANGHAI = timezone(timedelta(hours=8))
SCOPE = MemoryScope(MemoryScopeKind.CUSTOM, "x")


def read(*lines: object) -> tuple[list[NewMemoryEntry], BulkReader]:
    reading = BulkReader(
        scope=SCOPE, zone=SHANGHAI, now=NOW, redact=lambda text: text.replace("hunter2", "••••")
    )
    told = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(reading.read_entries(io.BytesIO(b"\n".join(told)))), reading


def test_a_row_becomes_an_entry_with_its_day_and_its_id() -> None:
    row = {"id": 7, "text": " hello ", "sender": "Ann", "at": "2024-05-06T23:30:00", "thread": "t"}

    entries, reading = read(row)

    entry = entries[0]
    assert (entry.text, entry.sender, entry.thread) == ("hello", "Ann", "t")
    assert entry.said_at == datetime(2024, 5, 6, 15, 30, tzinfo=UTC)
    assert entry.extra == {"id": 7, "day": "2024-05-06"}
    assert reading.unreadable == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "JSON"),
        (b"[1]", "object"),
        ({"sender": "x"}, "text"),
        ({"text": "   "}, "text: is empty"),
        ({"text": "x", "at": "soon"}, "at: 'soon'"),
        ({"text": "x", "at": "2024-02-31"}, "at: "),
        ({"text": "x", "at": 1e300}, "at: "),
        ({"text": "x", "at": "2023"}, "at: "),
        ({"text": "x", "at": "yesterday"}, "at: "),
        ({"text": "x", "at": "25:71 on 8 May 2023"}, "at: "),
        ({"text": "x", "id": True}, "id: is neither"),
        ({"text": "x", "id": "9" * 201}, "id: is longer"),
        (b'{"text": "x", "id": NaN}', "id: is neither"),
        ({"text": "x" * 10_001}, "10000"),
        (b'{"text": "\xff\xfe"}', "JSON"),
        (b"9" * 3_000_000, "too long"),
        (b"\0" * 10, "JSON"),
        (b'{"text":' * 5_000, "JSON"),
    ],
)
def test_a_bad_line_is_told_by_its_number_and_the_rest_is_read(line: object, why: str) -> None:
    entries, reading = read({"text": "one"}, b"", line, {"text": "two"})

    assert [entry.text for entry in entries] == ["one", "two"]
    assert [bad.number for bad in reading.unreadable] == [3]
    assert why.lower() in reading.unreadable[0].reason.lower()
    assert len(reading.unreadable[0].reason) < 300


def test_an_id_stands_for_one_line() -> None:
    entries, reading = read({"id": "a", "text": "one"}, {"id": "a", "text": "two"})

    assert [entry.text for entry in entries] == ["one"]
    assert "'a'" in reading.unreadable[0].reason


def test_what_is_empty_is_as_if_it_were_not_there() -> None:
    nothing = {"id": "", "sender": "", "at": "", "thread": ""}

    entries, reading = read({"text": "one", **nothing}, {"text": "two", **nothing})

    assert [(each.text, each.extra, each.said_at) for each in entries] == [
        ("one", {}, NOW),
        ("two", {}, NOW),
    ]
    assert reading.unreadable == []


def test_lines_without_an_id_are_told_apart_by_what_they_say_and_how_often() -> None:
    lines = [{"text": "yes"}, {"text": "no"}, {"text": "yes"}]

    first, again = (read(*lines)[0] for _ in range(2))

    sources = [entry.source for entry in first]
    assert len(set(sources)) == 3
    assert [entry.source for entry in again] == sources


def test_secrets_are_not_kept() -> None:
    assert read({"text": "it is hunter2"})[0][0].text == "it is ••••"


@pytest.mark.parametrize(
    ("told", "when"),
    [
        ("2024-05-06", datetime(2024, 5, 6, tzinfo=SHANGHAI)),
        ("2024-05-06T10:00:00Z", datetime(2024, 5, 6, 10, tzinfo=UTC)),
        ("2024-05-06 10:00:00+02:00", datetime(2024, 5, 6, 8, tzinfo=UTC)),
        ("1715000000", datetime(2024, 5, 6, 12, 53, 20, tzinfo=UTC)),
        ("1715000000000", datetime(2024, 5, 6, 12, 53, 20, tzinfo=UTC)),
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=SHANGHAI)),
        ("12:05 am on 8 May, 2023", datetime(2023, 5, 8, 0, 5, tzinfo=SHANGHAI)),
        ("2023年5月8日 21:07", datetime(2023, 5, 8, 21, 7, tzinfo=SHANGHAI)),
        ("2023/5/8 9:05:30", datetime(2023, 5, 8, 9, 5, 30, tzinfo=SHANGHAI)),
        ("2023/05/08 (Mon) 23:40", datetime(2023, 5, 8, 23, 40, tzinfo=SHANGHAI)),
        ("2023年5月8日下午1点56分", datetime(2023, 5, 8, 13, 56, tzinfo=SHANGHAI)),
        ("May 8th, 2023, 9 p.m.", datetime(2023, 5, 8, 21, tzinfo=SHANGHAI)),
        ("Mon May  8 13:56:00 2023", datetime(2023, 5, 8, 13, 56, tzinfo=SHANGHAI)),
        ("Mon May 08 13:56:00 +0000 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("Mon, 08 May 2023 13:56:00 +0200", datetime(2023, 5, 8, 11, 56, tzinfo=UTC)),
        ("2023-05-08 13:56:00 -0330", datetime(2023, 5, 8, 17, 26, tzinfo=UTC)),
        ("8 May 2023 13:56 UTC", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("1715000000000000", datetime(2024, 5, 6, 12, 53, 20, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_however_it_is_written(told: str, when: datetime) -> None:
    assert parse_time(told, SHANGHAI) == when


@given(st.text(max_size=40))
def test_no_time_is_too_strange(told: str) -> None:
    found = None
    with suppress(ValueError):
        found = parse_time(told, SHANGHAI)

    assert found is None or found.tzinfo is not None


def test_queries_are_read_line_by_line() -> None:
    lines = (
        b'{"query": "tea", "id": 1}\n\nnonsense\n{"question": "milk", "id": "1"}\n"bread"\n{"a": 1}'
    )

    one, bad, two, bare, other = read_queries(io.BytesIO(lines))

    assert [one, two, bare] == [
        BulkQuery(query="tea", id=1),
        BulkQuery(query="milk", id="1"),
        BulkQuery(query="bread"),
    ]
    assert [each.number for each in (bad, other) if isinstance(each, UnreadableQuery)] == [3, 6]
