"""A line of a backup as the entry that it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bot.engine.memory.writing.service import plain
from cards.views.memory.data import DATES
from storage.memory.rows import MANUAL_STABILITY
from storage.records.memory.entries import (
    MOST_TEXT,
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Origin,
    Scope,
    Strength,
    Tier,
)
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId

_NAME = 200
_SOURCE = 2_000
_MOST_NAMES = 1_000
_MOST_COUNTED = 10**9
_YEARS = range(1970, 2200)
_ID = re.compile(r"[0-9A-Za-z_-]{1,16}")


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry as a backup holds it, the cells that it was drawn from, and the accounts of its
    person."""

    entry: Entry
    sources: Sequence[EntryId]
    accounts: Sequence[str]


def kept_of(line: str) -> Kept:
    """Raises ValueError for what no export has written."""
    try:
        row = json.loads(line)
        sources = [_id(each) for each in _names(row.get("from", ()))]
        return Kept(_entry(row), sources, _names(row.get("accounts", ())))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _entry(row: dict[str, Any]) -> Entry:
    """What older exports did not tell is as it is of a new entry."""
    at = _moment(row["at"])
    kept = {name: _date(row.get(name)) for name in DATES}
    born = kept.pop("created_at") or at
    return Entry(
        number=0,
        id=_id(row["id"]),
        revision=_count(row.get("revision", 1)),
        kind=MemoryKind(row["kind"]),
        scope=Scope.of(row["scope"]),
        text=_plain(row["text"], MOST_TEXT),
        category=Category(row["category"]),
        label=_plain(row["label"], _NAME),
        abstract=_plain(row.get("abstract", ""), MOST_TEXT),
        overview=_plain(row.get("overview", ""), MOST_TEXT),
        keywords=tuple(_plain(each, _NAME) for each in row["keywords"][:_NAME]),
        importance=_share(row["importance"]),
        confidence=_share(row["confidence"]),
        tier=Tier(row["tier"]),
        state=EntryState(row["state"]),
        dynamic=bool(row.get("dynamic")),
        pinned=bool(row["pinned"]),
        key=_plain(row["key"], 2 * _NAME),
        origin=Origin(row["origin"]),
        source=_plain(row["source"], _SOURCE) if row.get("source") else None,
        evidence=_names(row.get("evidence", ())),
        sender=_plain(row["sender"], _NAME),
        thread=_plain(row["thread"], 2 * _NAME),
        person=PersonId(_plain(row["person"], _NAME)) if row.get("person") else None,
        chat=ChatId(_plain(row["chat"], _NAME)) if row.get("chat") else None,
        task=TaskId(_plain(row["task"], _NAME)) if row.get("task") else None,
        said_at=at,
        valid_from=kept.pop("valid_from") or at,
        valid_until=_date(row.get("valid_until")),
        invalidated_at=kept.pop("invalidated_at"),
        supersedes=_id(row["supersedes"]) if row.get("supersedes") else None,
        superseded_by=_id(row["superseded_by"]) if row.get("superseded_by") else None,
        strength=_life(row.get("life", {}), by_hand=row["origin"] == Origin.MANUAL),
        used=_count(row.get("used", 0)),
        shown=_count(row.get("shown", 0)),
        bad_recalls=_count(row.get("bad_recalls", 0)),
        created_at=born,
        updated_at=kept.pop("updated_at") or born,
        extra=_extra(row.get("extra", {})),
        **kept,
    )


def _life(told: dict[str, Any], *, by_hand: bool) -> Strength:
    new = Strength(stability=MANUAL_STABILITY) if by_hand else Strength()
    return Strength(
        value=_measure(told.get("value", new.value)),
        stability=_measure(told.get("stability", new.stability)) or new.stability,
        decay=_measure(told.get("decay", new.decay)),
        reinforced=_count(told.get("reinforced", 0)),
        reinforced_at=_date(told.get("reinforced_at")),
    )


def _id(value: object) -> EntryId:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError("no id of an entry")
    return EntryId(value)


def _names(values: object) -> Sequence[str]:
    if not isinstance(values, list | tuple) or len(values) > _MOST_NAMES:
        raise ValueError("no list of names")
    return tuple(_plain(each, _SOURCE) for each in values)


def _extra(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict) or len(json.dumps(value)) > 2 * MOST_TEXT:
        raise ValueError("too much besides")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < _MOST_COUNTED:
        raise ValueError(f"{value} is no count")
    return value


def _measure(value: Any) -> float:
    measure = float(value)
    if not 0 <= measure < _MOST_COUNTED:
        raise ValueError(f"{measure} is no measure")
    return measure


def _date(text: str | None) -> datetime | None:
    return _moment(text) if text else None


def _plain(value: object, most: int) -> str:
    text = plain(str(value))
    if len(text) > most:
        raise ValueError(f"longer than {most} characters")
    return text


def _share(value: Any) -> float:
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is not from 0 to 1")
    return share


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    if at.year not in _YEARS:
        raise ValueError(f"{text} is no time of anything said")
    return at
