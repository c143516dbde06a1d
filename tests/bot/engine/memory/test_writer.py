"""Tests manual entries and the permissions to write them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.memory.access import LOCAL_EDITOR, ManualMemory, MemoryEditor, MemoryReader
from storage.errors import ConcurrentUpdate, NotAllowed, NotFound, WrongState
from storage.records.memory import (
    GLOBAL_SCOPE,
    MAX_ENTRY_TEXT,
    MemoryEntry,
    MemoryKind,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryRejectionReason,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
)
from tests.bot.engine.memory.writing_builders import (
    BOSS_IN_TEAM,
    BY_BOSS,
    BY_MATE,
    MATE_IN_TEAM,
    MY_SCOPE,
    TEAM_SCOPE,
    WritingSetup,
    build_writing,
)
from tests.engine_harness import BOSS

PROJECT = MemoryScope(MemoryScopeKind.PROJECT, "/srv/shop")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(tmp_path) as made:
        yield made


async def test_what_is_written_in_private_is_the_persons_and_in_a_group_the_groups(
    memory: WritingSetup,
) -> None:
    mine = await memory.writer.add(ManualMemory(text="I like tea"), BY_BOSS)
    ours = await memory.writer.add(ManualMemory(text="we deploy on Mondays"), BOSS_IN_TEAM)

    assert (mine.scope, ours.scope) == (MY_SCOPE, TEAM_SCOPE)
    assert mine.origin is MemoryOrigin.MANUAL
    assert await memory.search("tea") == ["I like tea"]


async def test_what_was_forgotten_comes_back_only_by_hand(memory: WritingSetup) -> None:
    mine = await memory.writer.add(ManualMemory(text="My PIN is 1234"), BY_BOSS)
    assert await memory.writer.forget(mine, BY_BOSS) == 1
    assert await memory.search("PIN") == []

    async with memory.world.db.write() as tx:
        fact = NewMemoryEntry(kind=MemoryKind.FACT, scope=MY_SCOPE, text="my PIN is 1234.")
        assert await memory.entries.add(tx, fact, now=memory.world.clock()) is None
    await memory.writer.add(ManualMemory(text="my pin is 1234"), BY_BOSS)

    assert await memory.search("PIN") == ["my pin is 1234"]


async def test_forgetting_a_fact_forgets_what_it_was_drawn_from(memory: WritingSetup) -> None:
    cell = await memory.record_turn("By the way, my PIN is 1234", "Noted.")
    other = await memory.record_turn("And the weather is fine today", "Good.")
    assert cell is not None
    assert other is not None
    fact = NewMemoryEntry(kind=MemoryKind.FACT, scope=MY_SCOPE, text="The PIN of the Boss is 1234")
    async with memory.world.db.write() as tx:
        made = await memory.entries.add(tx, fact, now=memory.world.clock())
        assert made is not None
        await memory.cells.link_sources(tx, made, [cell])

    assert await memory.writer.forget(made, BY_BOSS) == 2

    assert not any("PIN" in each for each in await memory.search("PIN"))
    assert [each.id for each in await memory.list_entries()] == [other.id]


async def test_no_secret_is_kept_in_what_comes_with_an_entry(memory: WritingSetup) -> None:
    wanted = ManualMemory(text="The login", label="pass hunter2", keywords=("login", "hunter2"))
    one = await memory.writer.add(wanted, BY_BOSS)
    (many,) = await memory.writer.add_all([replace(wanted, text="Another")], BY_BOSS)

    assert isinstance(many, MemoryEntry)
    for made in (one, many):
        assert (made.label, made.keywords) == ("pass ••••", ("login", "••••"))


async def test_forgetting_takes_what_it_took_the_place_of(memory: WritingSetup) -> None:
    first = await memory.writer.add(
        ManualMemory(text="The gate's code is 1234", key="gate"), BY_BOSS
    )
    second = await memory.writer.add(
        ManualMemory(text="The gate's code is 1235", key="gate"), BY_BOSS
    )
    third = await memory.writer.add(
        ManualMemory(text="The gate's code is 1236", key="gate"), BY_BOSS
    )
    other = await memory.writer.add(ManualMemory(text="The gate is green"), BY_BOSS)

    old = await memory.list_entries(states=(MemoryState.SUPERSEDED,))
    assert {each.id for each in old} == {first.id, second.id}
    assert await memory.writer.forget(third, BY_BOSS) == 3
    assert [each.id for each in await memory.list_entries(states=tuple(MemoryState))] == [other.id]


async def test_forgetting_what_was_so_once_leaves_what_is_so_now(memory: WritingSetup) -> None:
    first = await memory.writer.add(ManualMemory(text="We meet on Monday", key="day"), BY_BOSS)
    second = await memory.writer.add(ManualMemory(text="We meet on Friday", key="day"), BY_BOSS)

    assert await memory.writer.forget(first, BY_BOSS) == 1
    assert [each.id for each in await memory.list_entries(states=tuple(MemoryState))] == [second.id]


async def test_forgetting_what_was_said_forgets_the_facts_drawn_from_it_alone(
    memory: WritingSetup,
) -> None:
    one = await memory.record_turn("I drink tea every morning", "Nice.")
    two = await memory.record_turn("Tea again, and Ulm is where I sleep", "Nice.")
    assert one is not None
    assert two is not None
    both = NewMemoryEntry(kind=MemoryKind.FACT, scope=MY_SCOPE, text="The Boss drinks tea")
    alone = NewMemoryEntry(kind=MemoryKind.FACT, scope=MY_SCOPE, text="The Boss lives in Ulm")
    async with memory.world.db.write() as tx:
        tea = await memory.entries.add(tx, both, now=memory.world.clock())
        ulm = await memory.entries.add(tx, alone, now=memory.world.clock())
        assert tea is not None
        assert ulm is not None
        await memory.cells.link_sources(tx, tea, [one, two])
        await memory.cells.link_sources(tx, ulm, [two])

    assert await memory.writer.forget(two, BY_BOSS) == 2

    assert await memory.texts(MemoryKind.FACT) == ["The Boss drinks tea"]


async def test_the_same_words_again_are_the_same_entry(memory: WritingSetup) -> None:
    one = await memory.writer.add(ManualMemory(text="I like tea"), BY_BOSS)
    two = await memory.writer.add(ManualMemory(text="i like TEA!"), BY_BOSS)

    assert one.id == two.id
    assert await memory.texts() == ["i like TEA!"]


async def test_a_newer_word_about_the_same_takes_the_place_of_the_older(
    memory: WritingSetup,
) -> None:
    old = await memory.writer.add(
        ManualMemory(text="editor: vim", key="preferences:editor"), BY_BOSS
    )
    new = await memory.writer.add(
        ManualMemory(text="editor: helix", key="preferences:editor"), BY_BOSS
    )

    gone = await memory.entries.get(old.id, [MY_SCOPE])

    assert (gone.state, gone.superseded_by) == (MemoryState.SUPERSEDED, new.id)
    assert gone.invalidated_at is not None
    assert new.supersedes == old.id
    assert await memory.search("editor") == ["editor: helix"]


async def test_what_is_superseded_is_kept_with_its_dates(memory: WritingSetup) -> None:
    old = await memory.writer.add(ManualMemory(text="lives in Ulm", key="home"), BY_BOSS)
    new = await memory.writer.add(ManualMemory(text="lives in Bonn", key="home"), BY_BOSS)

    assert await memory.search("lives") == ["lives in Bonn"]
    gone = await memory.entries.get(old.id, [MY_SCOPE])
    assert (gone.text, gone.superseded_by) == ("lives in Ulm", new.id)


async def test_an_edit_on_what_is_not_there_any_more_is_refused(memory: WritingSetup) -> None:
    read = await memory.writer.add(ManualMemory(text="I like tea"), BY_BOSS)
    await memory.writer.edit(read, "I like coffee", BY_BOSS)

    with pytest.raises(ConcurrentUpdate, match=read.id):
        await memory.writer.edit(read, "I like water", BY_BOSS)

    assert await memory.texts() == ["I like coffee"]
    assert await memory.search("tea") == []


async def test_what_was_true_of_the_old_words_goes_with_them(memory: WritingSetup) -> None:
    await memory.record_turn("call me Max", "Hi Max.")
    [name] = await memory.list_entries(MemoryKind.PROFILE)
    assert name.extra["value"] == "Max"

    edited = await memory.writer.edit(name, "Wants to be called Moritz", BY_BOSS)

    assert "value" not in edited.extra


async def test_an_edit_is_not_in_the_way_of_what_the_program_counts(memory: WritingSetup) -> None:
    read = await memory.writer.add(ManualMemory(text="I like tea"), BY_BOSS)
    async with memory.world.db.write() as tx:
        await memory.entries.update(tx, replace(read, used=3), now=memory.world.clock())

    edited = await memory.writer.edit(read, "I like coffee", BY_BOSS)

    assert (edited.text, edited.used) == ("I like coffee", 3)


async def test_members_change_what_is_theirs_and_their_groups(memory: WritingSetup) -> None:
    mine = await memory.writer.add(ManualMemory(text="a secret of the Boss"), BY_BOSS)
    ours = await memory.writer.add(ManualMemory(text="we meet at nine"), BOSS_IN_TEAM)
    everybodys = await memory.writer.add(ManualMemory(text="be kind", scope=GLOBAL_SCOPE), BY_BOSS)

    assert (await memory.writer.edit(ours, "we meet at ten", MATE_IN_TEAM)).text == "we meet at ten"
    for by in (BY_MATE, MATE_IN_TEAM):
        with pytest.raises(NotFound):
            await memory.writer.edit(mine, "mine now", by)
        with pytest.raises(NotFound):
            await memory.writer.forget(mine, by)
        with pytest.raises(NotAllowed):
            await memory.writer.edit(everybodys, "be rude", by)
        with pytest.raises(NotAllowed):
            await memory.writer.add(ManualMemory(text="x is y", scope=GLOBAL_SCOPE), by)
        with pytest.raises(NotAllowed):
            await memory.writer.add(ManualMemory(text="x is y", scope=PROJECT), by)
    with pytest.raises(NotFound):
        await memory.writer.forget(ours, BY_MATE)


async def test_in_a_group_nobody_touches_what_is_private_not_even_their_own(
    memory: WritingSetup,
) -> None:
    mine = await memory.writer.add(ManualMemory(text="a secret"), BY_BOSS)

    with pytest.raises(NotFound):
        await memory.writer.edit(mine, "told", BOSS_IN_TEAM)
    with pytest.raises(NotAllowed):
        await memory.writer.add(ManualMemory(text="told", scope=MY_SCOPE), BOSS_IN_TEAM)


async def test_only_an_owners_word_makes_something_everybodys(memory: WritingSetup) -> None:
    his = await memory.writer.add(ManualMemory(text="we use pnpm"), BY_MATE)
    with pytest.raises(NotAllowed):
        await memory.writer.move(his, GLOBAL_SCOPE, BY_MATE)

    mine = await memory.writer.add(ManualMemory(text="we use uv"), BY_BOSS)
    moved = await memory.writer.move(mine, GLOBAL_SCOPE, BY_BOSS)

    assert moved.scope == GLOBAL_SCOPE
    assert await memory.search("uv", MY_SCOPE) == []
    assert await memory.search("uv", GLOBAL_SCOPE) == ["we use uv"]


async def test_nothing_and_too_much_are_refused_and_secrets_are_not_kept(
    memory: WritingSetup,
) -> None:
    with pytest.raises(MemoryNotSaved) as empty:
        await memory.writer.add(ManualMemory(text=" \0 "), BY_BOSS)
    with pytest.raises(MemoryNotSaved) as long:
        await memory.writer.add(ManualMemory(text="x" * (MAX_ENTRY_TEXT + 1)), BY_BOSS)
    assert (empty.value.reason, long.value.reason) == (
        MemoryRejectionReason.EMPTY,
        MemoryRejectionReason.TOO_LONG,
    )

    kept = await memory.writer.add(ManualMemory(text="the password is hunter2"), BY_BOSS)

    assert kept.text == "the password is ••••"


async def test_whoever_holds_the_folder_may_change_all_of_it(memory: WritingSetup) -> None:
    his = await memory.writer.add(ManualMemory(text="a note of the mate"), BY_MATE)

    assert (await memory.writer.edit(his, "a note", LOCAL_EDITOR)).text == "a note"


async def test_who_follows_hears_what_has_changed(memory: WritingSetup) -> None:
    follower = memory.feed.subscribe()
    waiting = asyncio.create_task(memory.feed.subscribe().wait())
    await asyncio.sleep(0)

    await memory.writer.add(ManualMemory(text="I like tea"), BY_BOSS)
    await memory.writer.add(ManualMemory(text="we like tea"), BOSS_IN_TEAM)

    assert await follower.wait() == {MY_SCOPE, TEAM_SCOPE}
    assert MY_SCOPE in await waiting


async def test_nobody_writes_where_there_is_no_chat(memory: WritingSetup) -> None:
    nowhere = MemoryEditor(person=BOSS, reader=MemoryReader(person=BOSS.id))

    with pytest.raises(NotFound):
        await memory.writer.add(ManualMemory(text="I like tea"), nowhere)


async def test_a_candidate_is_kept_or_dropped_once(memory: WritingSetup) -> None:
    def candidate(text: str) -> NewMemoryEntry:
        return NewMemoryEntry(
            kind=MemoryKind.LONGTERM, scope=MY_SCOPE, text=text, state=MemoryState.CANDIDATE
        )

    async with memory.world.db.write() as tx:
        one = await memory.entries.add(tx, candidate("drinks tea"), now=memory.world.clock())
        two = await memory.entries.add(tx, candidate("drinks wine"), now=memory.world.clock())
    assert one is not None
    assert two is not None
    assert await memory.search("drinks") == []
    with pytest.raises(NotFound):
        await memory.writer.confirm(one, BY_MATE)

    kept = await memory.writer.confirm(one, BY_BOSS)
    await memory.writer.reject(two, BY_BOSS)

    assert (kept.state, kept.origin) == (MemoryState.ACTIVE, MemoryOrigin.MANUAL)
    assert await memory.search("drinks") == ["drinks tea"]
    for each in (one, two):
        with pytest.raises(WrongState):
            await memory.writer.confirm(each, BY_BOSS)
