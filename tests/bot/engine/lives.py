"""A core that is lived through by hand, transaction by transaction, so that it may die between
any two of them: who works on what, and what its store says."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from bot.engine.agent.account import Account
from bot.engine.agent.budget import grant
from bot.engine.agent.desk import Ask, Reply
from bot.engine.dispatch.decisions import Decisions
from bot.engine.dispatch.parked import note_parked, offer_parked
from bot.engine.dispatch.recovery import OFFER_AFTER, put_back, recover
from bot.engine.llm.answers import PlanAnswer
from bot.engine.llm.base import CapHit, Purpose
from bot.engine.workflow.asking import Asker, MoneyAsker
from bot.engine.workflow.boundary import Boundary
from bot.engine.workflow.graph import HUMAN, TASK, Node, Workflow, linear
from bot.engine.workflow.steps import Attempt, Next, Replan, Steps
from bot.engine.workflow.store import LEASE, PATIENCE
from cards.words import words_for
from storage.approvals import Approvals
from storage.errors import LostLease
from storage.ids import Ids
from storage.records.people import Language, PersonId
from storage.records.tasks import Lease, NodeRun, NodeStatus, Task, TaskId, TaskStatus
from tests.chaos.moves import SEEN, Things, between, things
from tests.engine_world import BOSS, CHAT, LIFETIME, RISKY, Clock, engine

_T = TypeVar("_T")
_STOPS = {
    "blocked": (TaskStatus.BLOCKED, "it needs you"),
    "failed": (TaskStatus.FAILED, "it failed"),
}


@dataclass
class Worker:
    """One run of a task under way: what it holds in memory and a crash takes away."""

    lease: Lease
    task: Task
    boundary: Boundary
    session: str = ""
    planning: NodeRun | None = None
    step: Next | None = None


class Lives:
    """The same store over any number of lives, each with its workers."""

    def __init__(self, template: Path) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="history-"))
        shutil.copyfile(template, self.home / "shiftboss.db")
        self.loop = asyncio.Runner()
        self.clock = Clock()
        self.workers: dict[TaskId, Worker] = {}
        self.zombies: list[Worker] = []
        self.seen: Things = {}
        self.born()

    # --- lives

    def born(self) -> None:
        self.stack = AsyncExitStack()
        self.world = self.run(
            self.stack.enter_async_context(engine(self.home, clock=self.clock, running=False))
        )
        self.approvals = Approvals(
            self.world.db,
            now=self.clock,
            consequences=Decisions(
                store=self.world.store,
                language_of=_english,
                name_of=_named,
                now=self.clock,
                grant=grant,
            ).consequences,
        )
        self.run(recover(self.world.store, _english, self.clock()))
        self.run(offer_parked(self.world.store, _english, self.clock()))

    def boundary(self) -> Boundary:
        """A new one for each lease: it remembers what it has read under it."""
        return Boundary(
            store=self.world.store,
            desk=self.world.desk,
            leaves=Asker(words=RISKY, lifetime=LIFETIME, ids=Ids(), now=self.clock),
            ask_for_more=MoneyAsker(lifetime=LIFETIME, ids=Ids(), now=self.clock),
            now=self.clock,
            on_change=lambda: None,
            words=words_for(Language.ENGLISH),
            zone=ZoneInfo("UTC"),
        )

    def dies(self) -> None:
        self.zombies += self.workers.values()
        self.workers.clear()
        self.run(self.stack.aclose())

    def parks(self) -> None:
        """What a polite stop does with steps that do not end in time."""
        tasks = [worker.lease.task_id for worker in self.workers.values()]
        for worker in self.workers.values():
            self.give_back(worker)

        async def note() -> None:
            async with self.world.db.write() as tx:
                await note_parked(self.world.store, tx, tasks, self.clock() + OFFER_AFTER)

        self.run(note())
        self.dies()

    def end(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()
        shutil.rmtree(self.home)

    # --- work

    def claim(self) -> Task | None:
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
            self.workers[task.id] = Worker(lease=lease, task=task, boundary=self.boundary())
        return task

    async def plan(self, worker: Worker, plan: Workflow | None) -> None:
        """Begin where the task stands; without a plan, planning fails."""
        desk = self.world.desk
        session = await desk.session(f"task:{worker.task.id}", desk.choose("", ""))
        worker.session = session.id
        if worker.task.graph_version:
            self.goes_on(worker, await worker.boundary.go_on(worker.lease, session.id))
            return
        if worker.planning is None:
            worker.planning, _ = await worker.boundary.begin_planning(worker.lease, session.id)
        if plan is None:
            await worker.boundary.give_up_planning(
                worker.lease, worker.planning, error="no", status=TaskStatus.BLOCKED, reason="no"
            )
            self.goes_on(worker, None)
            return
        following = await worker.boundary.adopt_plan(
            worker.lease, worker.planning, await self.reply(worker), plan, session.id
        )
        self.goes_on(worker, following)

    async def begin(self, worker: Worker) -> None:
        self.goes_on(worker, await worker.boundary.go_on(worker.lease, "late"))

    async def settle(self, worker: Worker, ends: str) -> None:
        step = worker.step
        assert step is not None
        good = ends == "done"
        run = replace(
            step.run,
            status=NodeStatus.DONE if good else NodeStatus.FAILED,
            error="" if good else "it failed",
            ended_at=self.clock(),
            output={"summary": ends, "heard": len(step.said)},
        )
        attempt = Attempt(
            run=run,
            title=step.node.title,
            reply=None,
            again=ends == "again",
            stop=_STOPS.get(ends),
        )
        self.goes_on(worker, await worker.boundary.settle(worker.lease, attempt, worker.session))

    async def replan(self, worker: Worker) -> None:
        assert worker.step is not None
        step = replace(worker.step, replan=worker.step.replan or Replan(why="it has to be"))
        reply, plan = await self.reply(worker), plan_of(2)
        self.goes_on(
            worker,
            await worker.boundary.replace_plan(worker.lease, step, reply, plan, worker.session),
        )

    async def run_out_of_money(self, worker: Worker) -> None:
        """The call of its step would pass the day's cap, which opens again tomorrow."""
        assert worker.step is not None
        hit = CapHit(
            scope="day",
            subject="",
            day=self.clock().date().isoformat(),
            cap_micros=1_000_000,
            cap_tokens=0,
            spent_micros=999_999,
            spent_tokens=0,
            until=self.clock() + LIFETIME / 7,
        )
        await worker.boundary.wait_for_money(
            worker.lease, worker.step.run, hit, "no money", worker.session
        )
        self.goes_on(worker, None)

    def give_back(self, worker: Worker) -> None:
        held = replace(worker.task, epoch=worker.lease.epoch)
        try:
            self.run(put_back(self.world.store, held, Language.ENGLISH, self.clock()))
        except LostLease:
            assert self.is_lost(worker)

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

    def goes_on(self, worker: Worker, following: object) -> None:
        """The slot is given back where there is no next step."""
        assert following is None or isinstance(following, Steps)
        worker.step = following.steps[0] if following else None
        if following is None and self.workers.get(worker.lease.task_id) is worker:
            del self.workers[worker.lease.task_id]

    def alive(self, worker: Worker, work: Callable[[], Awaitable[None]]) -> None:
        """A worker whose lease is gone finds out, and stops."""
        try:
            self.run(work())
        except LostLease:
            assert self.is_lost(worker)
            if self.workers.get(worker.lease.task_id) is worker:
                del self.workers[worker.lease.task_id]

    def is_lost(self, worker: Worker) -> bool:
        """Somebody else has it, or nobody runs it."""
        ((epoch, status),) = self.rows(
            "SELECT epoch, status FROM tasks WHERE id=?", worker.lease.task_id
        )
        return bool(epoch > worker.lease.epoch or status != "running")

    def finish_all(self) -> None:
        """Whatever runs or can run is done, step by step, until nothing can."""
        while self.workers or self.claim():
            for worker in list(self.workers.values()):
                if worker.step is None:
                    self.alive(worker, partial(self.plan, worker, plan_of(1)))
                else:
                    self.alive(worker, partial(self.settle, worker, "done"))

    # --- looking

    def moved(self) -> list[tuple[str, str]]:
        """The transitions since the last look."""
        now = things(self.rows(SEEN))
        moved, self.seen = between(self.seen, now), now
        return moved

    def status(self, task_id: str) -> str:
        return str(self.rows("SELECT status FROM tasks WHERE id=?", task_id)[0][0])

    def rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.home / "shiftboss.db")) as store:
            return store.execute(sql, values).fetchall()

    def dump(self) -> list[list[tuple[Any, ...]]]:
        tables = ("tasks", "node_runs", "node_attempts", "events", "task_graphs", "approvals")
        return [self.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]

    def run(self, work: Awaitable[_T]) -> _T:
        async def do() -> _T:
            return await work

        return self.loop.run(do())


def plan_of(steps: int, *, repeatable: bool = True, kind: str = "") -> Workflow:
    """Of its steps the second is for a person, or risky, where `kind` says so."""
    if not steps:
        return Workflow(plan="nothing to do", answer="there it is")
    nodes = [Node(id=f"s{n}", title=f"step {n}", repeatable=repeatable) for n in range(steps)]
    if kind:
        at = min(1, steps - 1)
        title, type_ = ("deploy it", TASK) if kind == "risky" else ("decide", HUMAN)
        nodes[at] = replace(nodes[at], title=title, type=type_)
    return linear("as asked", nodes)


async def _english(_task: Task) -> Language:
    return Language.ENGLISH


async def _named(_person: PersonId) -> str:
    return "Boss"
