"""Tests that unused facts decay, and that manual and pinned entries do not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import select

from bot.engine.memory import maintenance as nightly
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.maintenance import MemoryMaintenance
from storage.db import Transaction
from storage.errors import NotFound
from storage.memory.access_stats import DecayRepo, MemoryUse, MemoryUsePruner, MemoryUseRepo
from storage.memory_schema import memory_uses
from storage.records.memory import (
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryState,
    MemoryTier,
)
from storage.records.people import Chat
from storage.sessions import SessionRepo
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.memory.retrieval_builders import MY_SCOPE, RetrievalSetup, build_retrieval
from tests.engine_harness import CHAT, GROUP, START

NO_WAIT = asyncio.sleep


@asynccontextmanager
async def build_maintenance(
    home: Path,
) -> AsyncGenerator[tuple[RetrievalSetup, MemoryMaintenance], None]:
    async with build_retrieval(home) as it:
        yield (
            it,
            MemoryMaintenance(
                db=it.world.db,
                entries=it.entries,
                access_stats=DecayRepo(it.world.db),
                pruning=MemoryUsePruner(it.world.db),
                feed=MemoryChangeFeed(),
                now=it.world.clock,
                sleep=NO_WAIT,
                zone=UTC,
            ),
        )


async def states(it: RetrievalSetup, *entries: MemoryEntry) -> list[MemoryState]:
    return [(await it.reload(each)).state for each in entries]


async def test_a_fact_that_nobody_uses_is_archived_and_later_gone_without_a_mark(
    tmp_path: Path,
) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        fact = await it.keep("The shuttle leaves at nine")
        it.world.clock.advance(days=10)
        await care.sweep_decayed()
        at_first = await states(it, fact)
        it.world.clock.advance(days=4)
        archived = await care.sweep_decayed()
        then = await states(it, fact)
        it.world.clock.advance(days=10)
        deleted = await care.sweep_decayed()

        assert at_first == [MemoryState.ACTIVE]
        assert then == [MemoryState.ARCHIVED]
        assert (archived.archived, deleted.deleted) == (1, 1)
        with pytest.raises(NotFound):
            await it.reload(fact)
        assert (await it.keep("The shuttle leaves at nine")).used == 0, "it may be learnt again"


async def test_what_was_said_written_by_hand_or_pinned_outlives_everything(
    tmp_path: Path,
) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        kept = [
            await it.keep("Boss: good morning", kind=MemoryKind.CELL),
            await it.keep("Prefers tea", kind=MemoryKind.PROFILE),
            await it.keep("Lives by the sea", kind=MemoryKind.LONGTERM, tier=MemoryTier.CORE),
            await it.keep("The code is 4711", origin=MemoryOrigin.MANUAL),
            await it.keep("The dog is Bruno", pinned=True),
        ]
        it.world.clock.advance(days=4000)

        await care.sweep_decayed()

        assert await states(it, *kept) == [MemoryState.ACTIVE] * len(kept)


async def test_use_keeps_a_fact_alive(tmp_path: Path) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        await it.keep("The shuttle to Hiddensee leaves at nine")
        it.backend.said = "The shuttle to Hiddensee leaves at nine, as ever."
        for _ in range(4):
            it.world.clock.advance(days=5)
            await it.ask("When does the shuttle leave, please?")
            await care.sweep_decayed()

        found = await it.retriever.search_scopes((MY_SCOPE,), "shuttle", 5)
        assert [each.entry.used for each in found] == [4]


async def test_what_is_pinned_while_it_is_being_archived_stays(tmp_path: Path) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        fact = await it.keep("The shuttle leaves at nine")
        it.world.clock.advance(days=30)
        get = it.entries.get

        async def get_pinned(
            *args: object, tx: Transaction | None = None, **_: object
        ) -> MemoryEntry:
            return replace(await get(fact.id, [fact.scope], tx=tx), pinned=True)

        it.entries.get = get_pinned  # type: ignore[method-assign]  # somebody is quicker
        done = await care.sweep_decayed()
        it.entries.get = get  # type: ignore[method-assign]  # as before

        assert done.archived == 0
        assert await states(it, fact) == [MemoryState.ACTIVE]


async def test_every_night_use_and_age_move_facts_between_tiers(tmp_path: Path) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        old = await it.keep("The shuttle leaves at nine", tier=MemoryTier.WORKING)
        it.world.clock.advance(days=61)
        fresh = await it.keep("The ferry leaves at ten", tier=MemoryTier.WORKING)

        moved = await care.update_tiers()

        assert moved == 1
        assert (await it.reload(old)).tier is MemoryTier.PERIPHERAL
        assert (await it.reload(old)).revision == old.revision, "nobody's edit is in the way"
        assert (await it.reload(fresh)).tier is MemoryTier.WORKING


async def test_the_night_comes_once_a_day(tmp_path: Path) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        await care.run_hourly()
        fact = await it.keep("The shuttle leaves at nine", tier=MemoryTier.WORKING, pinned=False)
        old = replace(fact, said_at=fact.said_at - timedelta(days=90))
        await it.change(old)

        await care.run_hourly()
        same_day = (await it.reload(fact)).tier
        it.world.clock.advance(days=1)
        await care.run_hourly()

        assert same_day is MemoryTier.WORKING
        assert (await it.reload(fact)).tier is MemoryTier.PERIPHERAL


async def test_what_stood_before_answers_is_known_of_the_last_ones_only(tmp_path: Path) -> None:
    async with build_maintenance(tmp_path) as (it, care):
        db, start = it.world.db, it.world.clock.time

        async def stood(chat: Chat, turns: range, days: int) -> None:
            async with db.write() as tx:
                await uses.add(tx, [_use(chat, n, start + timedelta(days=days)) for n in turns])

        uses = MemoryUseRepo(db)
        for session in (CHAT, GROUP):
            async with db.write() as tx:
                await SessionRepo(db).start(
                    tx, id=session.id, key=session.id, backend="b", model="m", now=start
                )
        await stood(GROUP, range(3), days=0)
        await stood(CHAT, range(5), days=0)
        await stood(CHAT, range(5, 300), days=25)
        it.world.clock.advance(days=31)
        await care.run_hourly()
        async with db.read() as view:
            left = (await view.execute(select(memory_uses.c.chat_id, memory_uses.c.turn))).all()

        assert {turn for chat, turn in left if chat == GROUP.id} == {2}, "the last in any case"
        assert {turn for chat, turn in left if chat == CHAT.id} == set(range(100, 300))


async def test_a_night_that_died_after_any_commit_is_gone_on_with_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "_PAGE", 2)
    template = tmp_path / "template"
    template.mkdir()
    async with build_maintenance(template) as (it, _):
        for n in range(5):
            await it.keep(f"Fact {n} fades")
        it.world.clock.advance(days=13)
        for n in range(5):
            await it.keep(f"Fact {n} is of long ago", said_at=START - timedelta(days=90))
    ends = []
    for nth in count():
        home, death = tmp_path / f"home{nth}", CrashAfterCommit(nth)
        shutil.copytree(template, home)
        if nth:
            with monkeypatch.context() as mortal:
                death.install(mortal)
                await death.run_until_crash(_night(home))
            if not death.crashed.is_set():
                break
        ends.append(await _night(home))

    assert len(ends) > 8
    assert {(state, tier) for _, state, tier, _ in ends[0]} == {
        (MemoryState.ACTIVE, MemoryTier.PERIPHERAL),
        (MemoryState.ARCHIVED, MemoryTier.WORKING),
    }
    assert ends == [ends[0]] * len(ends)


async def _night(home: Path) -> Sequence[tuple[str, MemoryState, MemoryTier, int]]:
    """The remaining entries; one that was changed twice has one more revision."""
    async with build_maintenance(home) as (it, care):
        it.world.clock.time = START + timedelta(days=14)
        await care.run_hourly()
        states = [MemoryState.ACTIVE, MemoryState.ARCHIVED]
        found = await it.entries.list(None, states=states)
        return sorted((each.text, each.state, each.tier, each.revision) for each in found)


def _use(chat: Chat, turn: int, at: datetime) -> MemoryUse:
    return MemoryUse(
        session=chat.id,
        turn=turn,
        chat=chat.id,
        task=None,
        entry=EntryId("e"),
        block="profile",
        score=0.0,
        parts={},
        at=at,
    )
