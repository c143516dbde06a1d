"""A workflow under way as lines: steps, choices, loops with the rounds that run now."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from bot.engine.workflow.model.layout import OUTERMOST, Layout, Ring
from bot.engine.workflow.model.nodes import Foreach, Human, Loop, NodeType, OnError
from bot.engine.workflow.model.shape import Node, Workflow
from bot.engine.workflow.routing.marks import is_dead, is_over, took
from bot.engine.workflow.routing.paths import Place, asked_of
from bot.engine.workflow.shown.branches import Slot, slots
from bot.engine.workflow.shown.states import Now
from bot.engine.workflow.shown.titles import Titles
from storage.records.tasks import NodeRun, NodeStatus, Rounds, Step

COUNTED = {NodeType.TASK, NodeType.HUMAN, NodeType.DELAY, NodeType.SCHEDULE}
"""What is a step to people. The rest only holds these together."""

_CHOICES = {NodeType.CONDITION, NodeType.SWITCH}
_MOST_ROUNDS = 3
_MOST_WAYS = 3
_UNDER_WAY = {NodeStatus.RUNNING, NodeStatus.WAITING}
_PENDING = NodeStatus.PENDING


Left: TypeAlias = tuple[Node, NodeRun | None, int]
"""A step still to be done, with what there is of it, and how often."""


@dataclass(frozen=True, slots=True)
class Count:
    done: int = 0
    total: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.done + other.done, self.total + other.total)


class Plan:
    """What of a workflow is the same however far it is."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.layout = Layout(workflow)
        self._slots: dict[str, tuple[Slot, ...]] = {}
        self._sizes: dict[str, int] = {}

    def slots(self, ring: str) -> tuple[Slot, ...]:
        if ring not in self._slots:
            self._slots[ring] = slots(self.layout.rings[ring])
        return self._slots[ring]

    def size(self, ring: str) -> int:
        """Steps in one round of it."""
        if ring not in self._sizes:
            nodes = self.layout.rings[ring].nodes.values()
            sizes = (self.size(n.id) if n.body else int(n.type in COUNTED) for n in nodes)
            self._sizes[ring] = sum(sizes)
        return self._sizes[ring]


