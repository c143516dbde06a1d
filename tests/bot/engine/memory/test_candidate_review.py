"""People are asked about candidates: together, seldom, and where only those read it who may."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.candidate_review import MAX_PER_CARD, CandidateApprovalRequester
from storage.approvals import ApprovalRepo
from storage.errors import NotFound
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
)
from storage.records.people import Chat, ChatId, Language, PersonRole
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.memory.writing_builders import (
    BY_BOSS,
    MATE_CHAT,
    MATE_SCOPE,
    MY_SCOPE,
    TEAM_SCOPE,
    WritingSetup,
    build_writing,
)
from tests.engine_harness import APPROVAL_LIFETIME, BOSS, CHAT, GROUP, MATE

KNOWN = {CHAT.id, MATE_CHAT.id, GROUP.id}


@dataclass
class CandidateSetup:
    memory: WritingSetup
    approvals: ApprovalRepo
    asker: CandidateApprovalRequester
    shown: list[Approval] = field(default_factory=list)
    settled: list[Approval] = field(default_factory=list)

    async def propose(self, *texts: str, scope: MemoryScope = MY_SCOPE) -> list[MemoryEntry]:
        made = []
        person, chat = {MY_SCOPE: (BOSS, CHAT), MATE_SCOPE: (MATE, MATE_CHAT)}.get(
            scope, (MATE, GROUP)
        )
        for text in texts:
            new = NewMemoryEntry(
                kind=MemoryKind.LONGTERM,
                scope=scope,
                text=text,
                state=MemoryState.CANDIDATE,
                person=person.id,
                chat=chat.id,
            )
            async with self.memory.world.db.write() as tx:
                entry = await self.memory.entries.add(tx, new, now=self.memory.world.clock())
            assert entry is not None
            made.append(entry)
        return made

    async def open(self) -> Sequence[Approval]:
        return await self.approvals.list_waiting_of_kind(ApprovalKind.MEMORY)


def build_candidates(memory: WritingSetup) -> CandidateSetup:
    world = memory.world
    approvals = ApprovalRepo(
        world.db,
        now=world.clock,
        decision_handlers={ApprovalKind.MEMORY: memory.candidate_review.apply_approval},
    )
    shown: list[Approval] = []
    settled: list[Approval] = []

    async def private(role: PersonRole) -> Sequence[Chat]:
        return [CHAT] if role is PersonRole.OWNER else [MATE_CHAT]

    async def show(approval: Approval) -> None:
        shown.append(approval)

    async def show_settled(some: Sequence[Approval]) -> None:
        settled.extend(some)

    async def spoken(chat: ChatId) -> Language:
        if chat not in KNOWN:
            raise NotFound("chat", chat)
        return Language.ENGLISH

    asker = CandidateApprovalRequester(
        db=world.db,
        entries=memory.entries,
        cells=memory.cells,
        approvals=approvals,
        key_values=KeyValueStore(world.db),
        feed=memory.feed,
        private_chats_of=private,
        show_approval=show,
        show_settled_approvals=show_settled,
        language_of=spoken,
        ids=IdGenerator(),
        lifetime=APPROVAL_LIFETIME,
        now=world.clock,
    )
    return CandidateSetup(memory, approvals, asker, shown, settled)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncGenerator[CandidateSetup, None]:
    async with build_writing(tmp_path) as memory:
        yield build_candidates(memory)


async def test_several_are_asked_about_at_once_in_private(asking: CandidateSetup) -> None:
    await asking.propose("drinks tea", "lives in Ulm", "plays chess")

    await asking.asker.request_due()
    await asking.asker.request_due()

    [asked] = asking.shown
    assert (asked.chat_id, asked.approvers) == (CHAT.id, (BOSS.id,))
    assert all(text in asked.detail for text in ("drinks tea", "lives in Ulm", "plays chess"))


async def test_a_few_wait_for_more_but_not_for_ever(asking: CandidateSetup) -> None:
    await asking.propose("drinks tea")
    await asking.asker.request_due()
    assert asking.shown == []

    asking.memory.world.clock.advance(days=2)
    await asking.asker.request_due()

    assert len(asking.shown) == 1


async def test_never_more_than_one_card_is_open_and_none_follows_at_once(
    asking: CandidateSetup,
) -> None:
    await asking.propose(*(f"fact number {n} of the Boss" for n in range(MAX_PER_CARD + 3)))
    await asking.asker.request_due()
    [first] = await asking.open()
    asking.memory.world.clock.advance(days=2)
    await asking.asker.request_due()
    assert len(await asking.open()) == 1

    await asking.approvals.decide(first, approve=True, by=BOSS, source="press")
    asking.memory.world.clock.advance(hours=1)
    await asking.asker.request_due()

    [second] = await asking.open()
    assert len(second.payload["entries"]) == 3


@pytest.mark.parametrize(("yes", "state"), [(True, "active"), (False, "rejected")])
async def test_one_press_decides_all_that_is_still_open(
    asking: CandidateSetup, yes: bool, state: str
) -> None:
    made = await asking.propose("drinks tea", "lives in Ulm", "plays chess")
    await asking.asker.request_due()
    [asked] = await asking.open()
    other = await asking.memory.entries.get(made[2].id, None)
    await asking.memory.writer.reject(other, BY_BOSS)

    await asking.approvals.decide(asked, approve=yes, by=BOSS, source="press")

    now = [await asking.memory.entries.get(each.id, None) for each in made]
    assert [each.state.value for each in now] == [state, state, "rejected"]
    figures = await asking.memory.quality.totals(today=asking.memory.world.clock().date())
    assert figures.confirmed + figures.rejected == 3
    changes = asking.memory.feed.subscribe()
    asking.memory.candidate_review.publish_changes()
    assert await changes.wait() == {MY_SCOPE}


async def test_where_all_were_decided_one_by_one_the_card_goes(asking: CandidateSetup) -> None:
    made = await asking.propose("drinks tea", "lives in Ulm", "plays chess")
    await asking.asker.request_due()
    for each in made:
        held = await asking.memory.entries.get(each.id, None)
        await asking.memory.writer.confirm(held, BY_BOSS)

    await asking.asker.request_due()

    assert await asking.open() == ()
    assert [each.id for each in asking.settled] == [each.id for each in asking.shown]


async def test_what_nobody_decided_stays_proposed_and_is_not_asked_again(
    asking: CandidateSetup,
) -> None:
    made = await asking.propose("drinks tea", "lives in Ulm", "plays chess")
    await asking.asker.request_due()
    asking.memory.world.clock.advance(days=8)
    [expired] = await asking.approvals.expire_overdue()
    await asking.asker.request_due()

    assert expired.state is ApprovalState.EXPIRED
    assert len(asking.shown) == 1
    left = await asking.memory.list_entries(states=(MemoryState.CANDIDATE,))
    assert [each.id for each in left] == [each.id for each in made]


async def test_everybody_is_asked_about_their_own_only(asking: CandidateSetup) -> None:
    project = MemoryScope(MemoryScopeKind.PROJECT, "/srv/shop")
    await asking.propose("the Boss one", "the Boss two", "the Boss three")
    await asking.propose("a mate one", "a mate two", "a mate three", scope=MATE_SCOPE)
    await asking.propose("the team one", "the team two", "the team three", scope=TEAM_SCOPE)
    await asking.propose("the shop one", "the shop two", "the shop three", scope=project)
    await asking.propose("for all one", "for all two", "for all three", scope=GLOBAL_SCOPE)

    await asking.asker.request_due()

    asked = {each.subject: each for each in asking.shown}
    whom = {subject: (each.chat_id, each.approvers) for subject, each in asked.items()}
    assert whom == {
        f"memory:{MY_SCOPE}": (CHAT.id, (BOSS.id,)),
        f"memory:{MATE_SCOPE}": (MATE_CHAT.id, (MATE.id,)),
        f"memory:{TEAM_SCOPE}": (GROUP.id, (MATE.id,)),
        f"memory:{project}": (CHAT.id, ()),
        f"memory:{GLOBAL_SCOPE}": (CHAT.id, ()),
    }
    assert not any("mate" in each.detail for each in asking.shown if each.chat_id == CHAT.id)


async def test_what_is_shown_cannot_dress_up_as_something_else(asking: CandidateSetup) -> None:
    await asking.propose("**bold** [press](http://x)", "lives in\n# Ulm", "plays chess")

    await asking.asker.request_due()

    [asked] = asking.shown
    assert "[press](http://x)" not in asked.detail
    assert "\n# Ulm" not in asked.detail


async def test_all_that_is_asked_about_can_be_read(asking: CandidateSetup) -> None:
    path = "/srv/" + "deep/" * 60
    far = MemoryScope(MemoryScopeKind.PROJECT, path)
    texts = [f"{n} " + "[wide](x) " * 20 for n in range(4)]
    await asking.propose(*texts, scope=far)

    await asking.asker.request_due()

    [asked] = asking.shown
    assert len(asked.detail) <= 1000
    assert 0 < len(asked.payload["entries"]) < len(texts)
    assert len(asked.subject) <= 100


@pytest.mark.parametrize("nth", range(1, 6))
async def test_a_death_at_any_commit_asks_once(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build_writing(tmp_path) as memory:
        await build_candidates(memory).propose("drinks tea", "lives in Ulm", "plays chess")

    async def live() -> None:
        async with build_writing(tmp_path) as memory:
            await build_candidates(memory).asker.request_due()

    death = CrashAfterCommit(nth)
    with monkeypatch.context() as dying:
        death.install(dying)
        await death.run_until_crash(live())
    async with build_writing(tmp_path) as memory:
        again = build_candidates(memory)
        memory.world.clock.advance(minutes=1)
        await again.asker.request_due()
        await again.asker.request_due()

        assert len(await again.open()) == 1
        assert len({each.id for each in again.shown}) == 1
        assert memory.world.clock() - again.shown[0].created_at < timedelta(days=1)


async def test_what_came_with_a_backup_of_another_home_stops_nothing(
    asking: CandidateSetup,
) -> None:
    elsewhere = MemoryScope(MemoryScopeKind.CHAT, "c-of-another-home")
    await asking.propose("drinks tea", "lives in Ulm", "plays chess", scope=elsewhere)
    await asking.propose("drinks milk", "lives in Bonn", "plays go", scope=TEAM_SCOPE)

    await asking.asker.request_due()

    [asked] = asking.shown
    assert asked.chat_id == GROUP.id
