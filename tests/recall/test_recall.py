"""What was said is found again by questions in other words, by day and by who said it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.engine.memory.recall import Recall, dated_words
from storage.db import Database
from storage.ids import Ids
from storage.memory.entries import EntryRepo
from storage.memory.imports import Imports
from storage.memory.index import Index
from storage.records.memory.entries import (
    EntryState,
    MemoryKind,
    NewEntry,
    Scope,
    ScopeKind,
)
from tests.fresh_store import open_store
from tests.recall.talks import LATER, Question, Talk, talks

LEAST_AMONG_FIVE = {
    "household_chat": 0.64,
    "imogen_and_assistant": 0.71,
    "mara_and_owen": 0.81,
    "nadia_and_felix": 0.57,
    "orbit_team": 0.9,
    "priya_and_tomas": 0.81,
    "shenlan": 0.95,
}
LEAST_RECIPROCAL_RANK = 0.61
"""A little under what is measured (docs/memory.md): a change that loses more has to say why."""


class Library:
    """The conversations, each in its own scope."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.index = Index(db)
        self.entries = EntryRepo(db, Ids(), self.index)

    async def keep(self, talk: Talk) -> None:
        scope = scope_of(talk)
        rows = [
            NewEntry(
                kind=MemoryKind.CELL,
                scope=scope,
                text=turn.text,
                sender=turn.sender,
                thread=turn.thread,
                said_at=turn.at,
                source=f"{talk.name}:{number}",
                extra={"mark": turn.mark},
            )
            for number, turn in enumerate(talk.turns)
        ]
        async with self.db.write() as tx:
            await Imports(self.db, Ids(), self.index, scope).add(tx, rows, now=LATER)

    async def marks(self, talk: Talk, question: Question, limit: int = 20) -> Sequence[str]:
        recall = Recall(
            entries=self.entries,
            index=self.index,
            words=dated_words(UTC),
            now=lambda: question.now,
        )
        found = await recall.within([scope_of(talk)], question.text, limit)
        return [str(each.entry.extra["mark"]) for each in found]


def scope_of(talk: Talk) -> Scope:
    return Scope(ScopeKind.CUSTOM, talk.name)


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    async with open_store(tmp_path) as db:
        yield Library(db)


def test_the_questions_are_many_and_have_answers() -> None:
    assert sum(len(talk.questions) for talk in talks()) >= 60
    for talk in talks():
        marks = {turn.mark for turn in talk.turns}
        for question in talk.questions:
            assert question.answers
            assert question.answers <= marks, question.text


async def test_questions_find_their_answers_among_the_first_five(library: Library) -> None:
    ranks = []
    for talk in talks():
        await library.keep(talk)
        shares = []
        for question in talk.questions:
            marks = await library.marks(talk, question)
            room = min(5, len(question.answers))
            shares.append(len(question.answers.intersection(marks[:5])) / room)
            place = next((n for n, mark in enumerate(marks, 1) if mark in question.answers), 0)
            ranks.append(1 / place if place else 0)
        assert sum(shares) / len(shares) >= LEAST_AMONG_FIVE[talk.name], talk.name
    assert sum(ranks) / len(ranks) >= LEAST_RECIPROCAL_RANK


async def test_what_is_superseded_is_not_found_any_more(library: Library) -> None:
    talk = next(each for each in talks() if each.name == "shenlan")
    await library.keep(talk)
    question = Question("我现在的房租是多少钱？", frozenset(), LATER)
    scope = scope_of(talk)
    old = next(
        each
        for each in await library.entries.list([scope], limit=100)
        if each.extra["mark"] == "rent"
    )
    async with library.db.write() as tx:
        gone = replace(old, state=EntryState.SUPERSEDED, invalidated_at=datetime.now(UTC))
        await library.entries.change(tx, gone, now=LATER)
        new = NewEntry(
            kind=MemoryKind.FACT,
            scope=scope,
            text="房租涨到了每月四千六。",
            extra={"mark": "new rent"},
            said_at=LATER,
        )
        await library.entries.add(tx, new, now=LATER)

    marks = await library.marks(talk, question)

    assert marks[0] == "new rent"
    assert "rent" not in marks
