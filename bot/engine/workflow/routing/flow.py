"""One task's workflow under way: what goes on by itself, which steps are free, what it waits for.

All of it follows from the graph and the runs in the store. Whoever holds the task's lease stores
each run that is given back here, in the same transaction.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias, assert_never
from zoneinfo import ZoneInfo

from bot.engine.workflow.model.nodes import NodeType, OnError, OnLimit
from bot.engine.workflow.model.shape import Node, Workflow
from bot.engine.workflow.nodes.base import Ask, Done, Effect, Failed, Sight, Wait
from bot.engine.workflow.routing.bodies import Body
from bot.engine.workflow.routing.choice import chosen
from bot.engine.workflow.routing.frame import Frame
from bot.engine.workflow.routing.handlers import HANDLERS, ROUNDERS
from bot.engine.workflow.routing.layout import OUTERMOST, Layout
from bot.engine.workflow.routing.marks import EXHAUSTED, TOOK, brought, dead_end, is_over
from bot.engine.workflow.routing.paths import (
    VARIABLES,
    Place,
    asked_of,
    back,
    outer,
    place_of,
    scope_of,
)
from bot.engine.workflow.routing.scope import Outputs, States
from bot.engine.workflow.routing.stored import NOTHING, Stored
from storage.records.tasks import NodeRun, NodeStatus, TaskId

Say: TypeAlias = Callable[..., str]
"""A text of the catalogue, by its key and facts."""

_EVER = datetime.min.replace(tzinfo=UTC)
_Rows: TypeAlias = Sequence[NodeRun]


class Flow:
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
        self._aliases = {name.replace("-", "_"): name for name in self.layout.nodes}
        for run in sorted(runs.values(), key=_ended):
            self._remember(run)
        self._open(OUTERMOST, "", Stored(runs))
        for run in runs.values():
            self._answered(run)

    # What it says of itself

    @property
    def is_complete(self) -> bool:
        """Nothing is under way, and every end that can be reached has been; or, without an end,
        every node is settled."""
        if self.running:
            return False
        frame = self._frames[""]
        return self._at_end if frame.ring.ends else frame.is_complete and self.dead_end is None

    @property
    def dead_end(self) -> NodeRun | None:
        """A run behind which no edge could be taken, though there are some."""
        for frame in self._frames.values():
            for run in frame.exhausted.values():
                return run
        return next((run for run in self._latest.values() if run.output.get(TOOK) == []), None)

    @property
    def failed(self) -> NodeRun | None:
        """A run that failed for good, and that nothing around it makes up for."""
        frames = self._frames.items()
        lost = (frame for scope, frame in frames if frame.failed and not self._forgives(scope))
        return next((next(iter(frame.failed.values())) for frame in lost), None)

    @property
    def waits(self) -> bool:
        """Whether something in it waits for its time or a person, rather than for its rounds."""
        return any(self._is_held(run) for each in self._waiting.values() for run in each.values())

    @property
    def wakes_at(self) -> datetime | None:
        """When the first of those that wait for their time goes on."""
        all_waiting = (run for each in self._waiting.values() for run in each.values())
        return min((run.wake_at for run in all_waiting if run.wake_at is not None), default=None)

    @property
    def is_busy(self) -> bool:
        """Whether there is more that goes on by itself."""
        return bool(self._busy)

    @property
    def began_at(self) -> datetime | None:
        """When its first node began."""
        times = (run.started_at for run in self._runs.values() if place_of(run.path))
        return min((time for time in times if time is not None), default=None)

    def makes_up(self, path: str) -> bool:
        """Whether the workflow goes on though that step has failed for good."""
        place = place_of(path)
        if place is None or place.node not in self.layout.nodes:
            return False
        own = self.layout.nodes[place.node].on_error is not OnError.FAIL
        return own or self._forgives(place.scope)

    def may_wait(self, path: str) -> bool:
        """Whether a step of that path can be waiting for a person."""
        place, frame = place_of(path), self._frames.get(scope_of(path))
        if place is None:
            return asked_of(path) is not None
        return frame is not None and not is_over(frame.runs.get(place.node))

    def waiting_at(self, scope: str) -> Mapping[str, NodeRun]:
        return self._waiting[scope]

    def run_at(self, place: Place, status: NodeStatus, now: datetime) -> NodeRun:
        """A run as it would be stored there."""
        return self._made(place, status, now, {})

    def seen(self, scope: str) -> Mapping[str, NodeRun]:
        """By node, the run that counts for who is in that scope."""
        frames, _ = self._around(scope)
        seen: dict[str, NodeRun] = {}
        for frame in reversed(frames):
            seen.update({**frame.past, **frame.runs})
        return seen

    def why_stuck(self) -> str:
        """Why nothing can go on, in words for the Boss."""
        run = self.dead_end
        if run is None:
            return self._say("workflow.stuck")
        key = "workflow.edge_limit" if EXHAUSTED in run.output else "workflow.dead_end"
        return self._say(key, name=self.node(run.path).title)

    def node(self, path: str) -> Node:
        """The node whose activation this is."""
        place = place_of(path)
        assert place is not None
        return self.layout.nodes[place.node]

    def steps(self) -> Iterator[tuple[Place, Node]]:
        """Steps that may start now, and those asked about, which may have been decided: in the
        order of the plan and of the rounds. None once an end has been reached."""
        if self._at_end:
            return
        for scope, frame in tuple(self._frames.items()):
            yield from self._questions(scope, frame)
            for path in tuple(self._waiting[scope]):
                if self.node(path).type == NodeType.HUMAN and (place := place_of(path)):
                    yield place, self.node(path)
            for name in frame.free_steps():
                yield frame.place(name), frame.ring.nodes[name]

    def sight(self, scope: str, now: datetime) -> Sight:
        """What expressions and templates in that scope may speak of."""
        frames, own = self._around(scope)
        names = {
            "outputs": Outputs(frames, self._latest, self._aliases),
            "variables": self._variables,
            "inputs": {**_defaults(self.workflow), **self.workflow.values},
            "nodeStates": States(frames),
            "loopCount": sum(frames[0].times.values()),
            **own,
        }
        return Sight(now=now, zone=self.zone, names=names, warn=self._warn)

    # What moves it

    def note(self, run: NodeRun) -> None:
        """What was stored of a node."""
        self._runs[run.path] = run
        self._remember(run)
        self._track(run)
        self._answered(run)

    def ended(self, run: NodeRun, now: datetime) -> NodeRun:
        """The run as it is to be stored: with the edges that were taken behind it, and, if it has
        failed for good, with what its node says about that."""
        place, frame = place_of(run.path), self._frames.get(scope_of(run.path))
        if place is None or frame is None or place.node not in frame.ring.nodes:
            return run
        run = _as_told(run, frame.ring.nodes[place.node])
        if not is_over(run):
            return run
        noted = chosen(frame, place.node, self._after(run, now))
        return replace(run, output={**run.output, **noted})

    def settle(self, now: datetime, most: int) -> _Rows:
        """Go on with all that costs nothing, until about so many runs were made: each is noted
        here and has to be stored. With none left only steps and time can move it."""
        rows: dict[str, NodeRun] = {}
        self._busy.update(dict.fromkeys(self._frames))
        while self._busy and len(rows) < most:
            scope = next(iter(self._busy))
            made = self._move(scope, now)
            if made is None:
                self._busy.pop(scope, None)
            else:
                rows.update({row.path: row for row in made})
        return tuple(rows.values())

    # Inside: each move gives the runs it has made, None for rest.

    @property
    def _at_end(self) -> bool:
        frame = self._frames[""]
        ends = [frame.runs.get(end) for end in frame.ring.ends]
        return any(map(_is_done, ends)) and all(map(is_over, ends))

    def _questions(self, scope: str, frame: Frame) -> Iterator[tuple[Place, Node]]:
        """Whether to go on behind loops that have used up their rounds."""
        yield from self._asks[scope].values()
        for name, run in frame.exhausted.items():
            edge = frame.ring.back[run.output[EXHAUSTED]]
            if edge.on_limit is OnLimit.ASK:
                title = frame.ring.nodes[name].title
                facts = {"name": title, "n": edge.max_loops}
                yield self._question(frame.place(name), "workflow.ask_limit", facts)

    def _question(self, place: Place, key: str, facts: Mapping[str, object]) -> tuple[Place, Node]:
        asked = Place("", place.asked)
        return asked, Node(id=asked.node, title=self._say(key, **facts), type=NodeType.HUMAN)

    def _move(self, scope: str, now: datetime) -> _Rows | None:
        frame = self._frames.get(scope)
        if frame is None:
            return None
        if (dead := frame.next_dead()) is not None:
            run = self._made(frame.place(dead), NodeStatus.SKIPPED, now, dead_end())
            return self._kept(run)
        if self._let_go:
            return self._kept(self._let_go.pop())
        if (edge := frame.next_return()) is not None:
            frame.go_back(edge)
            path = back(scope, edge.name)
            times = {"times": frame.times[edge.name]}
            return self._kept(self._beside(path, times, now))
        if (name := frame.next_free()) is not None:
            return self._enter(frame.place(name), frame.ring.nodes[name], now)
        return self._due(scope, now) or self._turn(scope, now) or self._close(scope, frame)

    def _enter(self, place: Place, node: Node, now: datetime) -> _Rows:
        effect = HANDLERS[NodeType(node.type)].enter(node, self.sight(place.scope, now))
        return self._carry_out(place, node, effect, now)

    def _due(self, scope: str, now: datetime) -> _Rows | None:
        """Something whose time has come."""
        for path, run in self._waiting[scope].items():
            if run.wake_at is not None and run.wake_at <= now and (place := place_of(path)):
                node = self.node(path)
                effect = HANDLERS[NodeType(node.type)].wake(node, self.sight(scope, now))
                return self._carry_out(place, node, effect, now)
        return None

    def _turn(self, scope: str, now: datetime) -> _Rows | None:
        """Open a round of a body in this scope, or finish with it."""
        for body in self._bodies[scope].values():
            seen = self.sight(scope, now)
            seen = replace(seen, names={**seen.names, "loopCount": body.opened})
            effect = ROUNDERS[NodeType(body.node.type)].more(body.node, body.rounds, seen)
            match effect:
                case Wait():
                    self._open_round(body, NOTHING)
                    return ()
                case Ask(key=key, facts=facts):
                    question = self._question(body.place, key, facts)
                    self._asks[scope][body.place.path] = question
                case Done() | Failed():
                    self._asks[scope].pop(body.place.path, None)
                    return self._carry_out(body.place, body.node, effect, now)
                case None:
                    pass
                case never:
                    assert_never(never)
        return None

    def _close(self, scope: str, frame: Frame) -> _Rows | None:
        """A round that is over, or has failed where that does not matter, is handed in."""
        above = outer(scope)
        lost = frame.failed and frame.is_still and self._forgives(scope)
        if above is None or not (frame.is_complete or lost):
            return None
        path, n = above
        body = self._bodies[scope_of(path)].get(path)
        if body is not None:
            body.close(n, frame)
        del self._frames[scope]
        self._busy[scope_of(path)] = None
        return ()

    def _carry_out(self, place: Place, node: Node, effect: Effect, now: datetime) -> _Rows:
        match effect:
            case Wait(until=until, output=output, of=of):
                run = self._made(place, NodeStatus.WAITING, now, output)
                if of is None:
                    return self._kept(replace(run, wake_at=until))
                return self._kept(self._beside(place.of, of, now), run)
            case Failed(key=key, facts=facts):
                failed = self._made(place, NodeStatus.FAILED, now, {})
                return self._kept(self.ended(replace(failed, error=self._say(key, **facts)), now))
            case Done(output=output, variables=variables, to=to):
                done = self._made(place, NodeStatus.DONE, now, output)
                noted = chosen(self._frames[place.scope], place.node, self._after(done, now), to=to)
                done = replace(done, output={**output, **noted})
                if not variables:
                    return self._kept(done)
                known = {**self._variables, **variables}
                return self._kept(done, self._beside(VARIABLES, known, now))

    def _kept(self, *runs: NodeRun) -> _Rows:
        for run in runs:
            self.note(run)
        return runs

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
        held = self._frames[scope].exhausted.get(place.node) if place else None
        if held is not None:
            output = {key: value for key, value in held.output.items() if key != EXHAUSTED}
            self._let_go.append(replace(held, output=output))
        self._busy[scope] = None

    def _begin_body(self, place: Place, node: Node) -> None:
        of = self._runs.get(place.of)
        if node.body and of is not None:
            body = Body(node, place, of.output, let_go=_is_done(self._runs.get(place.asked)))
            self._bodies[place.scope][place.path] = body

    def _open(self, ring: str, scope: str, stored: Stored) -> Frame:
        """A frame as the store knows it, with all that is under way inside."""
        frame = Frame(self.layout.rings[ring], scope, stored.times(scope))
        self._frames[scope] = frame
        for name in frame.ring.nodes:
            frame.past.update(stored.past(frame.place(name)))
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

    def _after(self, run: NodeRun, now: datetime) -> Sight:
        """What the edges behind it may speak of: what it has brought, too."""
        seen = self.sight(scope_of(run.path), now)
        own = {self.node(run.path).id: brought(run)}
        outputs = ChainMap(own, seen.names["outputs"])
        return replace(seen, names={**seen.names, "outputs": outputs})

    def _forgives(self, scope: str) -> bool:
        """Whether something around this scope makes up for what fails in it."""
        while (above := outer(scope)) is not None:
            body = self._bodies[scope_of(above[0])].get(above[0])
            if body is not None and body.forgives:
                return True
            scope = scope_of(above[0])
        return False

    def _is_held(self, run: NodeRun) -> bool:
        return not self.node(run.path).body

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

    def _beside(self, path: str, output: Mapping[str, Any], now: datetime) -> NodeRun:
        """What is kept beside the nodes."""
        place = Place("", path)
        return replace(self._made(place, NodeStatus.DONE, now, output), path=path)


def _is_done(run: NodeRun | None) -> bool:
    return run is not None and run.status is NodeStatus.DONE


def _ended(run: NodeRun) -> datetime:
    return run.ended_at or _EVER


def _as_told(run: NodeRun, node: Node) -> NodeRun:
    """What the node says about failing for good."""
    if run.status is not NodeStatus.FAILED or node.on_error is OnError.FAIL:
        return run
    skips = node.on_error is OnError.SKIP
    status = NodeStatus.SKIPPED if skips else NodeStatus.DONE
    return replace(run, status=status, output={**run.output, "error": run.error})


def _defaults(workflow: Workflow) -> Mapping[str, Any]:
    return {each.name: each.default for each in workflow.inputs}
