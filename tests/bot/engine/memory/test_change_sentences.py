"""Tests by a table that what people type ends, replaces and dates what was noted, by a rule or a
model, and that what is drawn from it rests on it."""

from __future__ import annotations

from datetime import UTC, date
from pathlib import Path

import pytest

from bot.engine.memory.explicit_statements import find_explicit_statements
from bot.engine.memory.fact_changes import denied_by, ends_fact, excludes
from bot.engine.memory.fact_grounding import check_grounding
from bot.engine.memory.preference_statements import SWITCHED
from bot.engine.memory.said_endings import find_endings
from storage.records.memory import USER_TEXT_LENGTH_KEY, MemoryCategory, MemoryEntry, MemoryKind
from tests.bot.engine.memory.entry_builders import NOW, build_entry

_TABLE = Path(__file__).with_name("change_sentences.txt")
_TODAY = NOW.date()
_THIRD_PERSON = (
    ("I'm ", "Is "),
    ("I have ", "Has "),
    ("I don't ", "Does not "),
    ("I can't ", "Cannot "),
    ("I ", ""),
    ("我们", ""),
    ("我", "用户"),
)


def _rows(kind: str) -> list[list[str]]:
    section = _TABLE.read_text(encoding="utf-8").split(f"[{kind}]\n")[1].split("\n[")[0]
    return [[part.strip() for part in line.split("|")] for line in section.splitlines() if line]


def _known(first: str) -> list[MemoryEntry]:
    """What the rules note of it, else what a model would draw from it."""
    told = find_explicit_statements(first, _TODAY)
    if told:
        return [build_entry(text=each.text, key=each.key, category=each.category) for each in told]
    for said, drawn in _THIRD_PERSON:
        if first.startswith(said):
            first = drawn + first.removeprefix(said)
            break
    return [build_entry(text=first, category=MemoryCategory.PROFILE)]


def _ended(known: MemoryEntry, then: str) -> bool:
    if any(ends_fact(each, known) for each in find_endings(then, _TODAY)):
        return True
    for each in find_explicit_statements(then, _TODAY):
        if each.key and not each.is_over:
            denied = denied_by(each.key)
            is_other = each.key == known.key and each.text != known.text
            is_switch = each.value == SWITCHED
            if is_other or excludes(each.key, each.text, known, is_switch=is_switch):
                return True
            if denied is not None and ends_fact(denied, known):
                return True
    return False


def test_what_is_over_or_otherwise_ends_what_was_noted() -> None:
    rows = [*_rows("ended"), *_rows("replaced")]

    missed = [
        (first, then)
        for first, then, over, *_ in rows
        if not any(over in known.text and _ended(known, then) for known in _known(first))
    ]

    assert missed == []
    assert len(rows) > 130, "the table must not lose its sentences"


def test_what_replaces_it_is_told() -> None:
    missed = [
        (first, then)
        for first, then, _, holds in _rows("replaced")
        if not any(holds in each.text for each in find_explicit_statements(then, _TODAY))
        and not any(
            holds in (each.told or each.clause)
            for each in find_endings(then, _TODAY)
            if any(ends_fact(each, known) for known in _known(first))
        )
    ]

    assert missed == []


def test_talk_that_sounds_alike_ends_nothing() -> None:
    rows = _rows("nothing ends")

    ended = [(first, then) for first, then in rows if any(_ended(e, then) for e in _known(first))]

    assert ended == []
    assert len(rows) > 70, "the table must not lose its sentences"


@pytest.mark.parametrize(("said", "part", "since", "until"), _rows("intervals"))
def test_since_and_until_when_it_is_so_is_read(
    said: str, part: str, since: str, until: str
) -> None:
    [found] = [each for each in find_explicit_statements(said, _TODAY) if part in each.text]

    assert since == "-" or (found.since and found.since.first == date.fromisoformat(since))
    assert until == "-" or (found.until and found.until.first == date.fromisoformat(until))


def test_what_is_drawn_must_rest_on_what_was_typed() -> None:
    doubted = [row for row in _rows("grounded") if _doubt(*row)]
    believed = [row for row in _rows("invented") if not _doubt(*row)]

    assert (doubted, believed) == ([], [])


def _doubt(said: str, fact: str) -> bool:
    cell = build_entry(
        text=f"{said}\n\nNoted.",
        kind=MemoryKind.CELL,
        sender="Boss",
        extra={USER_TEXT_LENGTH_KEY: len(said)},
    )
    of_user = (
        "The user",
        "用户",
        "Is ",
        "Has ",
        "Prefers",
        "Finds",
        "Coaches",
        "Likes",
        "Lives",
        "Plays",
    )
    category = MemoryCategory.PROFILE if fact.startswith(of_user) else MemoryCategory.ENTITIES
    return check_grounding(fact, category, [cell], UTC, of_work=False).doubt is not None
