"""Tests that private lessons are shared only with their person's approval."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.memory.ingestion import ConversationTurn, FinishedTaskRecord
from storage.errors import ConcurrentUpdate, NotAllowed
from storage.memory import cells as cells_of_memory
from storage.records.approvals import Approval
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
    offered_scope,
)
from tests.bot.engine.memory.test_candidate_review import CandidateSetup, build_candidates
from tests.bot.engine.memory.writing_builders import (
    BOSS_IN_TEAM,
    BY_MATE,
    MATE_CHAT,
    MATE_IN_TEAM,
    MATE_SCOPE,
    TEAM_SCOPE,
    build_writing,
    extracted_fact,
    extraction_of,
)
from tests.engine_harness import BOSS, MATE

REVIEW = MemoryScope(MemoryScopeKind.SKILL, "review")
SHOP = MemoryScope(MemoryScopeKind.PROJECT, "/srv/shop")
LEARNED = "Reviews of a quarter begin with the figures"
CANDIDATE = (MemoryState.CANDIDATE,)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncGenerator[CandidateSetup, None]:
    async with build_writing(tmp_path) as memory:
        yield build_candidates(memory)


async def learned(asking: CandidateSetup, text: str = LEARNED, source: str = "inbox:1") -> None:
    """With a skill, in the mate's own chat."""
    memory = asking.memory
    turn = ConversationTurn(
        person=MATE,
        chat=MATE_CHAT,
        user_text=f"From now on: {text}",
        assistant_text="Ok.",
        source=source,
        at=memory.world.clock(),
        skill="review",
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.record_turn(tx, turn, [])
    memory.model.answers = [extraction_of(extracted_fact(text, category="lessons"))]
    await memory.run_jobs()


async def asked(asking: CandidateSetup) -> Approval:
    asking.memory.world.clock.advance(days=2)
    await asking.asker.request_due()
    [card] = await asking.open()
    return card


async def known(asking: CandidateSetup, scope: MemoryScope) -> list[str]:
    return [each.text for each in await asking.memory.entries.list([scope])]


async def facts(asking: CandidateSetup) -> list[MemoryEntry]:
    return await asking.memory.list_entries(MemoryKind.FACT)


async def test_what_a_person_says_in_private_is_told_to_no_skill_on_its_own(
    asking: CandidateSetup,
) -> None:
    await learned(asking)

    assert [each.scope for each in await facts(asking)] == [MATE_SCOPE]
    assert await asking.memory.search(LEARNED, REVIEW, TEAM_SCOPE) == []
    assert await known(asking, REVIEW) == []


async def test_the_person_is_asked_in_private_for_whom_it_would_be_and_a_yes_shares_it(
    asking: CandidateSetup,
) -> None:
    await learned(asking)

    card = await asked(asking)
    assert (card.chat_id, card.approvers) == (MATE_CHAT.id, (MATE.id,))
    assert "skill review" in card.title
    assert LEARNED in card.detail

    await asking.approvals.decide(card, approve=True, by=MATE, source="press")

    [copy] = await asking.memory.entries.list([REVIEW])
    assert (copy.text, copy.state, offered_scope(copy)) == (LEARNED, MemoryState.ACTIVE, None)
    assert (copy.person, copy.chat, copy.sender, copy.origin) == (None, None, "", MemoryOrigin.CHAT)
    assert LEARNED in await known(asking, MATE_SCOPE)
    changes = asking.memory.feed.subscribe()
    asking.memory.candidate_review.publish_changes()
    assert await changes.wait() == {MATE_SCOPE, REVIEW}


async def test_a_no_is_asked_about_once(asking: CandidateSetup) -> None:
    await learned(asking)
    card = await asked(asking)
    await asking.approvals.decide(card, approve=False, by=MATE, source="press")

    await learned(asking, source="inbox:2")
    asking.memory.world.clock.advance(days=2)
    await asking.asker.request_due()

    assert await known(asking, REVIEW) == []
    assert LEARNED in await known(asking, MATE_SCOPE)
    shared = [
        each for each in await asking.memory.list_entries(states=CANDIDATE) if offered_scope(each)
    ]
    assert shared == []


async def test_a_task_ordered_in_private_tells_its_project_nothing_unasked(
    asking: CandidateSetup,
) -> None:
    memory = asking.memory
    task = await memory.world.create_task("Mend the build")
    work = FinishedTaskRecord(
        task=task.id,
        person=MATE,
        chat=MATE_CHAT,
        instruction="Mend the build",
        outcome="The build needs node 22",
        project=SHOP.name,
        source=f"task:{task.id}:1",
        at=memory.world.clock(),
    )
    async with memory.world.db.write() as tx:
        await memory.recorder.record_task(tx, work)
    memory.model.answers = [
        extraction_of(
            extracted_fact("The build needs node 22", category="pitfalls", source="event")
        )
    ]
    await memory.run_jobs()

    assert await known(asking, SHOP) == []
    card = await asked(asking)
    assert "project shop" in card.title
    await asking.approvals.decide(card, approve=True, by=MATE, source="press")
    assert await known(asking, SHOP) == ["The build needs node 22"]


async def test_what_is_forgotten_or_changed_is_offered_to_nobody_any_more(
    asking: CandidateSetup,
) -> None:
    await learned(asking)
    [fact] = await facts(asking)
    await asking.memory.writer.edit(fact, "Reviews begin with thanks", BY_MATE)
    assert await asking.memory.list_entries(states=CANDIDATE) == []

    await learned(asking, "Figures of a quarter are checked twice", "inbox:2")
    newer = (await facts(asking))[-1]
    await asking.memory.writer.forget(newer, BY_MATE)
    assert await asking.memory.list_entries(states=CANDIDATE) == []


async def test_what_is_offered_is_kept_for_others_by_command_too(asking: CandidateSetup) -> None:
    await learned(asking)
    [candidate] = await asking.memory.list_entries(states=CANDIDATE)

    await asking.memory.writer.confirm(candidate, BY_MATE)

    assert await known(asking, REVIEW) == [LEARNED]


async def test_what_was_changed_after_it_was_asked_is_asked_anew(asking: CandidateSetup) -> None:
    await asking.propose("drinks tea", "lives in Ulm", "plays chess", scope=MATE_SCOPE)
    await asking.asker.request_due()
    [card] = await asking.open()
    held = await asking.memory.entries.get(card.payload["entries"][0], None)
    await asking.memory.writer.edit(held, "drinks tea and is always late", BY_MATE)

    for approve in (True, False):
        with pytest.raises(ConcurrentUpdate):
            await asking.approvals.decide(card, approve=approve, by=MATE, source="press")
    assert len(await asking.memory.list_entries(states=CANDIDATE)) == 3

    await asking.asker.request_due()

    [again] = await asking.open()
    assert again.id != card.id
    assert "always late" in again.detail
    await asking.approvals.decide(again, approve=True, by=MATE, source="press")
    assert "drinks tea and is always late" in await known(asking, MATE_SCOPE)


async def test_what_was_read_before_it_changed_is_not_decided_about(asking: CandidateSetup) -> None:
    [read] = await asking.propose("drinks tea", scope=MATE_SCOPE)
    await asking.memory.writer.edit(read, "drinks gin", BY_MATE)

    with pytest.raises(ConcurrentUpdate):
        await asking.memory.writer.confirm(read, BY_MATE)


async def test_in_a_group_each_decides_about_what_they_said(asking: CandidateSetup) -> None:
    mates = await asking.propose("the standup is at nine", "lunch is at noon", scope=TEAM_SCOPE)
    bosses = await asking.propose("the retro is on Friday", scope=TEAM_SCOPE)
    unknown = await asking.propose("the door code changes in May", scope=TEAM_SCOPE)
    async with asking.memory.world.db.write() as tx:
        for each, person in ((bosses[0], BOSS.id), (unknown[0], None)):
            await asking.memory.entries.update(
                tx, replace(each, person=person), now=asking.memory.world.clock()
            )

    asked_of = []
    for _ in range(3):
        card = await asked(asking)
        by = MATE if MATE.id in card.approvers else BOSS
        asked_of.append((card.approvers, len(card.payload["entries"])))
        await asking.approvals.decide(card, approve=True, by=by, source=f"press:{card.id}")
    assert asked_of == [((MATE.id,), 2), ((BOSS.id,), 1), ((), 1)]
    assert await asking.memory.list_entries(states=CANDIDATE) == []
    assert len(await known(asking, TEAM_SCOPE)) == len(mates) + 2


async def test_nobody_decides_about_somebody_elses_whatever_the_card(
    asking: CandidateSetup,
) -> None:
    [mates] = await asking.propose("the standup is at nine", scope=TEAM_SCOPE)
    card = await asked(asking)
    forged = replace(card, approvers=())
    async with asking.memory.world.db.write() as tx:
        with pytest.raises(NotAllowed):
            await asking.memory.candidate_review.apply_approval(
                tx, replace(forged, state=type(card.state).APPROVED, decided_by=BOSS.id)
            )
    held = await asking.memory.entries.get(mates.id, None)
    for decide in (asking.memory.writer.confirm, asking.memory.writer.reject):
        with pytest.raises(NotAllowed):
            await decide(held, BOSS_IN_TEAM)

    kept = await asking.memory.writer.confirm(held, MATE_IN_TEAM)
    assert kept.state is MemoryState.ACTIVE


async def test_however_many_wait_none_is_taken_back_unseen(
    asking: CandidateSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_of_memory, "_PAGE_SIZE", 2)
    await asking.propose("drinks tea", "lives in Ulm", "plays chess", scope=MATE_SCOPE)
    await asking.asker.request_due()
    await asking.propose(*(f"the team has rule number {n}" for n in range(5)), scope=TEAM_SCOPE)

    await asking.asker.request_due()

    assert len(await asking.open()) == 2
    assert asking.settled == []


async def test_what_people_wrote_keeps_nothing_from_being_demoted(
    asking: CandidateSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_of_memory, "_PAGE_SIZE", 2)
    memory, now = asking.memory, asking.memory.world.clock()
    for n in range(7):
        by_hand = n > 2
        new = NewMemoryEntry(
            kind=MemoryKind.LONGTERM,
            scope=MATE_SCOPE,
            text=f"note number {n}",
            origin=MemoryOrigin.MANUAL if by_hand else MemoryOrigin.CHAT,
            extra={"auto": "fact", "risen_at": now.isoformat()},
        )
        async with memory.world.db.write() as tx:
            await memory.entries.add(tx, new, now=now)

    async with memory.world.db.write() as tx:
        assert await memory.consolidator.promoter.demote(tx, now=now, since=now) == 3

    assert len(await memory.list_entries(MemoryKind.LONGTERM)) == 4
