"""People are asked about candidates: together, seldom, and where only those read it who may."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.memory.writing.candidates import MOST, CandidateAsker
from storage.approvals import Approvals
from storage.errors import NotFound
from storage.ids import Ids
from storage.marks import Marks
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.memory.entries import (
    GLOBAL,
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    Scope,
    ScopeKind,
)
from storage.records.people import Chat, ChatId, Language, Role
from tests.bot.engine.death import Death
from tests.bot.engine.memory.writing.world import (
    BY_BOSS,
    MATES,
    MATES_CHAT,
    MINE,
    TEAM,
    Memory,
    remembering,
)
from tests.engine_world import BOSS, CHAT, GROUP, LIFETIME, MATE

KNOWN = {CHAT.id, MATES_CHAT.id, GROUP.id}


@dataclass
class Asking:
    memory: Memory
    approvals: Approvals
    asker: CandidateAsker
    shown: list[Approval] = field(default_factory=list)
    settled: list[Approval] = field(default_factory=list)

    async def propose(self, *texts: str, scope: Scope = MINE) -> list[Entry]:
        made = []
        person, chat = {MINE: (BOSS, CHAT), MATES: (MATE, MATES_CHAT)}.get(scope, (MATE, GROUP))
        for text in texts:
            new = NewEntry(
                kind=MemoryKind.LONGTERM,
                scope=scope,
                text=text,
                state=EntryState.CANDIDATE,
                person=person.id,
                chat=chat.id,
            )
            async with self.memory.world.db.write() as tx:
                entry = await self.memory.entries.add(tx, new, now=self.memory.world.clock())
            assert entry is not None
            made.append(entry)
        return made

    async def open(self) -> Sequence[Approval]:
        return await self.approvals.open_of(ApprovalKind.MEMORY)


def asking_of(memory: Memory) -> Asking:
    world = memory.world
    approvals = Approvals(
        world.db, now=world.clock, consequences={ApprovalKind.MEMORY: memory.deciding.settle}
    )
    shown: list[Approval] = []
    settled: list[Approval] = []

    async def private(role: Role) -> Sequence[Chat]:
        return [CHAT] if role is Role.OWNER else [MATES_CHAT]

    async def show(approval: Approval) -> None:
        shown.append(approval)

    async def show_settled(some: Sequence[Approval]) -> None:
        settled.extend(some)

    async def spoken(chat: ChatId) -> Language:
        if chat not in KNOWN:
            raise NotFound("chat", chat)
        return Language.ENGLISH

    asker = CandidateAsker(
        db=world.db,
        entries=memory.entries,
        cells=memory.cells,
        approvals=approvals,
        marks=Marks(world.db),
        changed=memory.changed,
        private=private,
        show=show,
        show_settled=show_settled,
        spoken=spoken,
        ids=Ids(),
        lifetime=LIFETIME,
        now=world.clock,
    )
    return Asking(memory, approvals, asker, shown, settled)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncGenerator[Asking, None]:
    async with remembering(tmp_path) as memory:
        yield asking_of(memory)


async def test_several_are_asked_about_at_once_in_private(asking: Asking) -> None:
    await asking.propose("drinks tea", "lives in Ulm", "plays chess")

    await asking.asker.look()
    await asking.asker.look()

    [asked] = asking.shown
    assert (asked.chat_id, asked.approvers) == (CHAT.id, (BOSS.id,))
    assert all(text in asked.detail for text in ("drinks tea", "lives in Ulm", "plays chess"))


async def test_a_few_wait_for_more_but_not_for_ever(asking: Asking) -> None:
    await asking.propose("drinks tea")
    await asking.asker.look()
    assert asking.shown == []

    asking.memory.world.clock.pass_by(days=2)
    await asking.asker.look()

    assert len(asking.shown) == 1


async def test_never_more_than_one_card_is_open_and_none_follows_at_once(asking: Asking) -> None:
    await asking.propose(*(f"fact number {n} of the Boss" for n in range(MOST + 3)))
    await asking.asker.look()
    [first] = await asking.open()
    asking.memory.world.clock.pass_by(days=2)
    await asking.asker.look()
    assert len(await asking.open()) == 1

    await asking.approvals.decide(first, approve=True, by=BOSS, source="press")
    asking.memory.world.clock.pass_by(hours=1)
    await asking.asker.look()

    [second] = await asking.open()
    assert len(second.payload["entries"]) == 3


@pytest.mark.parametrize(("yes", "state"), [(True, "active"), (False, "rejected")])
async def test_one_press_decides_all_that_is_still_open(
    asking: Asking, yes: bool, state: str
) -> None:
    made = await asking.propose("drinks tea", "lives in Ulm", "plays chess")
    await asking.asker.look()
    [asked] = await asking.open()
    other = await asking.memory.entries.get(made[2].id, None)
    await asking.memory.writer.reject(other, BY_BOSS)

    await asking.approvals.decide(asked, approve=yes, by=BOSS, source="press")

    now = [await asking.memory.entries.get(each.id, None) for each in made]
    assert [each.state.value for each in now] == [state, state, "rejected"]
    figures = await asking.memory.quality.of(today=asking.memory.world.clock().date())
    assert figures.confirmed + figures.rejected == 3
    assert asking.memory.deciding.decided == {MINE}


async def test_where_all_were_decided_one_by_one_the_card_goes(asking: Asking) -> None:
    made = await asking.propose("drinks tea", "lives in Ulm", "plays chess")
    await asking.asker.look()
    for each in made:
        held = await asking.memory.entries.get(each.id, None)
        await asking.memory.writer.confirm(held, BY_BOSS)

    await asking.asker.look()

    assert await asking.open() == ()
    assert [each.id for each in asking.settled] == [each.id for each in asking.shown]


async def test_what_nobody_decided_stays_proposed_and_is_not_asked_again(asking: Asking) -> None:
    made = await asking.propose("drinks tea", "lives in Ulm", "plays chess")
    await asking.asker.look()
    asking.memory.world.clock.pass_by(days=8)
    [expired] = await asking.approvals.expire()
    await asking.asker.look()

    assert expired.state is ApprovalState.EXPIRED
    assert len(asking.shown) == 1
    left = await asking.memory.all(states=(EntryState.CANDIDATE,))
    assert [each.id for each in left] == [each.id for each in made]


async def test_everybody_is_asked_about_their_own_only(asking: Asking) -> None:
    project = Scope(ScopeKind.PROJECT, "/srv/shop")
    await asking.propose("the Boss one", "the Boss two", "the Boss three")
    await asking.propose("a mate one", "a mate two", "a mate three", scope=MATES)
    await asking.propose("the team one", "the team two", "the team three", scope=TEAM)
    await asking.propose("the shop one", "the shop two", "the shop three", scope=project)
    await asking.propose("for all one", "for all two", "for all three", scope=GLOBAL)

    await asking.asker.look()

    asked = {each.subject: each for each in asking.shown}
    whom = {subject: (each.chat_id, each.approvers) for subject, each in asked.items()}
    assert whom == {
        f"memory:{MINE}": (CHAT.id, (BOSS.id,)),
        f"memory:{MATES}": (MATES_CHAT.id, (MATE.id,)),
        f"memory:{TEAM}": (GROUP.id, (MATE.id,)),
        f"memory:{project}": (CHAT.id, ()),
        f"memory:{GLOBAL}": (CHAT.id, ()),
    }
    assert not any("mate" in each.detail for each in asking.shown if each.chat_id == CHAT.id)


async def test_what_is_shown_cannot_dress_up_as_something_else(asking: Asking) -> None:
    await asking.propose("**bold** [press](http://x)", "lives in\n# Ulm", "plays chess")

    await asking.asker.look()

    [asked] = asking.shown
    assert "[press](http://x)" not in asked.detail
    assert "\n# Ulm" not in asked.detail


async def test_all_that_is_asked_about_can_be_read(asking: Asking) -> None:
    path = "/srv/" + "deep/" * 60
    far = Scope(ScopeKind.PROJECT, path)
    texts = [f"{n} " + "[wide](x) " * 20 for n in range(4)]
    await asking.propose(*texts, scope=far)

    await asking.asker.look()

    [asked] = asking.shown
    assert len(asked.detail) <= 1000
    assert 0 < len(asked.payload["entries"]) < len(texts)
    assert len(asked.subject) <= 100


@pytest.mark.parametrize("nth", range(1, 6))
async def test_a_death_at_any_commit_asks_once(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with remembering(tmp_path) as memory:
        await asking_of(memory).propose("drinks tea", "lives in Ulm", "plays chess")

    async def live() -> None:
        async with remembering(tmp_path) as memory:
            await asking_of(memory).asker.look()

    death = Death(nth)
    with monkeypatch.context() as dying:
        death.on(dying)
        await death.or_end_of(live())
    async with remembering(tmp_path) as memory:
        again = asking_of(memory)
        memory.world.clock.pass_by(minutes=1)
        await again.asker.look()
        await again.asker.look()

        assert len(await again.open()) == 1
        assert len({each.id for each in again.shown}) == 1
        assert memory.world.clock() - again.shown[0].created_at < timedelta(days=1)


async def test_what_came_with_a_backup_of_another_home_stops_nothing(asking: Asking) -> None:
    elsewhere = Scope(ScopeKind.CHAT, "c-of-another-home")
    await asking.propose("drinks tea", "lives in Ulm", "plays chess", scope=elsewhere)
    await asking.propose("drinks milk", "lives in Bonn", "plays go", scope=TEAM)

    await asking.asker.look()

    [asked] = asking.shown
    assert asked.chat_id == GROUP.id
