"""Random edits on both sides of the synchronisation, with deaths between any two writes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from bot.sync.ports import CellValue, RecordId
from bot.sync.session import NOTE
from handlers.ports_workers import EditableTaskField
from storage.bitable import BitableRepo
from storage.db import Database, Transaction
from storage.errors import StorageError
from storage.records.bitable import SyncedKind, SyncedRowState, TableRole, TaskField
from storage.records.messages import InboxId, IncomingMessage
from storage.records.task_logs import LogKind, NewLog
from storage.records.tasks import Task, TaskPriority
from storage.schema import inbox
from tests.bot.sync.world import MEMBER, OWNER, STRANGER, SyncWorld

_PEOPLE = (OWNER, MEMBER, MEMBER, STRANGER)
_STATUS = ("⏸️ Paused", "进行中", "todo", "已取消", "done", "nonsense", "🔴 Blocked")
_PRIORITY = ("🔴 Urgent", "重要", "low", "whatever")


_SECOND = timedelta(seconds=1)


class Killed(BaseException):
    """The process is gone."""


@dataclass
class DeathSwitch:
    """Dies at the `left`th write from now on, never if that is 0."""

    left: int = 0

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed


class MortalDatabase:
    def __init__(self, db: Database, switch: DeathSwitch) -> None:
        self._db = db
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        self._switch()
        async with self._db.write() as tx:
            yield tx
        self._switch()


@dataclass
class MortalIntake:
    intake: Any
    switch: DeathSwitch

    async def accept(self, incoming: IncomingMessage, *, dedupe: str) -> InboxId | None:
        self.switch()
        accepted: InboxId | None = await self.intake.accept(incoming, dedupe=dedupe)
        self.switch()
        return accepted


@dataclass
class Soak:
    """`told` is the share of changes in the table that are announced. `written` are the markers of
    rows that people with access have written and not deleted, with their records."""

    world: SyncWorld
    random: random.Random
    deaths: bool = True
    told: float = 0.8
    switch: DeathSwitch = field(default_factory=DeathSwitch)
    written: dict[str, RecordId] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    killed: int = 0
    edits: int = 0

    def __post_init__(self) -> None:
        self.world.tables.on_call = self.switch
        self._make_mortal()

    def _make_mortal(self) -> None:
        sync, deps = self.world.sync, self.world.sync.deps
        db: Any = MortalDatabase(self.world.core.repositories.db, self.switch)
        repo = BitableRepo(db)
        intake: Any = MortalIntake(deps.orders.intake, self.switch)
        sync.deps = replace(
            deps,
            db=db,
            repo=repo,
            local=replace(deps.local, repo=repo),
            orders=replace(deps.orders, intake=intake),
        )

    async def run(self, edits: int) -> None:
        await self.world.settle()
        for _ in range(edits):
            self.edits += 1
            await self._edit(f"m{self.edits:05d}")
            if self.deaths and self.random.random() < 0.15:
                self.switch.left = self.random.randint(1, 8)
            if self.random.random() < 0.4:
                await self.cycle()
        self.switch.left = 0
        await self.rest()

    async def edit(self, count: int, *, first: int) -> None:
        for number in range(first, first + count):
            await self._edit(f"n{number:05d}")

    async def cycle(self) -> None:
        world = self.world
        world.clock.moved += self.random.choice((0.5, 3, 13)) * _SECOND
        if self.random.random() < 0.2:
            world.sync._polled_at = None
        try:
            await world.sync.cycle()
        except Killed:
            self.killed += 1
            self.switch.left = 0
            world.restart()
            await world.sync.start(None)  # type: ignore[arg-type]
            self._make_mortal()
        if self.random.random() < 0.7:
            await world.handle_messages()

    async def rest(self) -> None:
        """Until nobody writes any more, and every change has been looked for, as each day."""
        await self.world.sync.deps.repo.require_scan()
        for _ in range(40):
            before = sum(self.world.tables.calls.values())
            self.world.sync._polled_at = None
            await self.world.settle()
            writes = self._writes()
            await self.world.settle(1)
            if self._writes() == writes and sum(self.world.tables.calls.values()) > before:
                break
        else:
            raise AssertionError("the two sides never come to rest")

    def _writes(self) -> int:
        names = ("create_records", "update_records", "delete_records")
        return sum(self.world.tables.calls[name] for name in names)

    # Edits.

    async def _edit(self, marker: str) -> None:
        doing = self.random.choice(
            (self._new_task, self._new_row, self._here, self._here, self._there, self._there)
        )
        await doing(marker)

    async def _new_task(self, marker: str) -> None:
        self.made.append(marker)
        await self.world.task(f"{marker} made here")

    async def _new_row(self, marker: str) -> None:
        person = self.random.choice(_PEOPLE)
        cells: dict[str, CellValue] = {
            TaskField.TITLE: f"{marker} row",
            TaskField.INSTRUCTION: f"{marker} do",
        }
        record = self.world.tables.add(person, cells)
        if self.random.random() < 0.5:
            event = self.world.tables.edit(
                person, record, {TaskField.PRIORITY: self.random.choice(_PRIORITY)}
            )
            self._tell(event)
        if person != STRANGER:
            self.written[marker] = record

    async def _here(self, marker: str) -> None:
        tasks = await self.world.new_tasks()
        if not tasks:
            return
        task, services = self.random.choice(tasks), self.world.core.services
        by, source = self.world.owner, f"here:{marker}"
        doing = self.random.randint(0, 6)
        try:
            if doing == 0:
                await services.tasks.pause(task, by=by, source=source)
            elif doing == 1:
                await services.tasks.resume(task, by=by, source=source)
            elif doing == 2:
                await services.tasks.stop(task, by=by, source=source)
            elif doing == 3:
                await services.tasks.retry(task, by=by, source=source)
            elif doing == 4:
                await services.journal.update_field(
                    task, EditableTaskField.TITLE, f"{marker} renamed", by=by, source=source
                )
            elif doing == 5:
                new = NewLog(task_id=task.id, source=source, kind=LogKind.FINDING, text=marker)
                async with self.world.core.repositories.db.write() as tx:
                    await self.world.core.repositories.work.logs.add(
                        tx, new, now=self.world.clock.now()
                    )
            else:
                priority = self.random.choice(list(TaskPriority))
                await services.tasks.set_priority(task, priority, by=by, source=source)
        except StorageError:
            # Its state forbids it.
            return

    async def _there(self, marker: str) -> None:
        rows = self.world.tables.rows()
        if not rows:
            return
        record, person = self.random.choice(rows), self.random.choice(_PEOPLE)
        key, value = self.random.choice(
            (
                (TaskField.TITLE, f"{marker} theirs"),
                (TaskField.STATUS, self.random.choice(_STATUS)),
                (TaskField.STATUS, self.random.choice(_STATUS)),
                (TaskField.PRIORITY, self.random.choice(_PRIORITY)),
                (TaskField.INSTRUCTION, f"{marker} instead"),
                (TaskField.COST, 3.5),
                (TaskField.RESULT, marker),
            )
        )
        if self.random.random() < 0.06:
            self.written = {k: v for k, v in self.written.items() if v != record.id}
            self._tell(self.world.tables.delete(person, record.id))
            return
        for known, written in list(self.written.items()):
            if written == record.id and key in {TaskField.TITLE, TaskField.INSTRUCTION}:
                # Its words are others now, or a stranger's.
                del self.written[known]
        if person == STRANGER:
            self.written = {k: v for k, v in self.written.items() if v != record.id}
        self._tell(self.world.tables.edit(person, record.id, {key: value}))

    def _tell(self, event: Any) -> None:
        if self.random.random() < self.told:
            self.world.sync.on_table_change(event)

    # Equal?

    async def differences(self) -> Sequence[str]:
        """In words: none, if both sides say the same, and nothing is lost or doubled."""
        found: list[str] = []
        tasks = {each.id: each for each in await self._all_tasks()}
        shown: dict[str, list[Mapping[str, object]]] = {}
        session = self.world.sync._session
        assert session is not None
        codec = session.codecs[TableRole.TASKS]
        for record in self.world.tables.rows():
            cells = codec.decode(record)
            if cells.get(TaskField.ID):
                shown.setdefault(str(cells[TaskField.ID]), []).append(cells)
        states = {row.local_id: row for row in await self.world.sync.deps.repo.list_rows()}
        for task_id in tasks:
            rows = shown.pop(task_id, [])
            state = states[task_id].state if task_id in states else None
            if not rows and state is SyncedRowState.GONE:
                continue
            local = await self.world.sync.deps.local.read_task(task_id)
            assert local is not None
            wanted = codec.normalize(local.cells)
            if len(rows) != 1:
                found.append(f"{task_id} is {len(rows)} times in the table ({state})")
            found += (
                f"{task_id} {key}: {wanted[key]!r} here, {row.get(key)!r} there"
                for row in rows
                for key in wanted
                if key != NOTE and row.get(key) != wanted[key]
            )
        found += (f"{each} is nothing in the store" for each in shown if "/" not in each)
        found += await self._lost(tasks.values())
        found += await self._log_differences()
        return found

    async def _all_tasks(self) -> Sequence[Task]:
        return list(await self.world.core.repositories.work.tasks.list_recent(100_000))

    async def _lost(self, tasks: Any) -> Sequence[str]:
        found = []
        words = [task.instruction for task in tasks]
        for marker, record in self.written.items():
            count = sum(each.startswith(f"{marker} do") for each in words)
            if count != 1:
                why = await self._messages_of(record)
                found.append(f"the row {marker} became {count} tasks: {why}")
        return found

    async def _messages_of(self, record: RecordId) -> str:
        """What became of the messages that a row was sent as."""
        rows = await self.world.sync.deps.repo.list_rows(record_ids=[record])
        sent = select(inbox.c.state, inbox.c.outcome, inbox.c.error).where(
            inbox.c.dedupe.startswith(f"bitable:{record}:")
        )
        messages = await self.world.core.repositories.db.fetch_all(sent)
        return f"{[each.state for each in rows]}, {[tuple(each) for each in messages]}"

    async def _log_differences(self) -> Sequence[str]:
        of_log = self.world.tables.field_id(TableRole.LOGS, "id")
        logs = [row.cells.get(of_log) for row in self.world.tables.rows(TableRole.LOGS)]
        known = await self.world.sync.deps.repo.list_rows(kinds=[SyncedKind.LOG])
        twice = {each for each in logs if logs.count(each) > 1}
        lost = {row.local_id for row in known} - set(logs)
        return [f"the log {each} is there twice" for each in twice] + [
            f"the log {each} is lost" for each in lost
        ]
