"""Linking and unlinking on the real repositories: nobody ever sees what is private to somebody
else, and each gets back what they brought."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bot.app.repositories import RepositorySet, build_repositories
from bot.engine.memory.access import MemoryReader
from bot.transports.ports import SystemClock
from storage import (  # noqa: F401 - add their tables
    autonomy_schema,
    bitable_schema,
    process_schema,
    web_schema,
)
from storage.account_links import OWNED
from storage.errors import NotFound, WrongState
from storage.records.memory import MemoryKind, NewMemoryEntry
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import (
    AccountLinkState,
    Channel,
    Chat,
    ChatKind,
    Person,
    PersonId,
    PersonRole,
)
from storage.records.schedules import (
    Interval,
    MessageBody,
    NewSchedule,
    ScheduleKind,
    ScheduleState,
)
from storage.records.tasks import NewTask, TaskId, TaskPriority
from storage.records.triggers import NewTrigger, TriggerKind
from storage.records.usage import UsageRecord
from storage.schedules import ScheduleRepo
from storage.schema import metadata, schedules
from storage.tasks import TaskVisibility
from storage.triggers import TriggerRepo
from storage.usage import UsageFilter
from tests.migrated_database import open_database

NAMED_ONLY = {
    "account_links": {"maker", "taker", "kept", "joined"},
    "pairings": {"decided_by"},
    "actions": {"used_by"},
    "task_logs": {"person_id"},
    "commands": {"person_id"},
    "approvals": {"decided_by"},
    # What was on its way at a link names the former person, who is found as the one they are now.
    "pending_model_calls": {"person_id"},
    "tool_calls": {"person_id"},
    "helpers": {"person_id"},
    "tool_grants": {"granted_by"},
    "skills": {"decided_by"},
    "bitable_bases": {"owner"},
}
"""Columns that say who did something, and stay as they are."""


@dataclass
class LinkWorld:
    """Accounts, each with a private chat, and a model of whose each private mark is.

    A mark is a word in a fact, a task, a bill, a schedule and a token. It is of the person who made
    it, by the id they had then; `root` says who that is now."""

    store: RepositorySet
    people: list[PersonId] = field(default_factory=list)
    chats: list[Chat] = field(default_factory=list)
    root: dict[PersonId, PersonId] = field(default_factory=dict)
    marks: list[tuple[str, PersonId, int]] = field(default_factory=list)
    probes: int = 0

    async def add_account(self, name: str, role: PersonRole = PersonRole.MEMBER) -> None:
        store, at = self.store, (Channel.TELEGRAM, Channel.FEISHU)[len(self.people) % 2]
        now = store.clock.now()
        async with store.db.write() as tx:
            person = await store.people.get_or_create(tx, at, name, name="Ann", role=role, now=now)
            place = ChatAddress(channel=at, chat=name, kind=ChatKind.PRIVATE)
            chat = await store.chats.get_or_create(tx, place, MessageSender(external_id=name), now)
        self.people.append(person.id)
        self.chats.append(chat)
        self.root[person.id] = person.id
        await self.mark(len(self.people) - 1)

    async def person(self, at: int) -> Person:
        chat = self.chats[at]
        person = await self.store.people.find_by_account(chat.channel, chat.external_id)
        assert person is not None
        return person

    async def mark(self, at: int, *, by: Person | None = None) -> None:
        """Leave a private mark from this account, or what somebody began `by` whom it was."""
        store, who, chat = self.store, by or await self.person(at), self.chats[at]
        word, now = f"mark{len(self.marks)}x", self.store.clock.now()
        reader = MemoryReader(chat=await store.chats.get(chat.id), person=who.id)
        assert reader.write_scope is not None
        fact = NewMemoryEntry(
            kind=MemoryKind.FACT, scope=reader.write_scope, text=word, person=who.id
        )
        task = NewTask(
            title=word,
            instruction=word,
            priority=TaskPriority.NORMAL,
            chat_id=chat.id,
            created_by=who.id,
            source=word,
        )
        schedule = NewSchedule(
            kind=ScheduleKind.REMINDER,
            title=word,
            timing=Interval(every=timedelta(days=1), start=now),
            zone="UTC",
            body=MessageBody(text=word),
            owner_id=who.id,
            chat_id=chat.id,
            source=word,
        )
        bill = UsageRecord(
            at=now,
            purpose=word,
            backend="b",
            model="m",
            person_id=who.id,
            chat_id=chat.id,
            task_id=None,
            requests=1,
            input_tokens=1,
            output_tokens=1,
            cache_read_tokens=0,
            cache_write_tokens=0,
            cost_micros=1,
        )
        async with store.db.write() as tx:
            assert await store.memory.entries.add(tx, fact, now=now) is not None
            await store.work.tasks.create(tx, task, id=TaskId(word), now=now)
            await ScheduleRepo(store.db).create(tx, schedule, new_id=lambda: word, now=now)
            await store.usage.add(tx, bill)
            trigger = NewTrigger(
                kind=TriggerKind.WEBHOOK, workflow=word, chat_id=chat.id, owner_id=who.id
            )
            await TriggerRepo(store.db).add(tx, trigger, id_=word, now=now)
            await tx.execute(sa.update(schedules).values(state=ScheduleState.ACTIVE.value))
        self.marks.append((word, who.id, at))

    async def link(self, maker: int, taker: int) -> None:
        store = self.store
        one, other = await self.person(maker), await self.person(taker)
        code, _ = await store.account_links.create_code(one, self.chats[maker].id)
        request = await store.account_links.use_code(code, other, self.chats[taker].id)
        by = next(each for each in (one, other) if request.can_be_decided_by(each))
        await store.approvals.decide(request, approve=True, by=by, source=request.id)
        kept, joined = (other, one) if request.payload["kept"]["role"] != one.role else (one, other)
        self.root = {each: kept.id if now == joined.id else now for each, now in self.root.items()}

    async def unlink(self, at: int) -> None:
        await self.store.account_links.unlink(self.people[at])
        self.root[self.people[at]] = self.people[at]

    async def check(self) -> None:
        """Each account sees the marks of its person, and of its chat where chats count, and no
        others."""
        for at, own in enumerate(self.people):
            mine = {word for word, who, _ in self.marks if self.root[who] == self.root[own]}
            here = {word for word, _, chat in self.marks if chat == at}
            person = await self.person(at)
            assert person.id == self.root[own]
            seen = await self._see(at, person)
            assert seen == {
                "facts": mine,
                "found": mine,
                "tasks": mine | here,
                "bills": mine | here,
                "schedules": mine,
                "triggers": mine,
                "people": {self.root[own]},
            }
            self.probes += (len(seen) - 1) * (len(self.marks) - len(mine | here))

    async def _see(self, at: int, person: Person) -> dict[str, set[str]]:
        store = self.store
        chat = await store.chats.get(self.chats[at].id)
        scopes = MemoryReader(chat=chat, person=person.id).scopes
        words = {word: 1.0 for word, _, _ in self.marks}
        facts = await store.memory.entries.list(scopes, limit=1000)
        hits = await store.memory.index.search(scopes, words, 1000)
        numbers = {each.number: each.text for each in facts}
        mine = TaskVisibility(sees_all=False, person=person.id, chat=chat.id)
        bills = await store.usage.by_purpose(UsageFilter(person=person.id, chat=chat.id))
        page = await store.work.tasks.list_page(mine, None, 1, 1000)
        planned = await ScheduleRepo(store.db).list(of=person.id, chat=None, limit=1000)
        started = await TriggerRepo(store.db).list_all()
        return {
            "facts": {each.text for each in facts},
            "found": {numbers[hit.number] for hit in hits},
            "tasks": {each.title for each in page.tasks},
            "bills": {each.name for each in bills},
            "schedules": {each.title for each in planned},
            "triggers": {each.id for each in started if each.owner_id == person.id},
            "people": {str(chat.person_id)},
        }


@asynccontextmanager
async def link_world(folder: Path, accounts: int) -> AsyncIterator[LinkWorld]:
    async with open_database(folder) as db:
        world = LinkWorld(build_repositories(db, SystemClock()))
        for n in range(accounts):
            await world.add_account(f"account{n}")
        yield world


def test_every_column_that_names_a_person_is_sorted_out() -> None:
    found = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        for key in column.foreign_keys
        if key.column.table.name == "people"
    }
    moved = {(table.name, column) for table, column in OWNED} | {("memories", "person_id")}
    named = {(table, column) for table, columns in NAMED_ONLY.items() for column in columns}
    assert found == moved | named


async def test_what_began_before_a_link_reaches_who_they_are_now(tmp_path: Path) -> None:
    async with link_world(tmp_path, 2) as world:
        former = await world.person(1)
        await world.link(0, 1)
        await world.mark(1, by=former)

        await world.store.account_links.move_late_records()

        await world.check()
        assert (await world.store.people.get(former.id)).id == world.people[0]
        assert await world.store.people.has_access(former.id)


async def test_what_is_stored_after_a_link_is_of_who_they_are_now_at_once(tmp_path: Path) -> None:
    async with link_world(tmp_path, 2) as world:
        former = await world.person(1)
        await world.link(0, 1)

        await world.mark(1, by=former)

        for table, column in OWNED:
            owners = await world.store.db.fetch_all(sa.select(table.c[column]))
            assert former.id not in {each[0] for each in owners}, table.name


async def test_nobody_sees_what_is_private_to_others_after_linking(tmp_path: Path) -> None:
    async with link_world(tmp_path, 7) as world:
        await world.check()
        for maker, taker in ((0, 1), (2, 3), (4, 2)):
            await world.link(maker, taker)
            await world.mark(taker)
            await world.check()
        await world.link(0, 5)
        await world.unlink(3)
        await world.mark(3)
        await world.check()
        await world.unlink(2)
        await world.unlink(1)
        await world.check()

        assert world.probes >= 300


_STEPS = st.lists(
    st.tuples(st.sampled_from(["link", "unlink", "mark"]), st.integers(0, 3), st.integers(0, 3)),
    min_size=3,
    max_size=7,
)


# Without shrinking, which takes minutes here.
@settings(max_examples=3, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(steps=_STEPS)
def test_any_sequence_of_links_keeps_private_what_is(
    steps: Sequence[tuple[str, int, int]],
) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with link_world(Path(folder), 3) as world:
                await world.add_account("owner", PersonRole.OWNER)
                roles = [(await world.person(at)).role for at in range(4)]
                for step, one, other in steps:
                    await _take(world, step, one, other)
                await world.check()
                for at in range(4):
                    await _take(world, "unlink", at, at)
                await world.check()
                assert [(await world.person(at)).role for at in range(4)] == roles

    asyncio.run(run())


async def _take(world: LinkWorld, step: str, one: int, other: int) -> None:
    if step == "mark":
        await world.mark(one)
    elif step == "link":
        if world.root[world.people[one]] == world.root[world.people[other]]:
            with pytest.raises(WrongState):
                await world.link(one, other)
        else:
            await world.link(one, other)
    elif world.root[world.people[one]] == world.people[one]:
        with pytest.raises(NotFound):
            await world.unlink(one)
    else:
        await world.unlink(one)


def test_a_kill_around_a_link_leaves_it_whole_or_undone(tmp_path: Path) -> None:
    async def prepare() -> LinkWorld:
        async with link_world(tmp_path, 2) as world:
            return world

    async def check(world: LinkWorld) -> bool:
        async with open_database(tmp_path) as db:
            world.store = build_repositories(db, SystemClock())
            world.root[world.people[1]] = (await world.person(1)).id
            await world.check()
            untold = await world.store.account_links.list_untold()
            links = [each.state for each in untold]
            linked = world.root[world.people[1]] == world.people[0]
            assert (links[-1:] == [AccountLinkState.LINKED]) == linked, "both must still be told"
            return linked

    world = asyncio.run(prepare())
    for n in range(4):
        child = get_context("fork").Process(target=_link_for_ever, args=(tmp_path, world))
        child.start()
        time.sleep(0.3 + 0.17 * n)
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        asyncio.run(check(world))


def _link_for_ever(folder: Path, world: LinkWorld) -> None:
    async def run() -> None:
        async with open_database(folder) as db:
            world.store = build_repositories(db, SystemClock())
            if (await world.person(1)).id != world.people[1]:
                await world.unlink(1)
            while True:
                await world.link(0, 1)
                await world.unlink(1)

    asyncio.run(run())
