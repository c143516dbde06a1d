"""Where one task's workflow stands, and what expressions see from each place of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from bot.engine.workflow.expressions.language import NOW
from bot.engine.workflow.model.layout import OUTERMOST, Layout
from bot.engine.workflow.model.nodes import NodeType, OnError
from bot.engine.workflow.model.shape import Node, Workflow, asks_people
from bot.engine.workflow.nodes.base import Sight
from bot.engine.workflow.routing.bodies import Body
from bot.engine.workflow.routing.frame import Frame
from bot.engine.workflow.routing.handlers import ROUNDERS
from bot.engine.workflow.routing.marks import EXHAUSTED, UNFINISHED, brought, is_done, is_over
from bot.engine.workflow.routing.paths import (
    LATE,
    VARIABLES,
    Place,
    asked_of,
    outer,
    place_of,
    scope_of,
)
from bot.engine.workflow.routing.scope import Outputs, States
from bot.engine.workflow.routing.stored import Stored
from storage.records.tasks import NodeRun, NodeStatus, TaskId

Say: TypeAlias = Callable[..., str]
"""A text of the catalogue, by its key and facts."""

_EVER = datetime.min.replace(tzinfo=UTC)


class Track:
    """`say` words what goes wrong; `warn` is told of names in expressions that nobody knows."""

    def __init__(
        self,
        task: TaskId,
        workflow: Workflow,
        runs: Mapping[str, NodeRun],
        *,
        zone: ZoneInfo,
        say: Say,
        warn: Callable[[str], None],
    ) -> None:
        self.task = task
        self.workflow = workflow
        self.layout = Layout(workflow)
        self.asks_people = asks_people(workflow)
        self.running: set[str] = set()
        self.zone, self._say, self._warn = zone, say, warn
        self._runs: dict[str, NodeRun] = dict(runs)
        self._frames: dict[str, Frame] = {}
        self._bodies: dict[str, dict[str, Body]] = defaultdict(dict)
        self._waiting: dict[str, dict[str, NodeRun]] = defaultdict(dict)
        self._latest: dict[str, NodeRun] = {}
        self._asks: dict[str, dict[str, tuple[Place, Node]]] = defaultdict(dict)
        self._let_go: list[NodeRun] = []
        self._busy: dict[str, None] = {}
        plain = {name.replace("-", "_"): name for name in self.layout.nodes}
        self._aliases = {
            alias: name for alias, name in plain.items() if alias not in self.layout.nodes
        }
        for run in sorted(runs.values(), key=_ended):
            self._remember(run)
        self._open(OUTERMOST, "", Stored(runs))
        for run in runs.values():
            self._answered(run)

    def node(self, path: str) -> Node:
        """The node whose activation this is."""
        place = place_of(path)
        assert place is not None
        return self.layout.nodes[place.node]

    def waiting_at(self, scope: str) -> Mapping[str, NodeRun]:
        return self._waiting[scope]

    def may_wait(self, path: str) -> bool:
        """Whether a step of that path can be waiting for a person."""
        place, frame = place_of(path), self._frames.get(scope_of(path))
        if place is None:
            return asked_of(path) is not None
        return frame is not None and not is_over(frame.runs.get(place.node))

    def makes_up(self, path: str) -> bool:
        """Whether the workflow goes on though that step has failed for good."""
        place = place_of(path)
        if place is None or place.node not in self.layout.nodes:
            return False
        own = self.layout.nodes[place.node].on_error is not OnError.FAIL
        return own or self._forgives(place.scope)

    def began_at(self, taken_up: datetime | None) -> datetime | None:
        """When its first node began since it ran out of time; where that has not happened and no
        node has begun, when its task was first taken up."""
        late = self._runs.get(LATE)
        since = _EVER if late is None or late.ended_at is None else late.ended_at
        times = (run.started_at for run in self._runs.values() if place_of(run.path))
        begun = (time for time in times if time is not None and time > since)
        return min(begun, default=taken_up if late is None else None)

    def timed_out(self, now: datetime) -> NodeRun:
        """What is kept of its having run out of time."""
        return replace(self._made(Place("", LATE), NodeStatus.DONE, now, {}), path=LATE)

    def is_asked(self, run: NodeRun) -> bool:
        """Whether it is a person's step that does not wait for one any more."""
        place = place_of(run.path)
        node = None if place is None else self.layout.nodes.get(place.node)
        over = is_over(run) or run.status is NodeStatus.FAILED
        return node is not None and node.type == NodeType.HUMAN and over

    def note(self, run: NodeRun) -> None:
        """What was stored of a node."""
        before = self._runs.get(run.path)
        self._runs[run.path] = run
        self._remember(run)
        self._track(run)
        if before is not None and before.status is NodeStatus.PENDING:
            self._take_up(run)
        self._answered(run)

    def sight(self, scope: str, now: datetime) -> Sight:
        """What expressions and templates in that scope may speak of."""
        frames, own = self._around(scope)
        names = {
            "outputs": Outputs(frames, self._latest, self._aliases),
            "variables": self._variables,
            "inputs": {**_defaults(self.workflow), **self.workflow.values},
            "nodeStates": States(frames, self._aliases),
            NOW: int(now.timestamp() * 1_000),
            "loopCount": sum(frames[0].times.values()),
            **own,
        }
        return Sight(now=now, zone=self.zone, names=names, warn=self._warn)

    def so_far(self, now: datetime) -> Sequence[NodeRun]:
        """For each node of the outermost level whose rounds are under way, a run that is done with
        what those that are over have brought, and what was finished in the others."""
        told = [(body, self._told(body)) for body in self._bodies[OUTERMOST].values()]
        return [
            self._made(Place("", body.node.id), NodeStatus.DONE, now, came)
            for body, came in told
            if body.brought or UNFINISHED in came
        ]

    def newest(self) -> Sequence[NodeRun]:
        """For each node of the outermost level that was come back to, or behind which an edge was
        used up, its first run with what it has brought last: what a plan without those edges goes
        by."""
        frame = self._frames[OUTERMOST]
        made = []
        for name in frame.ring.nodes:
            first, last = self._runs.get(name), frame.last(name)
            if first is None or last is None:
                continue
            output = {key: value for key, value in last.output.items() if key != EXHAUSTED}
            if last.path != first.path or output != last.output:
                made.append(replace(last, path=name, attempt=first.attempt, output=output))
        return made

    def _told(self, body: Body) -> Mapping[str, Any]:
        begun = (n for n in range(body.opened) if n not in body.brought)
        came = {n: self._came(body.place.inside(n)) for n in begun}
        left = [{"round": n + 1, "outputs": each} for n, each in came.items() if each]
        return {**body.so_far, UNFINISHED: body.cut(left)} if left else body.so_far

    def _came(self, scope: str) -> Mapping[str, Any]:
        """By node, what a round that is under way has brought so far."""
        frame = self._frames.get(scope)
        if frame is None:
            return {}
        last = {name: frame.last(name) for name in frame.ring.nodes}
        came = {name: dict(brought(run)) for name, run in last.items() if run and is_done(run)}
        for body in self._bodies[scope].values():
            came[body.node.id] = dict(self._told(body))
        return {name: each for name, each in came.items() if each}

    def seen(self, scope: str) -> Mapping[str, NodeRun]:
        """By node, the run that counts for who is in that scope."""
        frames, _ = self._around(scope)
        seen: dict[str, NodeRun] = {}
        for frame in reversed(frames):
            seen.update({**frame.past, **frame.runs})
        return seen

    def run_at(self, place: Place, status: NodeStatus, now: datetime) -> NodeRun:
        """A run as it would be stored there."""
        return self._made(place, status, now, {})

    def _track(self, run: NodeRun) -> None:
        scope, place = scope_of(run.path), place_of(run.path)
        frame = self._frames.get(scope)
        if frame is None or place is None or place.node not in frame.ring.nodes:
            return
        if frame.place(place.node) != place:
            return
        self.running.discard(run.path)
        self._waiting[scope].pop(run.path, None)
        self._bodies[scope].pop(run.path, None)
        if run.status is NodeStatus.RUNNING:
            self.running.add(run.path)
        elif run.status is NodeStatus.WAITING:
            self._waiting[scope][run.path] = run
            self._begin_body(place, frame.ring.nodes[place.node])
        frame.note(place.node, run)
        self._busy[scope] = None

    def _answered(self, run: NodeRun) -> None:
        """A person lets it go on behind a loop that has used up its rounds."""
        path = asked_of(run.path)
        if path is None or run.status is not NodeStatus.DONE:
            return
        scope, place = scope_of(path), place_of(path)
        body = self._bodies[scope].get(path)
        if body is not None:
            body.let_go = True
        frame = self._frames.get(scope)
        held = frame.exhausted.get(place.node) if frame is not None and place is not None else None
        if held is not None and held.path == path:
            output = {key: value for key, value in held.output.items() if key != EXHAUSTED}
            self._let_go.append(replace(held, output=output))
        self._busy[scope] = None

    def _begin_body(self, place: Place, node: Node) -> None:
        of = self._runs.get(place.of)
        if node.body and of is not None:
            body = Body(node, place, of.output, let_go=is_done(self._runs.get(place.asked)))
            self._bodies[place.scope][place.path] = body

    def _take_up(self, run: NodeRun) -> None:
        """A loop that is tried again keeps the rounds that it has had."""
        scope = scope_of(run.path)
        body = self._bodies[scope].get(run.path)
        if body is not None and run.status is NodeStatus.WAITING and not body.opened:
            stored = Stored(self._runs)
            for _ in range(stored.opened(run.path)):
                self._open_round(body, stored)

    def _open(self, ring: str, scope: str, stored: Stored) -> Frame:
        """A frame as the store knows it, with all that is under way inside."""
        frame = Frame(self.layout.rings[ring], scope, stored.times(scope))
        self._frames[scope] = frame
        for name in frame.ring.nodes:
            frame.past.update(stored.past(frame.place(name)))
            if frame.ring.counted:
                for earlier in stored.earlier(frame.place(name)):
                    frame.count(earlier)
            run = stored.runs.get(frame.place(name).path)
            if run is not None:
                self._track(run)
        for body in tuple(self._bodies[scope].values()):
            for _ in range(stored.opened(body.place.path)):
                self._open_round(body, stored)
        return frame

    def _open_round(self, body: Body, stored: Stored) -> None:
        scope = body.place.inside(body.opened)
        body.opened += 1
        self._open(body.node.id, scope, stored)
        self._busy[scope] = None

    def _around(self, scope: str) -> tuple[Sequence[Frame], Mapping[str, Any]]:
        """The frames from the inside out, and the names that their rounds have given."""
        frames: list[Frame] = []
        names: dict[str, Any] = {}
        while (above := outer(scope)) is not None:
            frames.append(self._frames[scope])
            path, n = above
            body = self._bodies[scope_of(path)][path]
            own = ROUNDERS[NodeType(body.node.type)].names(body.node, body.of, n)
            names = {**own, **names}
            scope = scope_of(path)
        return [*frames, self._frames[scope]], names

    def _forgives(self, scope: str) -> bool:
        """Whether something around this scope makes up for what fails in it."""
        while (above := outer(scope)) is not None:
            body = self._bodies[scope_of(above[0])].get(above[0])
            if body is not None and body.forgives:
                return True
            scope = scope_of(above[0])
        return False

    def _remember(self, run: NodeRun) -> None:
        place = place_of(run.path)
        if place is not None and is_over(run) and place.node in self.layout.nodes:
            self._latest.pop(place.node, None)
            self._latest[place.node] = run

    @property
    def _variables(self) -> Mapping[str, Any]:
        kept = self._runs.get(VARIABLES)
        return {**self.workflow.variables, **(kept.output if kept else {})}

    def _made(
        self, place: Place, status: NodeStatus, now: datetime, output: Mapping[str, Any]
    ) -> NodeRun:
        before = self._runs.get(place.path)
        return NodeRun(
            task_id=self.task,
            path=place.path,
            status=status,
            attempt=before.attempt if before else 1,
            output=output,
            error="",
            started_at=(before.started_at if before else None) or now,
            ended_at=None if status is NodeStatus.WAITING else now,
        )


def _ended(run: NodeRun) -> datetime:
    return run.ended_at or _EVER


def _defaults(workflow: Workflow) -> Mapping[str, Any]:
    return {each.name: each.default for each in workflow.inputs}