class Outline:
    """`asked` are the names of those who are asked about a step, by its path."""

    def __init__(
        self,
        plan: Plan | Workflow,
        runs: Mapping[str, NodeRun],
        asked: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._plan = plan if isinstance(plan, Plan) else Plan(plan)
        self.layout = self._plan.layout
        self.runs = runs
        self._now = Now(self.layout, runs)
        self._titles = Titles(self.layout, runs)
        self._asked = {asked_of(path) or path: names for path, names in (asked or {}).items()}
        self._overs: dict[str, bool] = {}

    def lines(self) -> Iterator[Step]:
        """What a card may show, from the first to the last."""
        return _folded(self._lines(OUTERMOST, "", 0))

    def steps(self) -> Iterator[Step]:
        """Every step as often as it was or is to be done, in the order they are written in."""
        return self._steps(OUTERMOST, "")

    @cached_property
    def counted(self) -> Count:
        """Rounds still to come count where it is known how many they are; else the next."""
        return self._count(OUTERMOST, "")

    def left(self) -> Iterator[Left]:
        """What is still to be done."""
        return self._left(OUTERMOST, "", 1)

    def _lines(self, ring: str, scope: str, depth: int) -> Iterator[Step]:
        branch: str | None = None
        for slot in self._plan.slots(ring):
            branch = slot.branch if slot.branch is not None else branch
            node, place = self.layout.nodes[slot.node], self._now.place(scope, slot.node)
            run = self._now.at(place)
            if not _is_shown(node, run):
                continue
            way = self._way(ring, scope, node, run)
            line = self._step(node, place, depth=depth + slot.depth, branch=branch, way=way)
            branch = None
            yield line
            if node.body and not is_over(run):
                for n in self._shown_rounds(node, place, run):
                    yield from self._lines(node.id, place.inside(n), line.depth + 1)

    def _steps(self, ring: str, scope: str) -> Iterator[Step]:
        for name, node in self.layout.rings[ring].nodes.items():
            for n in range(1, self._now.place(scope, name).round + 1):
                place = Place(scope, name, n)
                run = self._now.at(place)
                if node.type in COUNTED or (run is not None and run.error and not node.body):
                    yield self._step(node, place)
                opened = self._now.stored.opened(place.path)
                for each in range(opened if is_over(run) else max(1, opened)) if node.body else ():
                    yield from self._steps(node.id, place.inside(each))

    def _step(
        self,
        node: Node,
        place: Place,
        *,
        depth: int = 0,
        branch: str | None = None,
        way: tuple[str, ...] = (),
    ) -> Step:
        run = self._now.at(place)
        rounds = self._rounds(node, place, run) if node.body else None
        asks = self._asked.get(place.path)
        step = Step(
            path=place.path,
            title=self._titles.of(place.scope, place.node),
            status=_status(node, run, asked=asks is not None),
            persona=node.persona,
            kind=node.type,
            depth=depth,
            branch=branch,
            way=way,
            round=1 + sum(self._was_done(place, n) for n in range(1, place.round)),
            rounds=rounds,
            asked=asks is not None,
            waits_for=_who(node, asks) if asks is not None else (),
        )
        return step if run is None else _with(step, run)

    def _was_done(self, place: Place, n: int) -> bool:
        """Whether something came of it that time."""
        run = self.runs.get(replace(place, round=n).path)
        return run is not None and not is_dead(run)

    def _rounds(self, node: Node, place: Place, run: NodeRun | None) -> Rounds:
        opened = self._now.stored.opened(place.path)
        total = self._total(node, place)
        if run is not None and run.status is NodeStatus.DONE:
            done = opened if total is None else total
            lost = sum(self._lost(node.id, place.inside(n)) for n in range(opened))
            return Rounds(done=done, failed=lost, at=opened, total=total or opened)
        over = [n for n in range(opened) if self._is_over(node, place.inside(n))]
        lost = sum(self._lost(node.id, place.inside(n)) for n in over)
        most = node.config.max_iterations if isinstance(node.config, Loop) else None
        return Rounds(done=len(over), failed=lost, at=opened, total=total, most=most)

    def _total(self, node: Node, place: Place) -> int | None:
        """How many rounds there are in all, where that is known before the last."""
        of = self.runs.get(place.of)
        if of is None:
            return None
        match node.config:
            case Foreach():
                return len(of.output.get("items", ()))
            case Loop(mode="for", max_iterations=most):
                start, end, stride = (float(of.output[name]) for name in ("init", "end", "step"))
                return min(most, max(0, math.floor((end - start) / stride) + 1))
            case _:
                return None

    def _shown_rounds(self, node: Node, place: Place, run: NodeRun | None) -> list[int]:
        """Those under way; before the first, what a round will be."""
        opened = self._now.stored.opened(place.path)
        if run is None or not opened:
            return [0]
        if isinstance(node.config, Foreach) and node.config.mode == "parallel":
            going = [n for n in range(opened) if not self._is_over(node, place.inside(n))]
            return going[:_MOST_ROUNDS]
        return [opened - 1]

    def _is_over(self, node: Node, scope: str) -> bool:
        """Whether a round is: all is settled, or something failed and that does not matter."""
        if scope not in self._overs:
            names = self.layout.rings[node.id].nodes
            forgiven = node.on_error is not OnError.FAIL and self._lost(node.id, scope)
            settled = all(is_over(self._now.run(scope, name)) for name in names)
            self._overs[scope] = forgiven or settled
        return self._overs[scope]

    def _lost(self, ring: str, scope: str) -> bool:
        runs = (self._now.run(scope, name) for name in self.layout.rings[ring].nodes)
        return any(run is not None and run.status is NodeStatus.FAILED for run in runs)

    def _way(self, ring: str, scope: str, node: Node, run: NodeRun | None) -> tuple[str, ...]:
        """What was gone on with, where there was a choice."""
        chosen = took(run) if run is not None and run.status is NodeStatus.DONE else None
        if not chosen or not self._chooses(self.layout.rings[ring], node):
            return ()
        known = self.layout.rings[ring]
        edges = (*known.back_out.get(node.id, ()), *known.out.get(node.id, ()))
        to = dict.fromkeys(edge.target for edge in edges if edge.name in chosen)
        return tuple(self._titles.of(scope, target) for target in to)[:_MOST_WAYS]

    def _chooses(self, ring: Ring, node: Node) -> bool:
        if node.type in _CHOICES:
            return True
        return len(ring.out.get(node.id, ())) + len(ring.back_out.get(node.id, ())) > 1

    def _count(self, ring: str, scope: str) -> Count:
        count = Count()
        for name, node in self.layout.rings[ring].nodes.items():
            now = self._now.place(scope, name)
            for n in range(1, now.round + 1):
                place = Place(scope, name, n)
                count += self._count_one(node, place, before=n < now.round)
        return count

    def _count_one(self, node: Node, place: Place, *, before: bool) -> Count:
        """A time before this one counts by what was done in it."""
        run = self._now.at(place)
        if node.type in COUNTED:
            if before and run is not None and is_dead(run):
                return Count()
            settled = is_over(run)
            return Count(int(settled), int(settled or not before))
        if not node.body:
            return Count()
        size = self._plan.size(node.id)
        if run is not None and run.status is NodeStatus.SKIPPED:
            return Count() if before else Count(size, size)
        opened = self._now.stored.opened(place.path)
        count = sum((self._round(node, place.inside(n)) for n in range(opened)), Count())
        if before or is_over(run):
            return Count(count.total, count.total)
        total = self._total(node, place)
        ahead = (0 if opened else 1) if total is None else max(0, total - opened)
        return count + Count(0, ahead * size)

    def _round(self, node: Node, scope: str) -> Count:
        count = self._count(node.id, scope)
        return Count(count.total, count.total) if self._is_over(node, scope) else count

    def _left(self, ring: str, scope: str, times: int) -> Iterator[Left]:
        for name, node in self.layout.rings[ring].nodes.items():
            place = self._now.place(scope, name)
            run = self._now.at(place)
            if is_over(run):
                continue
            if node.type in COUNTED:
                yield node, run, times
            elif node.body:
                yield from self._left_inside(node, place, times)

    def _left_inside(self, node: Node, place: Place, times: int) -> Iterator[Left]:
        opened = self._now.stored.opened(place.path)
        for n in range(opened):
            if not self._is_over(node, place.inside(n)):
                yield from self._left(node.id, place.inside(n), times)
        total = self._total(node, place)
        ahead = (0 if opened else 1) if total is None else max(0, total - opened)
        if ahead:
            yield from self._left(node.id, place.inside(opened), times * ahead)


def _is_shown(node: Node, run: NodeRun | None) -> bool:
    if node.type in COUNTED or node.body:
        return True
    if run is not None and run.error:
        return True
    return node.type in _CHOICES and not (run is not None and run.status is NodeStatus.SKIPPED)


def _status(node: Node, run: NodeRun | None, *, asked: bool) -> NodeStatus:
    status = run.status if run is not None else _PENDING
    if status is NodeStatus.WAITING and node.body:
        # What runs its rounds waits for them in the store only.
        status = NodeStatus.RUNNING
    return NodeStatus.WAITING if asked and not status.is_settled else status


def _who(node: Node, asked: tuple[str, ...]) -> tuple[str, ...]:
    # Who is asked may be others, where nobody has that name.
    return asked or (node.config.assignee if isinstance(node.config, Human) else ())


def _with(step: Step, run: NodeRun) -> Step:
    return replace(
        step,
        summary=str(run.output.get("summary", "")),
        # Of an earlier try nothing is left to say once it is over.
        error=run.error if not is_over(run) or "error" in run.output else "",
        files=tuple(run.output.get("files", ())),
        left_out=tuple(run.output.get("left_out", ())),
        started_at=run.started_at,
        ended_at=run.ended_at,
        until=run.wake_at if run.status is NodeStatus.WAITING else None,
    )


def _folded(lines: Iterator[Step]) -> Iterator[Step]:
    """Steps of a branch that nothing came to are one line."""
    last: Step | None = None
    for line in lines:
        if last is not None and _goes_with(line, last):
            last = replace(last, folded=last.folded + 1)
            continue
        if last is not None:
            yield last
        last = line
    if last is not None:
        yield last


def _goes_with(line: Step, last: Step) -> bool:
    both = line.status is last.status is NodeStatus.SKIPPED
    return both and not line.error and not last.error and line.branch is None
