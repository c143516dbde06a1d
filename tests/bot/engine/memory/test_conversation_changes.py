"""Tests conversations of several days in which facts begin, change and end, or only seem to, and
questions about the past that are asked later. The table holds what people say and, behind `=>`,
what a model would draw from it where the rules note nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.engine.memory.ingestion import ConversationTurn
from storage.db import Transaction
from storage.records.memory import (
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryState,
    MemoryTier,
    NewMemoryEntry,
)
from tests.bot.engine.memory.test_fact_changes import _aside
from tests.bot.engine.memory.writing_builders import MY_SCOPE, WritingSetup, build_writing
from tests.engine_harness import BOSS, CHAT, START

_TABLE = Path(__file__).with_name("conversation_changes.txt")
_FACTS = (MemoryKind.FACT, MemoryKind.PROFILE)
_TURN = re.compile(r"(\d\d)-(\d\d) (.*?)(?: => (.*))?")


@dataclass(frozen=True, slots=True)
class _Talk:
    """`turns` are the month, the day, what is said and what is drawn; `asked` a question, the part
    of its answer, and the mark beside it."""

    turns: Sequence[tuple[int, int, str, str]]
    checks: Sequence[tuple[str, str]]
    asked: Sequence[tuple[str, str, str]]


def _talks() -> Iterator[_Talk]:
    _, *blocks = _TABLE.read_text(encoding="utf-8").split("\n\n")
    for block in blocks:
        lines = block.splitlines()
        turns = [found for line in lines if (found := _TURN.fullmatch(line))]
        others = [line.partition(" ") for line in lines if not _TURN.fullmatch(line)]
        asked = [re.split(" => | ~ ", f"{rest} ~ ") for kind, _, rest in others if kind == "ask"]
        yield _Talk(
            [(int(each[1]), int(each[2]), each[3], each[4] or "") for each in turns],
            [(kind, rest) for kind, _, rest in others if kind != "ask"],
            [(each[0], each[1], each[2]) for each in asked],
        )


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def test_what_changes_in_a_conversation_is_known_and_the_past_is_told(
    memory: WritingSetup,
) -> None:
    talks = list(_talks())

    wrong = [(each.turns, fault) for each in talks for fault in await _faults(memory, each)]

    assert wrong == []
    assert len(talks) > 170, "the table must not lose its conversations"


async def _faults(memory: WritingSetup, talk: _Talk) -> Sequence[str]:
    known = await _hold(memory, talk)
    now = memory.world.clock()
    facts = await memory.entries.list(None, kinds=_FACTS, states=tuple(MemoryState))
    over = [each for each in facts if _is_over(each, now)]
    active = [each for each in facts if each.state is MemoryState.ACTIVE and each not in over]
    faults = []
    for kind, part in talk.checks:
        among = over if kind == "over" else active
        is_there = any(part.casefold() in each.text.casefold() for each in among)
        lost = [each.text for each in over if each.id in known]
        if lost if kind == "same" else is_there == (kind == "not"):
            faults.append(f"{kind} {part} {lost}")
    for question, part, mark in talk.asked:
        told = (await _aside(memory, question)).splitlines()
        if not any(part.casefold() in line.casefold() and mark in line for line in told):
            faults.append(f"{question}: {told}")
    return faults if known else ["nothing was known"]


def _is_over(entry: MemoryEntry, now: datetime) -> bool:
    until = entry.held_until
    return entry.state is MemoryState.SUPERSEDED or (until is not None and until <= now)


async def _hold(memory: WritingSetup, talk: _Talk) -> set[str]:
    """Say it all, in a store of its own; returns the facts known after the first turn."""
    async with memory.world.db.write() as tx:
        held = await memory.entries.list(None, states=tuple(MemoryState), tx=tx)
        await memory.entries.delete_all(tx, held)
        memory.world.clock.time = START
        first: set[str] = set()
        for at, (month, day, said, drawn) in enumerate(talk.turns):
            memory.world.clock.time = datetime(2026, month, day, 9, tzinfo=UTC)
            now = memory.world.clock()
            before = await _list_facts(memory, tx)
            turn = ConversationTurn(
                person=BOSS,
                chat=CHAT,
                user_text=said,
                assistant_text="",
                source=f"{at}:{said}",
                at=now,
            )
            await memory.recorder.record_turn(tx, turn, [])
            after = await _list_facts(memory, tx)
            if drawn and {each.id for each in after} <= {each.id for each in before}:
                await memory.entries.add(tx, _drawn(drawn, now), now=now)
                after = await _list_facts(memory, tx)
            if at == 0 or drawn:
                first |= {each.id for each in after} - {each.id for each in before}
    memory.world.clock.advance(days=1)
    return first


async def _list_facts(memory: WritingSetup, tx: Transaction) -> Sequence[MemoryEntry]:
    return await memory.entries.list(None, kinds=_FACTS, states=tuple(MemoryState), tx=tx)


def _drawn(text: str, now: datetime) -> NewMemoryEntry:
    return NewMemoryEntry(
        kind=MemoryKind.FACT,
        scope=MY_SCOPE,
        text=text,
        category=MemoryCategory.PROFILE,
        tier=MemoryTier.WORKING,
        confidence=0.9,
        source=f"drawn:{text}",
        sender=BOSS.name,
        person=BOSS.id,
        chat=CHAT.id,
        said_at=now,
    )
