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

from bot.engine.agent.budget import grant_cap_extension
from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.llm.answer_schemas import PlanAnswer
from bot.engine.llm.backend import ReachedCap, RunPurpose
from bot.engine.tasks.approvals import TaskApprovalEffects
from bot.engine.tasks.dispatch import (
    OFFER_AFTER,
    mark_parked,
    offer_stale_parked,
    recover,
    requeue_interrupted,
)
from bot.engine.workers.spec import CostAccount
from bot.engine.workflow.checkpoint import TaskCheckpoint
from bot.engine.workflow.checkpoint_events import (
    BudgetReached,
    PlanAdopted,
    PlanningBegun,
    PlanningStarted,
    PlanReplaced,
    ReplanRequest,
    RunStopped,
    Started,
    StartedStep,
    StepEnded,
    StepsStarted,
)
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.step_approvals import CapExtensionRequester, StepApprovalRequester
from bot.engine.workflow.task_store import LEASE_DURATION
from cards.catalog import catalog_for
from storage.approvals import ApprovalRepo
from storage.errors import LostLease
from storage.ids import IdGenerator
from storage.records.people import Language, PersonId
from storage.records.tasks import NodeRun, NodeStatus, Task, TaskId, TaskLease, TaskStatus
from tests.builders import STARVATION_LIMIT
from tests.chaos.transitions import STATE_QUERY, States, diff_states, read_states
from tests.engine_harness import (
    APPROVAL_LIFETIME,
    BOSS,
    CHAT,
    RISKY_WORDS,
    ManualClock,
    make_approval_requester,
    make_decision_recorder,
    make_undoing,
    run_engine,
)

_T = TypeVar("_T")
_STOPS = {
    "blocked": (TaskStatus.BLOCKED, "it needs you"),
    "failed": (TaskStatus.FAILED, "it failed"),
}


@dataclass
class SimulatedWorker:
    """One run of a task under way: what it holds in memory and a crash takes away."""

    lease: TaskLease
    task: Task
    checkpoint: TaskCheckpoint
    session: str = ""
    planning_run: NodeRun | None = None
    step: StartedStep | None = None


