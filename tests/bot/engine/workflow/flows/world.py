"""Workflows on a real store, whose steps end when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bot.engine.agent.budget import grant
from bot.engine.dispatch.decisions import Decisions
from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import BackendError, Purpose, RunRequest, RunResult
from bot.engine.workflow.graph import Edge, Node, Workflow, validated
from bot.engine.workflow.model.nodes import Config, Foreach, NodeType, OnError
from storage.approvals import Approvals
from storage.records.approvals import Approval, ApprovalState
from storage.records.people import Language, PersonId
from storage.records.tasks import EventKind, NodeRun, Task, TaskId
from tests.engine_world import BOSS, Clock, Engine, FakeBackend, engine


class Paced(FakeBackend):
    """Steps whose titles are held wait until they are let go; `answers` are what others bring,
    `ends` what they bring who were held, `fails` what they raise."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, asyncio.Event] = {}
        self.answers: dict[str, Any] = {}
        self.ends: dict[str, Any] = {}
        self.fails: dict[str, BackendError] = {}
        self.on_step = self._do

    def hold(self, *titles: str) -> None:
        self.gates |= {title: asyncio.Event() for title in titles}

    def let_go(self, *titles: str) -> None:
        for title in titles:
            self.gates.pop(title).set()

    async def begun(self, *titles: str) -> None:
        async with asyncio.timeout(60):
            while not set(titles) <= set(self.done):
                await asyncio.sleep(0.005)

    def heard(self, title: str) -> str:
        """The prompt of the last try of that step."""
        return str(self._request(title).prompt)

    def history(self, title: str) -> str:
        """What its session held before that step."""
        return str(self._request(title).history)

    def _request(self, title: str) -> Any:
        steps = [each for each in self.asked if each.purpose is Purpose.STEP]
        return next(each for each in reversed(steps) if each.facts["step"]["title"] == title)

    async def settle(self, request: RunRequest) -> RunResult:
        result = await super().settle(request)
        title = request.facts["step"]["title"] if request.purpose is Purpose.STEP else ""
        if title in self.fails:
            raise self.fails[title]
        return replace(result, value=self.ends[title]) if title in self.ends else result

    def _do(self, title: str) -> Any:
        return self.gates.get(title) or self.answers.get(title)


@dataclass
class Flows:
    """One life of the engine with the people who decide."""

    world: Engine
    backend: Paced
    approvals: Approvals

    async def asked(self, task: Task, title: str) -> Approval:
        """The open request with that title, as soon as there is one."""
        async with asyncio.timeout(60):
            while True:
                for approval in await self.approvals.of_task(task.id):
                    if approval.title == title and approval.state is ApprovalState.WAITING:
                        return approval
                await asyncio.sleep(0.005)

    async def open_requests(self, task: Task, n: int) -> Sequence[Approval]:
        """All of them, as soon as there are so many."""
        async with asyncio.timeout(60):
            while True:
                all_asked = await self.approvals.of_task(task.id)
                left = [each for each in all_asked if each.state is ApprovalState.WAITING]
                if len(left) >= n:
                    return left
                await asyncio.sleep(0.005)

    async def decide(self, approval: Approval, *, approve: bool = True, reason: str = "") -> None:
        source = f"d:{approval.id}"
        await self.approvals.decide(
            approval, approve=approve, by=BOSS, source=source, reason=reason
        )
        self.world.runner.look_again()
        self.world.dispatcher.wake()

    async def later(self, **span: float) -> None:
        """The clock goes on, and whoever waits for it looks."""
        self.world.clock.pass_by(**span)
        self.world.dispatcher.wake()
        self.world.runner.look_again()

    async def runs(self, task: Task) -> Mapping[str, NodeRun]:
        return await self.world.store.graphs.runs(task.id)

    async def until_run(self, task: Task, path: str, *statuses: str) -> NodeRun:
        async with asyncio.timeout(60):
            while True:
                run = (await self.runs(task)).get(path)
                if run is not None and run.status in statuses:
                    return run
                await asyncio.sleep(0.005)

    async def told(self, task: Task, kind: EventKind) -> Sequence[str]:
        events = await self.world.foreman.events(task.id, 200)
        return [event.text for event in events if event.kind is kind]

    async def again(self, task: Task) -> Task:
        return await self.world.store.tasks.get(TaskId(task.id))


@asynccontextmanager
async def flows(
    home: Path, backend: Paced | None = None, *, clock: Clock | None = None, **how: Any
) -> AsyncGenerator[Flows, None]:
    worker = backend or Paced()
    clock = clock or Clock()

    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def named(_person: PersonId) -> str:
        return "Boss"

    async with engine(home, worker, clock=clock, **how) as world:
        decisions = Decisions(
            store=world.store,
            language_of=english,
            name_of=named,
            now=clock,
            grant=grant,
        )
        approvals = Approvals(world.db, now=clock, consequences=decisions.consequences)
        yield Flows(world=world, backend=worker, approvals=approvals)


def task(name: str, title: str = "", **facts: Any) -> Node:
    return Node(id=name, title=title or name, **facts)


def node(name: str, kind: NodeType, config: Config | None = None, **facts: Any) -> Node:
    return Node(id=name, title=name, type=kind, config=config, **facts)


def graph(*parts: Node | Edge | str, parallel: int = 1, **settings: Any) -> Workflow:
    """Its nodes, and edges like `a>b>c` or `a>b ? condition`."""
    nodes = tuple(part for part in parts if isinstance(part, Node))
    edges: list[Edge] = []
    for part in parts:
        if isinstance(part, Edge):
            edges.append(part)
        if isinstance(part, str):
            way, _, condition = part.partition("?")
            names = [name.strip() for name in way.split(">")]
            pairs = pairwise(names)
            edges += [Edge(source=a, target=b, condition=condition.strip()) for a, b in pairs]
    made = Workflow(plan="As drawn.", nodes=nodes, edges=tuple(edges), parallel=parallel)
    return validated(replace(made, **settings))


def two_branches(**settings: Any) -> Workflow:
    """`a1` and then `a2` beside `b1` and then `b2`, and `last` behind both."""
    return graph(
        node("fork", NodeType.PARALLEL),
        *(task(name) for name in ("a1", "a2", "b1", "b2")),
        node("both", NodeType.JOIN),
        task("last"),
        "fork>a1>a2>both>last",
        "fork>b1>b2>both",
        parallel=settings.pop("parallel", 2),
        **settings,
    )


def for_each(items: Sequence[str], *body: Node | str, **how: Any) -> Workflow:
    """One body after the other for these, and `last` behind them."""
    names = tuple(part.id for part in body if isinstance(part, Node))
    on_error = how.pop("on_error", OnError.FAIL)
    parallel = how.pop("parallel", 1)
    config = Foreach(collection="variables.items", body=names, **how)
    return graph(
        node("each", NodeType.FOREACH, config, on_error=on_error),
        *body,
        task("last"),
        "each>last",
        variables={"items": list(items)},
        parallel=parallel,
    )


def failing(summary: str = "no") -> StepAnswer:
    return StepAnswer(status="error", summary=summary)
