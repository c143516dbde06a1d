"""What is learned in private serves others only once its person says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.memory.writing.recorder import Turn, Work
from storage.errors import NotAllowed, Overtaken
from storage.memory import cells as cells_of_memory
from storage.records.approvals import Approval
from storage.records.memory.entries import (
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    Origin,
    Scope,
    ScopeKind,
)
from storage.records.memory.offers import offered_to
from tests.bot.engine.memory.writing.test_candidates import Asking, asking_of
from tests.bot.engine.memory.writing.world import (
    BOSS_IN_TEAM,
    BY_MATE,
    MATE_IN_TEAM,
    MATES,
    MATES_CHAT,
    TEAM,
    drawn,
    notes_of,
    remembering,
)
from tests.engine_world import BOSS, MATE

REVIEW = Scope(ScopeKind.SKILL, "review")
SHOP = Scope(ScopeKind.PROJECT, "/srv/shop")
LEARNED = "Reviews of a quarter begin with the figures"
CANDIDATE = (EntryState.CANDIDATE,)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncGenerator[Asking, None]:
    async with remembering(tmp_path) as memory:
        yield asking_of(memory)


async def learned(asking: Asking, text: str = LEARNED, source: str = "inbox:1") -> None:
    """With a skill, in the mate's own chat."""
    memory = asking.memory
    turn = Turn(
        person=MATE,
        chat=MATES_CHAT,
        said=f"From now on: {text}",
        answer="Ok.",
        source=source,
        at=memory.world.clock(),
        skill="review",
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.said(tx, turn)
    memory.notes.answers = [notes_of(drawn(text, category="lessons"))]
    await memory.draw()


async def asked(asking: Asking) -> Approval:
    asking.memory.world.clock.pass_by(days=2)
    await asking.asker.look()
    [card] = await asking.open()
    return card


async def known(asking: Asking, scope: Scope) -> list[str]:
    return [each.text for each in await asking.memory.entries.list([scope])]


async def facts(asking: Asking) -> list[Entry]:
    return await asking.memory.all(MemoryKind.FACT)


async def test_what_a_person_says_in_private_is_told_to_no_skill_on_its_own(
    asking: Asking,
) -> None:
    await learned(asking)

    assert [each.scope for each in await facts(asking)] == [MATES]
    assert await asking.memory.found(LEARNED, REVIEW, TEAM) == []
    assert await known(asking, REVIEW) == []


async def test_the_person_is_asked_in_private_for_whom_it_would_be_and_a_yes_shares_it(
    asking: Asking,
) -> None:
    await learned(asking)

    card = await asked(asking)
    assert (card.chat_id, card.approvers) == (MATES_CHAT.id, (MATE.id,))
    assert "skill review" in card.title
    assert LEARNED in card.detail

    await asking.approvals.decide(card, approve=True, by=MATE, source="press")

    [copy] = await asking.memory.entries.list([REVIEW])
    assert (copy.text, copy.state, offered_to(copy)) == (LEARNED, EntryState.ACTIVE, None)
    assert (copy.person, copy.chat, copy.sender, copy.origin) == (None, None, "", Origin.CHAT)
    assert LEARNED in await known(asking, MATES)
    assert asking.memory.deciding.decided == {MATES, REVIEW}


async def test_a_no_is_asked_about_once(asking: Asking) -> None:
    await learned(asking)
    card = await asked(asking)
    await asking.approvals.decide(card, approve=False, by=MATE, source="press")

    await learned(asking, source="inbox:2")
    asking.memory.world.clock.pass_by(days=2)
    await asking.asker.look()

    assert await known(asking, REVIEW) == []
    assert LEARNED in await known(asking, MATES)
    shared = [each for each in await asking.memory.all(states=CANDIDATE) if offered_to(each)]
    assert shared == []


async def test_a_task_ordered_in_private_tells_its_project_nothing_unasked(
    asking: Asking,
) -> None:
    memory = asking.memory
    task = await memory.world.add("Mend the build")
    work = Work(
        task=task.id,
        person=MATE,
        chat=MATES_CHAT,
        asked="Mend the build",
        done="The build needs node 22",
        project=SHOP.name,
        source=f"task:{task.id}:1",
        at=memory.world.clock(),
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.task_done(tx, work)
    memory.notes.answers = [
        notes_of(drawn("The build needs node 22", category="pitfalls", source="event"))
    ]
    await memory.draw()

    assert await known(asking, SHOP) == []
    card = await asked(asking)
    assert "project shop" in card.title
    await asking.approvals.decide(card, approve=True, by=MATE, source="press")
    assert await known(asking, SHOP) == ["The build needs node 22"]


async def test_what_is_forgotten_or_changed_is_offered_to_nobody_any_more(asking: Asking) -> None:
    await learned(asking)
    [fact] = await facts(asking)
    await asking.memory.writer.edit(fact, "Reviews begin with thanks", BY_MATE)
    assert await asking.memory.all(states=CANDIDATE) == []

    await learned(asking, "Figures of a quarter are checked twice", "inbox:2")
    newer = (await facts(asking))[-1]
    await asking.memory.writer.forget(newer, BY_MATE)
    assert await asking.memory.all(states=CANDIDATE) == []


async def test_what_is_offered_is_kept_for_others_by_command_too(asking: Asking) -> None:
    await learned(asking)
    [candidate] = await asking.memory.all(states=CANDIDATE)

    await asking.memory.writer.confirm(candidate, BY_MATE)

    assert await known(asking, REVIEW) == [LEARNED]


async def test_what_was_changed_after_it_was_asked_is_asked_anew(asking: Asking) -> None:
    await asking.propose("drinks tea", "lives in Ulm", "plays chess", scope=MATES)
    await asking.asker.look()
    [card] = await asking.open()
    held = await asking.memory.entries.get(card.payload["entries"][0], None)
    await asking.memory.writer.edit(held, "drinks tea and is always late", BY_MATE)

    for approve in (True, False):
        with pytest.raises(Overtaken):
            await asking.approvals.decide(card, approve=approve, by=MATE, source="press")
    assert len(await asking.memory.all(states=CANDIDATE)) == 3

    await asking.asker.look()

    [again] = await asking.open()
    assert again.id != card.id
    assert "always late" in again.detail
    await asking.approvals.decide(again, approve=True, by=MATE, source="press")
    assert "drinks tea and is always late" in await known(asking, MATES)


async def test_what_was_read_before_it_changed_is_not_decided_about(asking: Asking) -> None:
    [read] = await asking.propose("drinks tea", scope=MATES)
    await asking.memory.writer.edit(read, "drinks gin", BY_MATE)

    with pytest.raises(Overtaken):
        await asking.memory.writer.confirm(read, BY_MATE)


async def test_in_a_group_each_decides_about_what_they_said(asking: Asking) -> None:
    mates = await asking.propose("the standup is at nine", "lunch is at noon", scope=TEAM)
    bosses = await asking.propose("the retro is on Friday", scope=TEAM)
    unknown = await asking.propose("the door code changes in May", scope=TEAM)
    async with asking.memory.world.db.write() as tx:
        for each, person in ((bosses[0], BOSS.id), (unknown[0], None)):
            await asking.memory.entries.change(
                tx, replace(each, person=person), now=asking.memory.world.clock()
            )

    asked_of = []
    for _ in range(3):
        card = await asked(asking)
        by = MATE if MATE.id in card.approvers else BOSS
        asked_of.append((card.approvers, len(card.payload["entries"])))
        await asking.approvals.decide(card, approve=True, by=by, source=f"press:{card.id}")
    assert asked_of == [((MATE.id,), 2), ((BOSS.id,), 1), ((), 1)]
    assert await asking.memory.all(states=CANDIDATE) == []
    assert len(await known(asking, TEAM)) == len(mates) + 2


async def test_nobody_decides_about_somebody_elses_whatever_the_card(asking: Asking) -> None:
    [mates] = await asking.propose("the standup is at nine", scope=TEAM)
    card = await asked(asking)
    forged = replace(card, approvers=())
    async with asking.memory.world.db.write() as tx:
        with pytest.raises(NotAllowed):
            await asking.memory.deciding.settle(
                tx, replace(forged, state=type(card.state).APPROVED, decided_by=BOSS.id)
            )
    held = await asking.memory.entries.get(mates.id, None)
    for decide in (asking.memory.writer.confirm, asking.memory.writer.reject):
        with pytest.raises(NotAllowed):
            await decide(held, BOSS_IN_TEAM)

    kept = await asking.memory.writer.confirm(held, MATE_IN_TEAM)
    assert kept.state is EntryState.ACTIVE


async def test_however_many_wait_none_is_taken_back_unseen(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_of_memory, "_A_PAGE", 2)
    await asking.propose("drinks tea", "lives in Ulm", "plays chess", scope=MATES)
    await asking.asker.look()
    await asking.propose(*(f"the team has rule number {n}" for n in range(5)), scope=TEAM)

    await asking.asker.look()

    assert len(await asking.open()) == 2
    assert asking.settled == []


async def test_what_people_wrote_keeps_nothing_from_being_demoted(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_of_memory, "_A_PAGE", 2)
    memory, now = asking.memory, asking.memory.world.clock()
    for n in range(7):
        by_hand = n > 2
        new = NewEntry(
            kind=MemoryKind.LONGTERM,
            scope=MATES,
            text=f"note number {n}",
            origin=Origin.MANUAL if by_hand else Origin.CHAT,
            extra={"auto": "fact", "risen_at": now.isoformat()},
        )
        async with memory.world.db.write() as tx:
            await memory.entries.add(tx, new, now=now)

    async with memory.world.db.write() as tx:
        assert await memory.keeper.demote(tx, now=now, since=now) == 3

    assert len(await memory.all(MemoryKind.LONGTERM)) == 4
