"""Whatever people order, however steps end, and whenever the process dies: the laws of the core
hold on the real store, and everything can still be brought to an end."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bot.engine.agent.desk import Account, Ask, Reply
from bot.engine.dispatch.recovery import break_off, put_back, recover
from bot.engine.llm.answers import PlanAnswer
from bot.engine.llm.base import Purpose
from bot.engine.workflow.boundary import Attempt, Boundary, Next
from bot.engine.workflow.graph import Node, Workflow, linear
from bot.engine.workflow.store import LEASE, PATIENCE
from storage.errors import LostLease, WrongState
from storage.records.people import Language
from storage.records.tasks import (
    Lease,
    NodeRun,
    NodeStatus,
    Priority,
    Task,
    TaskId,
    TaskStatus,
)
from tests.engine_world import BOSS, CHAT, Clock, engine

_SLOTS = 2
_T = TypeVar("_T")
_INSTANCE = st.integers(min_value=0, max_value=20)


@dataclass
class Worker:
    """One run of a task under way: what it holds in memory and a crash takes away."""

    lease: Lease
    task: Task
    session: str = ""
    planning: NodeRun | None = None
    step: Next | None = None


class History(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="history-"))
        shutil.copyfile(self.template, self.home / "shiftboss.db")
        self.loop = asyncio.Runner()
        self.clock = Clock()
        self.tasks: list[Task] = []
        self.workers: dict[TaskId, Worker] = {}
        self.zombies: list[Worker] = []
        self.orders = 0
        self.epochs: dict[str, int] = {}
        self.finished: dict[tuple[str, str], list[Any]] = {}
        self.born()

    # --- lives

    def born(self) -> None:
        self.stack = AsyncExitStack()
        self.world = self.run(
            self.stack.enter_async_context(engine(self.home, clock=self.clock, running=False))
        )
        self.run(recover(self.world.store, _english, self.clock()))

    @rule(hours=st.sampled_from([0, 0, 13, -2]))
    def dies_and_starts_again(self, hours: int) -> None:
        self.zombies += self.workers.values()
        self.workers.clear()
        self.run(self.stack.aclose())
        self.clock.pass_by(hours=hours)
        self.born()

    def teardown(self) -> None:
        try:
            self.everything_can_be_ended()
        finally:
            self.run(self.stack.aclose())
            self.loop.close()
            shutil.rmtree(self.home)

    # --- people

    @precondition(lambda self: len(self.tasks) < 6)
    @rule(priority=st.sampled_from(list(Priority)), project=st.sampled_from(["", "", "/p"]))
    def somebody_asks(self, priority: Priority, project: str) -> None:
        source = self.source()
        ask = partial(self.world.add, source=source, priority=priority, project_dir=project)
        task = self.run(ask())
        self.tasks.append(task)

        assert self.run(ask()).id == task.id, "one message, one task"

    @precondition(lambda self: self.tasks)
    @rule(
        which=_INSTANCE,
        order=st.sampled_from(["pause", "resume", "stop", "retry"]),
        twice=st.booleans(),
    )
    def somebody_orders(self, which: int, order: str, twice: bool) -> None:
        task, source = self.pick(which), self.source()
        give = getattr(self.world.foreman, order)
        with suppress(WrongState):
            given = self.run(give(task, by=BOSS, source=source))
            if twice:
                before = self.rows("SELECT count(*) FROM events")
                assert self.run(give(task, by=BOSS, source=source)) == given
                assert self.rows("SELECT count(*) FROM events") == before

    @precondition(lambda self: self.tasks)
    @rule(which=_INSTANCE, priority=st.sampled_from(list(Priority)))
    def somebody_reorders(self, which: int, priority: Priority) -> None:
        with suppress(WrongState):
            self.run(
                self.world.foreman.set_priority(
                    self.pick(which), priority, by=BOSS, source=self.source()
                )
            )

    # --- work

    @precondition(lambda self: len(self.workers) < _SLOTS)
    @rule()
    def a_slot_is_filled(self) -> None:
        self.claim()

    @precondition(lambda self: self.workers)
    @rule(which=_INSTANCE, steps=st.integers(0, 3), repeatable=st.booleans(), fails=st.booleans())
    def planning_goes_on(self, which: int, steps: int, repeatable: bool, fails: bool) -> None:
        worker = self.worker(which)
        if worker.step is None:
            self.alive(worker, lambda: self.plan(worker, steps, repeatable, fails=fails))

    @precondition(lambda self: any(each.step for each in self.workers.values()))
    @rule(which=_INSTANCE, ends=st.sampled_from(["done", "done", "again", "blocked", "failed"]))
    def a_step_ends(self, which: int, ends: str) -> None:
        worker = self.worker(which)
        if worker.step is not None:
            self.alive(worker, lambda: self.settle(worker, ends))

    @precondition(lambda self: any(each.step for each in self.workers.values()))
    @rule(which=_INSTANCE)
    def a_new_end_of_the_plan_is_made(self, which: int) -> None:
        worker = self.worker(which)
        if worker.step is not None:
            self.alive(worker, lambda: self.replan(worker))

    @precondition(lambda self: self.workers)
    @rule(which=_INSTANCE, how=st.sampled_from(["put back", "broken off"]))
    def a_run_is_given_up(self, which: int, how: str) -> None:
        worker = self.worker(which)
        held = replace(worker.task, epoch=worker.lease.epoch)
        with suppress(LostLease):
            if how == "put back":
                self.run(put_back(self.world.store, held, Language.ENGLISH, self.clock()))
            else:
                self.run(break_off(self.world.store, held, "a bug", self.clock()))
        del self.workers[worker.lease.task_id]

    @precondition(lambda self: self.zombies)
    @rule(which=_INSTANCE)
    def a_dead_workers_result_comes_late(self, which: int) -> None:
        worker = self.zombies[which % len(self.zombies)]
        before = self.dump()
        late = self.settle(worker, "done") if worker.step else self.begin(worker)
        with pytest.raises(LostLease):
            self.run(late)
        assert self.dump() == before

    # --- laws

    @invariant()
    def tasks_are_in_order(self) -> None:
        columns = "id, status, phase, epoch, owner, lease_until, ended_at, control"
        for row in self.rows(f"SELECT {columns} FROM tasks"):
            task_id, status, phase, epoch, owner, lease_until, ended_at, control = row
            final = TaskStatus(status).is_final
            assert (ended_at is not None) == final, row
            assert (phase == "ended") == final, row
            assert (bool(owner), lease_until is not None) == ((status == "running"),) * 2, row
            assert control == "run" or status == "running", row
            assert epoch >= self.epochs.get(task_id, 0), row
            self.epochs[task_id] = epoch
            alive = self.workers.get(task_id)
            held = alive is not None and alive.lease.epoch == epoch
            assert (status == "running") == held, f"nobody runs it, or a stranger does: {row}"

    @invariant()
    def one_step_at_a_time_and_none_twice(self) -> None:
        running = self.rows("SELECT task_id, path, attempt FROM node_runs WHERE status='running'")
        attempts = self.rows(
            "SELECT task_id, path, attempt FROM node_attempts WHERE ended_at IS NULL"
        )
        assert sorted(running) == sorted(attempts)
        of_tasks = [task_id for task_id, _, _ in running]
        assert len(of_tasks) == len(set(of_tasks))
        for task_id in of_tasks:
            assert self.status(task_id) == "running"
        done = {
            (task_id, path): rest
            for task_id, path, *rest in self.rows(
                "SELECT task_id, path, attempt, output, started_at, ended_at FROM node_runs"
                " WHERE status='done' AND path <> '@plan'"
            )
        }
        for key, before in self.finished.items():
            assert done.get(key) == before, f"{key} was finished and is touched again"
        self.finished = done

    @invariant()
    def a_project_has_one_task_at_a_time(self) -> None:
        (n,) = self.rows("SELECT count(*) FROM tasks WHERE status='running' AND project_dir='/p'")[
            0
        ]
        assert n <= 1

    @invariant()
    def every_end_is_in_its_history(self) -> None:
        for task_id, status in self.rows("SELECT id, status FROM tasks WHERE ended_at NOTNULL"):
            last = self.rows(
                "SELECT kind FROM events WHERE task_id=? AND kind IN"
                " ('completed','failed','cancelled','resumed') ORDER BY id DESC LIMIT 1",
                task_id,
            )
            assert last == [(status,)]

    def everything_can_be_ended(self) -> None:
        """What waits for a person goes on when told so; what waits for a slot goes on by itself."""
        for _round in range(3):
            for task in self.tasks:
                if self.status(task.id) in {"paused", "blocked"}:
                    self.run(self.world.foreman.resume(task, by=BOSS, source=self.source()))
            while self.workers or self.claim():
                for worker in list(self.workers.values()):
                    if worker.step is None:
                        self.alive(worker, partial(self.plan, worker, 1, True, fails=False))
                    else:
                        self.alive(worker, partial(self.settle, worker, "done"))
        left = self.rows("SELECT id, status FROM tasks WHERE ended_at IS NULL")
        assert left == []

    # --- tools

    @property
    def boundary(self) -> Boundary:
        return Boundary(self.world.store, self.world.desk, self.clock, lambda: None)

    def claim(self) -> bool:
        async def take() -> Task | None:
            async with self.world.db.write() as tx:
                return await self.world.store.queue.claim(
                    tx, owner="test", now=self.clock(), lease=LEASE, patience=PATIENCE
                )

        task = self.run(take())
        if task is not None:
            lease = Lease(task_id=task.id, epoch=task.epoch)
            assert task.id not in self.workers or self.workers[task.id].lease != lease
            if old := self.workers.get(task.id):
                self.zombies.append(old)
            self.workers[task.id] = Worker(lease=lease, task=task)
        return task is not None

    async def plan(self, worker: Worker, steps: int, repeatable: bool, *, fails: bool) -> None:
        desk = self.world.desk
        chosen = desk.choose("", "")
        session = await desk.session(f"task:{worker.task.id}", chosen)
        worker.session = session.id
        if worker.task.graph_version:
            worker.step = await self.boundary.go_on(worker.lease, session.id)
            self.rest(worker)
            return
        if worker.planning is None:
            worker.planning = await self.boundary.begin_planning(worker.lease, session.id)
        if fails:
            await self.boundary.give_up_planning(
                worker.lease,
                worker.planning,
                error="no",
                status=TaskStatus.BLOCKED,
                reason="no",
            )
        else:
            plan = _plan(steps, repeatable)
            worker.step = await self.boundary.adopt_plan(
                worker.lease, worker.planning, await self.reply(worker), plan, session.id
            )
        self.rest(worker)

    async def begin(self, worker: Worker) -> None:
        worker.step = await self.boundary.go_on(worker.lease, "late")

    async def settle(self, worker: Worker, ends: str) -> None:
        assert worker.step is not None
        status = NodeStatus.DONE if ends == "done" else NodeStatus.FAILED
        run = replace(
            worker.step.run,
            status=status,
            error="" if ends == "done" else "it failed",
            ended_at=self.clock(),
            output={"summary": ends},
        )
        stop = {
            "blocked": (TaskStatus.BLOCKED, "it needs you"),
            "failed": (TaskStatus.FAILED, "it failed"),
        }.get(ends)
        attempt = Attempt(run=run, reply=None, again=ends == "again", stop=stop)
        worker.step = await self.boundary.settle(worker.lease, attempt, worker.session)
        self.rest(worker)

    async def replan(self, worker: Worker) -> None:
        assert worker.step is not None
        shelved = replace(worker.step.run, status=NodeStatus.PENDING)
        worker.step = await self.boundary.replace_plan(
            worker.lease, shelved, await self.reply(worker), _plan(2, True), worker.session
        )
        self.rest(worker)

    async def reply(self, worker: Worker) -> Reply:
        desk = self.world.desk
        chosen = desk.choose("", "")
        ask = Ask(
            purpose=Purpose.PLAN,
            prompt="Plan it.",
            system="",
            language=Language.ENGLISH,
            account=Account(person=BOSS.id, chat=CHAT.id, task=worker.task.id),
            facts={},
            result=PlanAnswer,
        )
        session = await desk.session(f"task:{worker.task.id}", chosen)
        return await desk.ask(ask, chosen, session)

    def rest(self, worker: Worker) -> None:
        """The slot is given back where there is no next step."""
        if worker.step is None and self.workers.get(worker.lease.task_id) is worker:
            del self.workers[worker.lease.task_id]

    def alive(self, worker: Worker, work: Callable[[], Awaitable[None]]) -> None:
        """A worker whose lease is gone finds out, and stops."""
        try:
            self.run(work())
        except LostLease:
            assert self.epochs[worker.lease.task_id] > worker.lease.epoch
            if self.workers.get(worker.lease.task_id) is worker:
                del self.workers[worker.lease.task_id]

    def run(self, work: Awaitable[_T]) -> _T:
        async def do() -> _T:
            return await work

        return self.loop.run(do())

    def pick(self, which: int) -> Task:
        return self.tasks[which % len(self.tasks)]

    def worker(self, which: int) -> Worker:
        return list(self.workers.values())[which % len(self.workers)]

    def source(self) -> str:
        self.orders += 1
        return f"order:{self.orders}"

    def status(self, task_id: str) -> str:
        return str(self.rows("SELECT status FROM tasks WHERE id=?", task_id)[0][0])

    def rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.home / "shiftboss.db")) as store:
            return store.execute(sql, values).fetchall()

    def dump(self) -> list[list[tuple[Any, ...]]]:
        tables = ("tasks", "node_runs", "node_attempts", "events", "task_graphs")
        return [self.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


def _plan(steps: int, repeatable: bool) -> Workflow:
    if not steps:
        return Workflow(plan="nothing to do", answer="there it is")
    nodes = (
        Node(id=f"s{n}", title=f"step {n}", repeatable=repeatable) for n in range(1, steps + 1)
    )
    return linear("as asked", nodes)


async def _english(_task: Task) -> Language:
    return Language.ENGLISH


def test_any_history_keeps_the_laws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process that dies loses nothing of what the system has: only power cuts need the disk.
    monkeypatch.setattr("storage.dialect._PRAGMAS", ("PRAGMA synchronous=OFF",))

    async def make() -> None:
        async with engine(tmp_path, running=False):
            pass

    asyncio.run(make())

    class Here(History):
        template = tmp_path / "shiftboss.db"

    Here.TestCase.settings = settings(
        max_examples=20,
        stateful_step_count=30,
        deadline=None,
        # Shrinking a history on a real file takes minutes; the whole one is printed anyway.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    Here.TestCase("runTest").debug()