class HistorySimulator:
    """The same store over any number of lives, each with its workers."""

    def __init__(self, template: Path) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="history-"))
        shutil.copyfile(template, self.home / "shiftboss.db")
        self.loop = asyncio.Runner()
        self.clock = ManualClock()
        self.workers: dict[TaskId, SimulatedWorker] = {}
        self.zombies: list[SimulatedWorker] = []
        self.seen: States = {}
        self.start()

    # --- lives

    def start(self) -> None:
        self.stack = AsyncExitStack()
        self.world = self.run(
            self.stack.enter_async_context(
                run_engine(self.home, clock=self.clock, start_dispatcher=False)
            )
        )
        self.approvals = ApprovalRepo(
            self.world.db,
            now=self.clock,
            decision_handlers=TaskApprovalEffects(
                store=self.world.store,
                language_of=_in_english,
                name_of=_boss_name,
                now=self.clock,
                undoing=make_undoing(self.world.store, self.clock),
                grant_budget=grant_cap_extension,
                tool_decisions=make_decision_recorder(self.world.db, self.clock),
            ).consequences,
        )
        self.run(recover(self.world.store, _in_english, self.clock()))
        self.run(offer_stale_parked(self.world.store, _in_english, self.clock()))

    def new_checkpoint(self, lease: TaskLease) -> TaskCheckpoint:
        """A new one for each lease: it remembers what it has read under it."""
        return TaskCheckpoint(
            lease,
            store=self.world.store,
            gateway=self.world.gateway,
            approvals=StepApprovalRequester(
                words=RISKY_WORDS, lifetime=APPROVAL_LIFETIME, ids=IdGenerator(), now=self.clock
            ),
            request_cap_extension=CapExtensionRequester(
                lifetime=APPROVAL_LIFETIME, ids=IdGenerator(), now=self.clock
            ),
            now=self.clock,
            on_change=lambda: None,
            words=catalog_for(Language.ENGLISH),
            zone=ZoneInfo("UTC"),
            tool_approvals=make_approval_requester(self.world.db, self.clock),
        )

    def crash(self) -> None:
        self.zombies += self.workers.values()
        self.workers.clear()
        self.run(self.stack.aclose())

    def drain(self) -> None:
        """A graceful stop requeues steps that do not end in time."""
        tasks = [worker.lease.task_id for worker in self.workers.values()]
        for worker in self.workers.values():
            self.give_back(worker)

        async def note() -> None:
            async with self.world.db.write() as tx:
                await mark_parked(self.world.store, tx, tasks, self.clock() + OFFER_AFTER)

        self.run(note())
        self.crash()

    def end(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()
        shutil.rmtree(self.home)

    # --- work

    def claim(self) -> Task | None:
        async def take() -> Task | None:
            async with self.world.db.write() as tx:
                return await self.world.store.queue.claim(
                    tx,
                    owner="test",
                    now=self.clock(),
                    lease=LEASE_DURATION,
                    aging_after=STARVATION_LIMIT,
                )

        task = self.run(take())
        if task is not None:
            lease = TaskLease(task_id=task.id, epoch=task.epoch)
            assert task.id not in self.workers or self.workers[task.id].lease != lease
            if old := self.workers.get(task.id):
                self.zombies.append(old)
            self.workers[task.id] = SimulatedWorker(
                lease=lease, task=task, checkpoint=self.new_checkpoint(lease)
            )
        return task

    async def plan(self, worker: SimulatedWorker, plan: Workflow | None) -> None:
        """Begin where the task stands; without a plan, planning fails."""
        desk = self.world.gateway
        session = await desk.open_session(f"task:{worker.task.id}", desk.select_backend("", ""))
        worker.session = session.id
        if worker.task.graph_version:
            self.follow(worker, await worker.checkpoint.commit(Started(), session.id))
            return
        if worker.planning_run is None:
            begun = await worker.checkpoint.commit(PlanningBegun(), session.id)
            assert isinstance(begun, PlanningStarted)
            worker.planning_run = begun.run
        if plan is None:
            failed = replace(worker.planning_run, status=NodeStatus.FAILED, error="no")
            await worker.checkpoint.commit(RunStopped(failed, TaskStatus.BLOCKED, "no"))
            self.follow(worker, None)
            return
        adopted = PlanAdopted(worker.planning_run, await self.reply(worker), plan)
        following = await worker.checkpoint.commit(adopted, session.id)
        self.follow(worker, following)

    async def continue_task(self, worker: SimulatedWorker) -> None:
        self.follow(worker, await worker.checkpoint.commit(Started(), "late"))

    async def end_step(self, worker: SimulatedWorker, ends: str) -> None:
        step = worker.step
        assert step is not None
        good = ends == "done"
        run = replace(
            step.run,
            status=NodeStatus.DONE if good else NodeStatus.FAILED,
            error="" if good else "it failed",
            ended_at=self.clock(),
            output={"summary": ends, "heard": len(step.messages)},
        )
        attempt = StepEnded(
            run=run,
            title=step.node.title,
            reply=None,
            may_retry=ends == "again",
            stop=_STOPS.get(ends),
        )
        self.follow(worker, await worker.checkpoint.commit(attempt, worker.session))

    async def replan(self, worker: SimulatedWorker) -> None:
        assert worker.step is not None
        step = replace(
            worker.step, replan=worker.step.replan or ReplanRequest(reason="it has to be")
        )
        reply, plan = await self.reply(worker), plan_of(2)
        replaced = PlanReplaced(step, reply, plan)
        self.follow(worker, await worker.checkpoint.commit(replaced, worker.session))

    async def run_out_of_money(self, worker: SimulatedWorker) -> None:
        """The call of its step would pass the day's cap, which opens again tomorrow."""
        assert worker.step is not None
        hit = ReachedCap(
            scope="day",
            subject="",
            day=self.clock().date().isoformat(),
            cap_micros=1_000_000,
            cap_tokens=0,
            spent_micros=999_999,
            spent_tokens=0,
            until=self.clock() + APPROVAL_LIFETIME / 7,
        )
        reached = BudgetReached(worker.step.run, hit, "no money")
        await worker.checkpoint.commit(reached, worker.session)
        self.follow(worker, None)

    def give_back(self, worker: SimulatedWorker) -> None:
        held = replace(worker.task, epoch=worker.lease.epoch)
        try:
            self.run(requeue_interrupted(self.world.store, held, Language.ENGLISH, self.clock()))
        except LostLease:
            assert self.is_lost(worker)

    async def reply(self, worker: SimulatedWorker) -> ModelReply:
        desk = self.world.gateway
        chosen = desk.select_backend("", "")
        ask = ModelRequest(
            purpose=RunPurpose.PLAN,
            prompt="Plan it.",
            system_prompt="",
            language=Language.ENGLISH,
            account=CostAccount(person=BOSS.id, chat=CHAT.id, task=worker.task.id),
            facts={},
            result_type=PlanAnswer,
        )
        session = await desk.open_session(f"task:{worker.task.id}", chosen)
        return await desk.call_model(ask, chosen, session)

    def follow(self, worker: SimulatedWorker, following: object) -> None:
        """The slot is given back where there is no next step."""
        assert following is None or isinstance(following, StepsStarted)
        worker.step = following.steps[0] if following else None
        if following is None and self.workers.get(worker.lease.task_id) is worker:
            del self.workers[worker.lease.task_id]

    def run_worker(self, worker: SimulatedWorker, work: Callable[[], Awaitable[None]]) -> None:
        """A worker whose lease is gone finds out, and stops."""
        try:
            self.run(work())
        except LostLease:
            assert self.is_lost(worker)
            if self.workers.get(worker.lease.task_id) is worker:
                del self.workers[worker.lease.task_id]

    def is_lost(self, worker: SimulatedWorker) -> bool:
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
                    self.run_worker(worker, partial(self.plan, worker, plan_of(1)))
                else:
                    self.run_worker(worker, partial(self.end_step, worker, "done"))

    # --- looking

    def take_transitions(self) -> list[tuple[str, str]]:
        """The transitions since the last look."""
        now = read_states(self.rows(STATE_QUERY))
        moved, self.seen = diff_states(self.seen, now), now
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
    nodes = [
        WorkflowNode(id=f"s{n}", title=f"step {n}", repeatable=repeatable) for n in range(steps)
    ]
    if kind:
        at = min(1, steps - 1)
        title, type_ = (
            ("deploy it", NodeType.TASK) if kind == "risky" else ("decide", NodeType.HUMAN)
        )
        nodes[at] = replace(nodes[at], title=title, type=type_)
    return linear_workflow("as asked", nodes)


async def _in_english(_task: Task) -> Language:
    return Language.ENGLISH


async def _boss_name(_person: PersonId) -> str:
    return "Boss"
