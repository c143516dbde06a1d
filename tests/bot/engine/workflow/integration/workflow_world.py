"""Workflows on a real store, whose steps end when a test says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bot.engine.agent.budget import grant_cap_extension
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import BackendError, ReachedCap, RunPurpose, RunRequest, RunResult
from bot.engine.tasks.approvals import TaskApprovalEffects
from bot.engine.workflow.definition import OnError, Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.contract import NodeConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.validation import validate_workflow
from storage.approvals import ApprovalRepo
from storage.records.approvals import Approval, ApprovalState
from storage.records.people import Language, PersonId
from storage.records.tasks import EventKind, NodeRun, Task, TaskId
from tests.engine_harness import (
    BOSS,
    EngineHarness,
    FakeBackend,
    ManualClock,
    make_decision_recorder,
    make_undoing,
    run_engine,
)


class PacedBackend(FakeBackend):
    """`answers` are what steps of that title return, `fails` what they raise."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Any] = {}
        self.fails: dict[str, BackendError] = {}
        self.on_step = self.answers.get

    def last_prompt(self, title: str) -> str:
        """The prompt of the last try of that step."""
        return str(self._request(title).prompt)

    def session_before(self, title: str) -> str:
        """The contents of its session before that step."""
        return str(self._request(title).history)

    def _request(self, title: str) -> Any:
        steps = [each for each in self.requests if each.purpose is RunPurpose.STEP]
        return next(each for each in reversed(steps) if each.facts["step"]["title"] == title)

    async def respond(self, request: RunRequest) -> RunResult:
        result = await super().respond(request)
        title = request.facts["step"]["title"] if request.purpose is RunPurpose.STEP else ""
        if title in self.fails:
            raise self.fails[title]
        return result


@dataclass
class WorkflowWorld:
    """One life of the engine with the people who decide."""

    engine: EngineHarness
    backend: PacedBackend
    approvals: ApprovalRepo

    async def wait_for_request(self, task: Task, title: str) -> Approval:
        """The open request with that title, as soon as there is one."""

        async def look() -> Approval | None:
            asked = await self.approvals.list_by_task(task.id)
            open_ = (each for each in asked if each.state is ApprovalState.WAITING)
            return next((each for each in open_ if each.title == title), None)

        return await self.engine.db.commits.until_found(look)

    async def open_requests(self, task: Task, n: int) -> Sequence[Approval]:
        """All of them, as soon as there are so many."""

        async def look() -> Sequence[Approval] | None:
            asked = await self.approvals.list_by_task(task.id)
            left = [each for each in asked if each.state is ApprovalState.WAITING]
            return left if len(left) >= n else None

        return await self.engine.db.commits.until_found(look)

    async def decide(
        self, approval: Approval, *, approve: bool = True, reason: str = "", **how: Any
    ) -> None:
        source = f"d:{approval.id}"
        await self.approvals.decide(
            approval, approve=approve, by=BOSS, source=source, reason=reason, **how
        )
        self.engine.runner.wake()
        self.engine.dispatcher.wake()

    async def advance_clock(self, **span: float) -> None:
        """The clock goes on, and whoever waits for it looks."""
        self.engine.clock.advance(**span)
        self.engine.dispatcher.wake()
        self.engine.runner.wake()

    async def runs(self, task: Task) -> Mapping[str, NodeRun]:
        return await self.engine.store.graphs.list_runs(task.id)

    async def wait_for_run(self, task: Task, path: str, *statuses: str) -> NodeRun:
        async def look() -> NodeRun | None:
            run = (await self.runs(task)).get(path)
            return run if run is not None and run.status in statuses else None

        return await self.engine.db.commits.until_found(look)

    async def event_texts(self, task: Task, kind: EventKind) -> Sequence[str]:
        events = await self.engine.tasks.events(task.id, 200)
        return [event.text for event in events if event.kind is kind]

    async def reload(self, task: Task) -> Task:
        return await self.engine.store.tasks.get(TaskId(task.id))


@asynccontextmanager
async def workflow_world(
    home: Path, backend: PacedBackend | None = None, *, clock: ManualClock | None = None, **how: Any
) -> AsyncGenerator[WorkflowWorld, None]:
    worker = backend or PacedBackend()
    clock = clock or ManualClock()

    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def named(_person: PersonId) -> str:
        return "Boss"

    async with run_engine(home, worker, clock=clock, **how) as world:
        decisions = TaskApprovalEffects(
            store=world.store,
            language_of=english,
            name_of=named,
            now=clock,
            undoing=make_undoing(world.store, clock),
            grant_budget=grant_cap_extension,
            tool_decisions=make_decision_recorder(world.db, clock),
        )
        approvals = ApprovalRepo(world.db, now=clock, decision_handlers=decisions.consequences)
        yield WorkflowWorld(engine=world, backend=worker, approvals=approvals)


def task_node(name: str, title: str = "", **facts: Any) -> WorkflowNode:
    return WorkflowNode(id=name, title=title or name, **facts)


def make_node(
    name: str, kind: NodeType, config: NodeConfig | None = None, **facts: Any
) -> WorkflowNode:
    return WorkflowNode(id=name, title=name, type=kind, config=config, **facts)


def make_graph(
    *parts: WorkflowNode | WorkflowEdge | str, parallel: int = 1, **settings: Any
) -> Workflow:
    """Its nodes, and edges like `a>b>c` or `a>b ? condition`."""
    nodes = tuple(part for part in parts if isinstance(part, WorkflowNode))
    edges: list[WorkflowEdge] = []
    for part in parts:
        if isinstance(part, WorkflowEdge):
            edges.append(part)
        if isinstance(part, str):
            way, _, condition = part.partition("?")
            names = [name.strip() for name in way.split(">")]
            pairs = pairwise(names)
            edges += [
                WorkflowEdge(source=a, target=b, condition=condition.strip()) for a, b in pairs
            ]
    made = Workflow(plan="As drawn.", nodes=nodes, edges=tuple(edges), parallel=parallel)
    return validate_workflow(replace(made, **settings))


def two_branches(**settings: Any) -> Workflow:
    """`a1` and then `a2` beside `b1` and then `b2`, and `last` behind both."""
    return make_graph(
        make_node("fork", NodeType.PARALLEL),
        *(task_node(name) for name in ("a1", "a2", "b1", "b2")),
        make_node("both", NodeType.JOIN),
        task_node("last"),
        "fork>a1>a2>both>last",
        "fork>b1>b2>both",
        parallel=settings.pop("parallel", 2),
        **settings,
    )


def for_each(items: Sequence[str], *body: WorkflowNode | str, **how: Any) -> Workflow:
    """One body after the other for these, and `last` behind them."""
    names = tuple(part.id for part in body if isinstance(part, WorkflowNode))
    on_error = how.pop("on_error", OnError.FAIL)
    parallel = how.pop("parallel", 1)
    config = ForeachConfig(collection="variables.items", body=names, **how)
    return make_graph(
        make_node("each", NodeType.FOREACH, config, on_error=on_error),
        *body,
        task_node("last"),
        "each>last",
        variables={"items": list(items)},
        parallel=parallel,
    )


def failed_answer(summary: str = "no") -> StepAnswer:
    return StepAnswer(status="error", summary=summary)


def reached_cap(task_id: str) -> ReachedCap:
    return ReachedCap(
        scope="task",
        subject=task_id,
        day="",
        cap_micros=1_000_000,
        cap_tokens=0,
        spent_micros=999_999,
        spent_tokens=0,
        until=None,
    )
