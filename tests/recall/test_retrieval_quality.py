"""Tests that questions in other words, by day or by speaker find what was said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.engine.memory.retriever import MemoryRetriever, make_term_extractor
from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.bulk_import import ConversationImporter
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
)
from storage.search.inverted_index import InvertedIndex
from tests.migrated_database import migrated_file, open_database
from tests.postgresql_server import create_database
from tests.recall.conversations import LATER, SampleConversation, SampleQuestion, load_conversations
from tests.thoroughness import sampled

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
"""A little under what `benchmarks memory` measures: a change that loses more has to say why."""


class RecallSetup:
    """The conversations, each in its own scope."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.index = InvertedIndex(db)
        self.entries = MemoryEntryRepo(db, IdGenerator(), self.index)

    async def keep(self, talk: SampleConversation) -> None:
        scope = scope_of(talk)
        rows = [
            NewMemoryEntry(
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
            await ConversationImporter(self.db, IdGenerator(), self.index, scope).add(
                tx, rows, now=LATER
            )

    async def marks(
        self, talk: SampleConversation, question: SampleQuestion, limit: int = 20
    ) -> Sequence[str]:
        recall = MemoryRetriever(
            entries=self.entries,
            index=self.index,
            extract_terms=make_term_extractor(UTC),
            now=lambda: question.now,
        )
        found = await recall.search_scopes([scope_of(talk)], question.text, limit)
        return [str(each.entry.extra["mark"]) for each in found]


def scope_of(talk: SampleConversation) -> MemoryScope:
    return MemoryScope(MemoryScopeKind.CUSTOM, talk.name)


@pytest.fixture
async def build_recall(tmp_path: Path) -> AsyncIterator[RecallSetup]:
    async with open_database(tmp_path) as db:
        yield RecallSetup(db)


def test_the_questions_are_many_and_have_answers() -> None:
    assert sum(len(talk.questions) for talk in load_conversations()) >= 60
    for talk in load_conversations():
        marks = {turn.mark for turn in talk.turns}
        for question in talk.questions:
            assert question.answers
            assert question.answers <= marks, question.text


async def test_questions_find_their_answers_among_the_first_five(build_recall: RecallSetup) -> None:
    ranks = []
    for talk in load_conversations():
        await build_recall.keep(talk)
        shares = []
        for question in talk.questions:
            marks = await build_recall.marks(talk, question)
            room = min(5, len(question.answers))
            shares.append(len(question.answers.intersection(marks[:5])) / room)
            place = next((n for n, mark in enumerate(marks, 1) if mark in question.answers), 0)
            ranks.append(1 / place if place else 0)
        assert sum(shares) / len(shares) >= LEAST_AMONG_FIVE[talk.name], talk.name
    assert sum(ranks) / len(ranks) >= LEAST_RECIPROCAL_RANK


async def test_both_stores_find_the_same_in_the_same_order(tmp_path: Path) -> None:
    talks = load_conversations()
    async with AsyncExitStack() as stack:
        urls = migrated_file(tmp_path), create_database()
        both = [RecallSetup(await Database.open(url, stack)) for url in urls]
        for talk in talks[-sampled(len(talks), 1) :]:
            for each in both:
                await each.keep(talk)
            for question in talk.questions:
                here, there = [await each.marks(talk, question) for each in both]
                assert here == there, question.text


async def test_superseded_memories_are_not_found(build_recall: RecallSetup) -> None:
    talk = next(each for each in load_conversations() if each.name == "shenlan")
    await build_recall.keep(talk)
    question = SampleQuestion("我现在的房租是多少钱？", frozenset(), LATER)
    scope = scope_of(talk)
    old = next(
        each
        for each in await build_recall.entries.list([scope], limit=100)
        if each.extra["mark"] == "rent"
    )
    async with build_recall.db.write() as tx:
        gone = replace(old, state=MemoryState.SUPERSEDED, invalidated_at=datetime.now(UTC))
        await build_recall.entries.update(tx, gone, now=LATER)
        new = NewMemoryEntry(
            kind=MemoryKind.FACT,
            scope=scope,
            text="房租涨到了每月四千六。",
            extra={"mark": "new rent"},
            said_at=LATER,
        )
        await build_recall.entries.add(tx, new, now=LATER)

    marks = await build_recall.marks(talk, question)

    assert marks[0] == "new rent"
    assert "rent" not in marks
