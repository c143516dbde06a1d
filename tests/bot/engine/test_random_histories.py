"""Whatever people order, click and decide, however steps end, whatever the clock says, and
whenever the process dies: the laws of the core hold on the real store, and everything can still
be brought to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bot.engine.tasks.dispatch import mark_failed
from storage.errors import LostLease, NotAllowed, WrongState
from storage.records.approvals import ApprovalState
from storage.records.people import Person
from storage.records.tasks import Task, TaskPriority, TaskStatus
from tests.bot.engine.history_lives import HistorySimulator, SimulatedWorker, plan_of
from tests.chaos.transitions import ALL_TRANSITIONS, FORBIDDEN, MANUAL, transition_names
from tests.engine_harness import APPROVAL_LIFETIME, BOSS, MATE, run_engine
from tests.thoroughness import sampled

_SLOTS = 2
_INSTANCE = st.integers(min_value=0, max_value=20)
_KNOWN = {*ALL_TRANSITIONS, *transition_names("task", MANUAL)}
_ORDERS: dict[str, tuple[Any, ...]] = {
    "pause": (),
    "resume": (),
    "stop": (),
    "retry": (),
    "start_anyway": (),
    "send_message": ("say so",),
    "replan": ("it is wrong",),
    "inject": (("one more", "and one"),),
}


class RandomHistory(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.core = HistorySimulator(self.template)
        self.tasks: list[Task] = []
        self.orders = 0
        self.given: list[str] = []
        self.told: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.finished: dict[tuple[str, str], list[Any]] = {}
        self.decided: dict[str, tuple[Any, ...]] = {}

    # --- lives and time

    @rule(hours=st.sampled_from([0, 0, 13, -2]), politely=st.booleans())
    def ends_and_starts_again(self, hours: int, politely: bool) -> None:
        if politely:
            self.core.drain()
        else:
            self.core.crash()
        self.core.clock.advance(hours=hours)
        self.core.start()

    @rule(span=st.sampled_from([timedelta(hours=13), timedelta(hours=-30), APPROVAL_LIFETIME]))
    def the_clock_jumps(self, span: timedelta) -> None:
        """Then what is due by it is seen to."""
        self.core.clock.advance(seconds=span.total_seconds())
        self.core.run(self.core.approvals.expire_overdue())
        self.core.run(self.core.world.dispatcher._requeue_due())

    def teardown(self) -> None:
        try:
            self.everything_can_be_ended()
        finally:
            self.core.end()

    # --- people

    @precondition(lambda self: len(self.tasks) < 6)
    @rule(priority=st.sampled_from(list(TaskPriority)), project=st.sampled_from(["", "", "/p"]))
    def somebody_asks(self, priority: TaskPriority, project: str) -> None:
        add = self.core.world.create_task
        ask = partial(add, source=self.source(), priority=priority, project_dir=project)
        task = self.core.run(ask())
        self.tasks.append(task)

        assert self.core.run(ask()).id == task.id, "one message, one task"

    @precondition(lambda self: self.tasks)
    @rule(which=_INSTANCE, order=st.sampled_from(list(_ORDERS)), twice=st.booleans())
    def somebody_orders(self, which: int, order: str, twice: bool) -> None:
        task, source = self.pick(which), self.source()
        give = getattr(self.core.world.tasks, order)
        with suppress(WrongState):
            given = self.core.run(give(task, *_ORDERS[order], by=BOSS, source=source))
            self.given.append(source)
            self.told[task.id] = self.told.get(task.id, 0) + (order == "send_message")
            if twice:
                before = self.core.dump()
                assert self.core.run(give(task, *_ORDERS[order], by=BOSS, source=source)) == given
                assert self.core.dump() == before

    @precondition(lambda self: self.tasks)
    @rule(which=_INSTANCE, priority=st.sampled_from(list(TaskPriority)))
    def somebody_reorders(self, which: int, priority: TaskPriority) -> None:
        source, foreman = self.source(), self.core.world.tasks
        with suppress(WrongState):
            self.core.run(foreman.set_priority(self.pick(which), priority, by=BOSS, source=source))
            self.given.append(source)

    @precondition(lambda self: self.asked())
    @rule(which=_INSTANCE, yes=st.booleans(), by=st.sampled_from([BOSS, BOSS, MATE]))
    def somebody_decides(self, which: int, yes: bool, by: Person) -> None:
        """The same click twice is one; another's after it, or a stranger's, changes nothing."""
        approvals, asked = self.core.approvals, self.asked()
        approval = self.core.run(approvals.get(asked[which % len(asked)]))
        source = self.source()
        decide = partial(approvals.decide, approval, by=by)
        try:
            first = self.core.run(decide(approve=yes, source=source))
        except (NotAllowed, WrongState):
            assert by is MATE or approval.state is not ApprovalState.WAITING
            return
        before = self.core.dump()
        again = self.core.run(decide(approve=yes, source=source))
        assert (again.state, again.decided_by) == (first.state, by.id)
        with pytest.raises(WrongState):
            self.core.run(decide(approve=not yes, source=self.source()))
        assert self.core.dump() == before

    # --- work

    @precondition(lambda self: len(self.core.workers) < _SLOTS)
    @rule()
    def a_slot_is_filled(self) -> None:
        task = self.core.claim()
        if task is not None:
            self.nothing_interrupted_is_passed_over(task)

    @precondition(lambda self: self.core.workers)
    @rule(
        which=_INSTANCE,
        steps=st.integers(0, 3),
        repeatable=st.booleans(),
        kind=st.sampled_from(["", "", "risky", "human"]),
        fails=st.booleans(),
    )
    def planning_goes_on(
        self, which: int, steps: int, repeatable: bool, kind: str, fails: bool
    ) -> None:
        worker = self.worker(which)
        if worker.step is None:
            plan = None if fails else plan_of(steps, repeatable=repeatable, kind=kind)
            self.core.run_worker(worker, lambda: self.core.plan(worker, plan))

    @precondition(lambda self: self.stepping())
    @rule(which=_INSTANCE, ends=st.sampled_from(["done", "done", "again", "blocked", "failed"]))
    def a_step_ends(self, which: int, ends: str) -> None:
        worker = self.stepping()[which % len(self.stepping())]
        self.core.run_worker(worker, lambda: self.core.end_step(worker, ends))

    @precondition(lambda self: self.stepping())
    @rule(which=_INSTANCE, how=st.sampled_from(["a new plan", "no money"]))
    def a_step_is_not_tried(self, which: int, how: str) -> None:
        worker = self.stepping()[which % len(self.stepping())]
        work = self.core.replan if how == "a new plan" else self.core.run_out_of_money
        self.core.run_worker(worker, lambda: work(worker))

    @precondition(lambda self: self.core.workers)
    @rule(which=_INSTANCE, how=st.sampled_from(["put back", "broken off"]))
    def a_run_is_given_up(self, which: int, how: str) -> None:
        worker = self.worker(which)
        if how == "put back":
            self.core.give_back(worker)
        else:
            held = replace(worker.task, epoch=worker.lease.epoch)
            broken = mark_failed(self.core.world.store, held, "a bug", self.core.clock())
            with suppress(LostLease):
                self.core.run(broken)
        del self.core.workers[worker.lease.task_id]

    @precondition(lambda self: self.core.workers)
    @rule()
    def who_waits_asks_for_room(self) -> None:
        self.core.run(self.core.world.dispatcher._preempt())

    @precondition(lambda self: self.core.zombies)
    @rule(which=_INSTANCE)
    def a_dead_workers_result_comes_late(self, which: int) -> None:
        worker = self.core.zombies[which % len(self.core.zombies)]
        # Its own went with its process; what it holds of the task is what counts.
        worker.checkpoint = self.core.new_checkpoint(worker.lease)
        before = self.core.dump()
        late = (
            self.core.end_step(worker, "done") if worker.step else self.core.continue_task(worker)
        )
        with pytest.raises(LostLease):
            self.core.run(late)
        assert self.core.dump() == before

    # --- laws

    @invariant()
    def only_what_may_happen_happens(self) -> None:
        # Planning begins and ends within one rule: that hides what was between.
        moved = [move for move, name in self.core.take_transitions() if not name.endswith("/@plan")]
        assert not set(moved) & FORBIDDEN
        engine_moves = [move for move in moved if move.startswith(("task.", "control."))]
        assert set(engine_moves) <= _KNOWN, "on no list of the chaos tests"

    @invariant()
    def tasks_are_in_order(self) -> None:
        columns = "id, status, phase, epoch, owner, lease_until, ended_at, control"
        for row in self.core.rows(f"SELECT {columns} FROM tasks"):
            task_id, status, phase, epoch, owner, lease_until, ended_at, control = row
            final = TaskStatus(status).is_final
            assert (ended_at is not None) == final, row
            assert (phase == "ended") == final, row
            assert (bool(owner), lease_until is not None) == ((status == "running"),) * 2, row
            # Who has made room is not asked again before it runs again.
            rests = {"run"} if final else {"run", "yield"}
            assert status == "running" or control in rests, row
            assert epoch >= self.epochs.get(task_id, 0), row
            self.epochs[task_id] = epoch
            alive = self.core.workers.get(task_id)
            held = alive is not None and alive.lease.epoch == epoch
            assert (status == "running") == held, f"nobody runs it, or a stranger does: {row}"

    @invariant()
    def one_step_at_a_time_and_none_twice(self) -> None:
        running = self.core.rows(
            "SELECT task_id, path, attempt FROM node_runs WHERE status='running'"
        )
        attempts = self.core.rows(
            "SELECT task_id, path, attempt FROM node_attempts WHERE ended_at IS NULL"
        )
        assert sorted(running) == sorted(attempts)
        of_tasks = [task_id for task_id, _, _ in running]
        assert len(of_tasks) == len(set(of_tasks))
        for task_id in of_tasks:
            assert self.core.status(task_id) == "running"
        done = {
            (task_id, path): rest
            for task_id, path, *rest in self.core.rows(
                "SELECT task_id, path, attempt, output, started_at, ended_at FROM node_runs"
                " WHERE status='done' AND path <> '@plan'"
            )
        }
        for key, before in self.finished.items():
            assert done.get(key) == before, f"{key} was finished and is touched again"
        self.finished = done

    @invariant()
    def a_project_has_one_task_at_a_time(self) -> None:
        sql = "SELECT count(*) FROM tasks WHERE status='running' AND project_dir='/p'"
        assert self.core.rows(sql)[0][0] <= 1

    @invariant()
    def every_end_is_in_its_history(self) -> None:
        sql = "SELECT id, status FROM tasks WHERE ended_at NOTNULL"
        for task_id, status in self.core.rows(sql):
            last = self.core.rows(
                "SELECT kind FROM events WHERE task_id=? AND kind IN"
                " ('completed','failed','cancelled','resumed') ORDER BY id DESC LIMIT 1",
                task_id,
            )
            assert last == [(status,)]

    @invariant()
    def who_waits_waits_for_something(self) -> None:
        for task_id, wake_at in self.core.rows(
            "SELECT id, wake_at FROM tasks WHERE status='waiting'"
        ):
            ((awaited,),) = self.core.rows(
                "SELECT text FROM events WHERE task_id=? AND kind='waiting'"
                " ORDER BY id DESC LIMIT 1",
                task_id,
            )
            state = self.core.rows("SELECT state FROM approvals WHERE id=?", awaited)
            assert state == [("waiting",)] or wake_at is not None, f"{task_id} waits for nothing"

    @invariant()
    def a_decision_stands(self) -> None:
        sql = "SELECT id, state, decided_by, decided_at FROM approvals WHERE state <> 'waiting'"
        now = {row[0]: row[1:] for row in self.core.rows(sql)}
        for number, before in self.decided.items():
            assert now[number] == before, f"{number} was decided, and is decided again"
        self.decided = now
        over = "SELECT id FROM tasks WHERE ended_at NOTNULL"
        for (task_id,) in self.core.rows(over):
            left = self.core.rows(
                "SELECT id FROM approvals WHERE task_id=? AND state='waiting' AND kind<>'budget'",
                task_id,
            )
            assert left == [], "asked for a task that is over"

    @invariant()
    def no_order_is_lost(self) -> None:
        noted = {source for (source,) in self.core.rows("SELECT source FROM commands")}
        assert noted >= set(self.given)
        for task_id, number in self.told.items():
            if self.core.status(task_id) != "completed":
                continue
            (heard,) = self.core.rows(
                "SELECT max(json_extract(output, '$.heard')) FROM node_runs WHERE task_id=?",
                task_id,
            )[0]
            assert heard is None or heard >= number, f"{task_id} was told {number} times"

    def nothing_interrupted_is_passed_over(self, taken: Task) -> None:
        sql = "SELECT rank, resumed_first FROM tasks WHERE id=?"
        ((rank, resumed_first),) = self.core.rows(sql, taken.id)
        if resumed_first:
            # Of those in no project: others may have to wait for a folder.
            passed = self.core.rows(
                "SELECT id FROM tasks WHERE status='pending' AND resumed_first=0 AND rank<=?"
                " AND project_dir='' AND outside=0",
                rank,
            )
            # Who has waited too long is moved up when this claim has been made.
            aged = [each for (each,) in passed if not self.aged(each)]
            assert aged == [], f"{taken.id} is new, and before what was interrupted"

    def everything_can_be_ended(self) -> None:
        """Tasks that wait for a person continue when that person decides, tasks that wait for a
        slot automatically."""
        for _round in range(8):
            for task in self.tasks:
                if self.core.status(task.id) in {"paused", "blocked"}:
                    resume = self.core.world.tasks.resume
                    self.core.run(resume(task, by=BOSS, source=self.source()))
            self.core.run(self.core.approvals.expire_overdue())
            for number in self.asked():
                self.decide(number)
            self.core.finish_all()
        left = self.core.rows("SELECT id, status FROM tasks WHERE ended_at IS NULL")
        assert left == []
        self.no_order_is_lost()
        self.a_decision_stands()

    # --- tools

    def decide(self, number: str) -> None:
        approval = self.core.run(self.core.approvals.get(number))
        decide: Callable[..., Any] = self.core.approvals.decide
        self.core.run(decide(approval, approve=True, by=BOSS, source=self.source()))

    def asked(self) -> list[str]:
        """Requests that nobody has decided, oldest first."""
        sql = "SELECT id FROM approvals WHERE state='waiting' ORDER BY created_at, id"
        return [number for (number,) in self.core.rows(sql)]

    def aged(self, task_id: str) -> bool:
        sql = "SELECT rank, priority FROM tasks WHERE id=?"
        ((rank, priority),) = self.core.rows(sql, task_id)
        return bool(rank < TaskPriority(priority).rank)

    def stepping(self) -> list[SimulatedWorker]:
        return [each for each in self.core.workers.values() if each.step is not None]

    def pick(self, which: int) -> Task:
        return self.tasks[which % len(self.tasks)]

    def worker(self, which: int) -> SimulatedWorker:
        return list(self.core.workers.values())[which % len(self.core.workers)]

    def source(self) -> str:
        self.orders += 1
        return f"order:{self.orders}"


def test_any_history_keeps_the_laws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process that dies loses nothing of what the system has: only power cuts need the disk.
    monkeypatch.setattr("storage.db._PRAGMAS", ("PRAGMA synchronous=OFF",))

    async def make() -> None:
        async with run_engine(tmp_path, start_dispatcher=False):
            pass

    asyncio.run(make())

    class Here(RandomHistory):
        template = tmp_path / "shiftboss.db"

    Here.TestCase.settings = settings(
        max_examples=sampled(20, 6),
        stateful_step_count=40,
        deadline=None,
        # Shrinking a history on a real file takes minutes; the whole one is printed anyway.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    Here.TestCase("runTest").debug()
