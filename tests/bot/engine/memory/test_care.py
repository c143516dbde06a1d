"""What nobody uses fades away, hour by hour; what somebody wrote or pinned never does."""

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

from bot.engine.memory import care as nightly
from bot.engine.memory.care import Care
from bot.engine.memory.changed import Changed
from storage.db import Transaction
from storage.errors import NotFound
from storage.memory.living.pruning import UsePruning
from storage.memory.living.uses import Use, UseRepo
from storage.memory.living.wear import WearRepo
from storage.memory.tables import memory_uses
from storage.records.memory.entries import Entry, EntryId, EntryState, MemoryKind, Origin, Tier
from storage.records.people import Chat
from storage.sessions import SessionRepo
from tests.bot.engine.death import Death
from tests.bot.engine.memory.mind import MINE, Mind, mind
from tests.engine_world import CHAT, GROUP, START

NO_WAIT = asyncio.sleep


@asynccontextmanager
async def cared_for(home: Path) -> AsyncGenerator[tuple[Mind, Care], None]:
    async with mind(home) as it:
        yield (
            it,
            Care(
                db=it.world.db,
                entries=it.entries,
                wear=WearRepo(it.world.db),
                pruning=UsePruning(it.world.db),
                changed=Changed(),
                now=it.world.clock,
                sleep=NO_WAIT,
                zone=UTC,
            ),
        )


async def states(it: Mind, *entries: Entry) -> list[EntryState]:
    return [(await it.now(each)).state for each in entries]


async def test_a_fact_that_nobody_uses_is_archived_and_later_gone_without_a_mark(
    tmp_path: Path,
) -> None:
    async with cared_for(tmp_path) as (it, care):
        fact = await it.keep("The shuttle leaves at nine")
        it.world.clock.pass_by(days=10)
        await care.forget()
        at_first = await states(it, fact)
        it.world.clock.pass_by(days=4)
        archived = await care.forget()
        then = await states(it, fact)
        it.world.clock.pass_by(days=10)
        deleted = await care.forget()

        assert at_first == [EntryState.ACTIVE]
        assert then == [EntryState.ARCHIVED]
        assert (archived.archived, deleted.deleted) == (1, 1)
        with pytest.raises(NotFound):
            await it.now(fact)
        assert (await it.keep("The shuttle leaves at nine")).used == 0, "it may be learnt again"


async def test_what_was_said_written_by_hand_or_pinned_outlives_everything(
    tmp_path: Path,
) -> None:
    async with cared_for(tmp_path) as (it, care):
        kept = [
            await it.keep("Boss: good morning", kind=MemoryKind.CELL),
            await it.keep("Prefers tea", kind=MemoryKind.PROFILE),
            await it.keep("Lives by the sea", kind=MemoryKind.LONGTERM, tier=Tier.CORE),
            await it.keep("The code is 4711", origin=Origin.MANUAL),
            await it.keep("The dog is Bruno", pinned=True),
        ]
        it.world.clock.pass_by(days=4000)

        await care.forget()

        assert await states(it, *kept) == [EntryState.ACTIVE] * len(kept)


async def test_use_keeps_a_fact_alive(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as (it, care):
        await it.keep("The shuttle to Hiddensee leaves at nine")
        it.talker.said = "The shuttle to Hiddensee leaves at nine, as ever."
        for _ in range(4):
            it.world.clock.pass_by(days=5)
            await it.ask("When does the shuttle leave, please?")
            await care.forget()

        found = await it.recall.within((MINE,), "shuttle", 5)
        assert [each.entry.used for each in found] == [4]


async def test_what_is_pinned_while_it_is_being_archived_stays(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as (it, care):
        fact = await it.keep("The shuttle leaves at nine")
        it.world.clock.pass_by(days=30)
        get = it.entries.get

        async def get_pinned(*args: object, tx: Transaction | None = None, **_: object) -> Entry:
            return replace(await get(fact.id, [fact.scope], tx=tx), pinned=True)

        it.entries.get = get_pinned  # type: ignore[method-assign]  # somebody is quicker
        done = await care.forget()
        it.entries.get = get  # type: ignore[method-assign]  # as before

        assert done.archived == 0
        assert await states(it, fact) == [EntryState.ACTIVE]


async def test_every_night_use_and_age_move_facts_between_tiers(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as (it, care):
        old = await it.keep("The shuttle leaves at nine", tier=Tier.WORKING)
        it.world.clock.pass_by(days=61)
        fresh = await it.keep("The ferry leaves at ten", tier=Tier.WORKING)

        moved = await care.move()

        assert moved == 1
        assert (await it.now(old)).tier is Tier.PERIPHERAL
        assert (await it.now(old)).revision == old.revision, "nobody's edit is in the way"
        assert (await it.now(fresh)).tier is Tier.WORKING


async def test_the_night_comes_once_a_day(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as (it, care):
        await care.hourly()
        fact = await it.keep("The shuttle leaves at nine", tier=Tier.WORKING, pinned=False)
        old = replace(fact, said_at=fact.said_at - timedelta(days=90))
        await it.change(old)

        await care.hourly()
        same_day = (await it.now(fact)).tier
        it.world.clock.pass_by(days=1)
        await care.hourly()

        assert same_day is Tier.WORKING
        assert (await it.now(fact)).tier is Tier.PERIPHERAL


async def test_what_stood_before_answers_is_known_of_the_last_ones_only(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as (it, care):
        db, start = it.world.db, it.world.clock.time

        async def stood(chat: Chat, turns: range, days: int) -> None:
            async with db.write() as tx:
                await uses.add(tx, [_use(chat, n, start + timedelta(days=days)) for n in turns])

        uses = UseRepo(db)
        for session in (CHAT, GROUP):
            async with db.write() as tx:
                await SessionRepo(db).begin(
                    tx, id=session.id, key=session.id, backend="b", model="m", now=start
                )
        await stood(GROUP, range(3), days=0)
        await stood(CHAT, range(5), days=0)
        await stood(CHAT, range(5, 300), days=25)
        it.world.clock.pass_by(days=31)
        await care.hourly()
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
    async with cared_for(template) as (it, _):
        for n in range(5):
            await it.keep(f"Fact {n} fades")
        it.world.clock.pass_by(days=13)
        for n in range(5):
            await it.keep(f"Fact {n} is of long ago", said_at=START - timedelta(days=90))
    ends = []
    for nth in count():
        home, death = tmp_path / f"home{nth}", Death(nth)
        shutil.copytree(template, home)
        if nth:
            with monkeypatch.context() as mortal:
                death.on(mortal)
                await death.or_end_of(_night(home))
            if not death.came.is_set():
                break
        ends.append(await _night(home))

    assert len(ends) > 8
    assert {(state, tier) for _, state, tier, _ in ends[0]} == {
        (EntryState.ACTIVE, Tier.PERIPHERAL),
        (EntryState.ARCHIVED, Tier.WORKING),
    }
    assert ends == [ends[0]] * len(ends)


async def _night(home: Path) -> Sequence[tuple[str, EntryState, Tier, int]]:
    """What is there after it; what was changed twice has one more revision."""
    async with cared_for(home) as (it, care):
        it.world.clock.time = START + timedelta(days=14)
        await care.hourly()
        states = [EntryState.ACTIVE, EntryState.ARCHIVED]
        found = await it.entries.list(None, states=states)
        return sorted((each.text, each.state, each.tier, each.revision) for each in found)


def _use(chat: Chat, turn: int, at: datetime) -> Use:
    return Use(
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
