"""One task's workflow under way: what goes on by itself, which steps are free, what it waits for.

All of it follows from the graph and the runs in the store. Whoever holds the task's lease stores
each run that is given back here, in the same transaction.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias, assert_never

from bot.engine.workflow.model.nodes import NodeType, OnError, OnLimit
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Ask, Done, Effect, Failed, Sight, Wait
from bot.engine.workflow.routing.bodies import Body
from bot.engine.workflow.routing.choice import chosen
from bot.engine.workflow.routing.frame import Frame
from bot.engine.workflow.routing.handlers import HANDLERS, ROUNDERS
from bot.engine.workflow.routing.lanes import Lanes
from bot.engine.workflow.routing.marks import EXHAUSTED, brought, dead_end, is_done, is_over
from bot.engine.workflow.routing.paths import (
    VARIABLES,
    Place,
    back,
    outer,
    place_of,
    scope_of,
)
from bot.engine.workflow.routing.stored import NOTHING
from bot.engine.workflow.routing.track import Track
from storage.records.tasks import NodeRun, NodeStatus

_Rows: TypeAlias = Sequence[NodeRun]


class Flow(Track):
    """Made from the graph and the runs; kept up with `note`, or made anew after a death, it is the
    same."""

    @cached_property
    def lanes(self) -> Lanes:
        """Which steps share a session, worked out once."""
        return Lanes(self.layout)

    @property
    def is_complete(self) -> bool:
        """Nothing is under way, and every end that can be reached has been; or, without an end,
        every node is settled."""
        if self.running:
            return False
        frame = self._frames[""]
        return self._at_end if frame.ring.ends else frame.is_complete

    @property
    def dead_end(self) -> NodeRun | None:
        """A run behind which no edge could be taken, though there are some; or behind which
        nothing leads to an end, where none can be reached."""
        for _, frame in sorted(self._frames.items()):
            if (run := _halt(frame)) is not None:
                return run
        frame = self._frames[""]
        is_past = frame.ring.ends and all(is_over(frame.runs.get(end)) for end in frame.ring.ends)
        return frame.last_done() if is_past and not self._at_end else None

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
        return bool(self._busy) and not self._is_over

    def why_stuck(self) -> str:
        """Why nothing can go on, in words for the Boss."""
        run = self.dead_end
        return self._say("workflow.stuck") if run is None else self._why(run)

    def _why(self, halt: NodeRun) -> str:
        key = "workflow.edge_limit" if EXHAUSTED in halt.output else "workflow.dead_end"
        return self._say(key, name=self.node(halt.path).title)

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

    def ended(self, run: NodeRun, now: datetime) -> NodeRun:
        """The run as it is to be stored: with the edges that were taken behind it, and, if it has
        failed for good, with what its node says about that."""
        place, frame = place_of(run.path), self._frames.get(scope_of(run.path))
        if place is None or frame is None or place.node not in frame.ring.nodes:
            return run
        run = _as_told(run, frame.ring.nodes[place.node])
        if not is_over(run) or not frame.ring.branches(place.node):
            return run
        noted = chosen(frame, place.node, self._after(run, now))
        return replace(run, output={**run.output, **noted})

    def settle(self, now: datetime, most: int) -> _Rows:
        """Go on with all that costs nothing, until about so many runs were made: each is noted
        here and has to be stored. With none left only steps and time can move it."""
        rows: dict[str, NodeRun] = {}
        self._busy.update(dict.fromkeys(self._frames))
        while self._busy and len(rows) < most and not self._is_over:
            scope = next(iter(self._busy))
            made = self._move(scope, now)
            if made is None:
                self._busy.pop(scope, None)
            else:
                rows.update({row.path: row for row in made})
        return tuple(rows.values())

    @property
    def _is_over(self) -> bool:
        """An end has been reached, or it has failed: what costs nothing is not done any more
        either, however much of it one transaction may do."""
        return self._at_end or self.failed is not None

    @property
    def _at_end(self) -> bool:
        frame = self._frames[""]
        ends = [frame.runs.get(end) for end in frame.ring.ends]
        return any(map(is_done, ends)) and all(map(is_over, ends))

    def _questions(self, scope: str, frame: Frame) -> Iterator[tuple[Place, Node]]:
        """Whether to go on behind loops that have used up their rounds."""
        yield from self._asks[scope].values()
        for name, run in frame.exhausted.items():
            edge = frame.ring.bounded(run.output[EXHAUSTED])
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
        # A round that was opened makes no row, and is a move all the same.
        moves = (act(scope, now) for act in (self._due, self._turn, self._close))
        return next((made for made in moves if made is not None), None)

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

    def _close(self, scope: str, now: datetime) -> _Rows | None:
        """A round that is over, or has failed where that does not matter, is handed in."""
        frame, above = self._frames[scope], outer(scope)
        if above is None:
            return None
        path, n = above
        body = self._bodies[scope_of(path)].get(path)
        if body is None:
            del self._frames[scope]
            return ()
        lost = self._lost(frame)
        if lost is not None and not body.forgives:
            return self._fail_around(body, lost, now)
        if lost is None and not frame.is_complete:
            return None
        body.close(n, frame, lost)
        del self._frames[scope]
        self._busy[scope_of(path)] = None
        return ()

    def _lost(self, frame: Frame) -> str | None:
        """Why a round can bring nothing any more."""
        if frame.failed:
            return next(iter(frame.failed.values())).error if frame.is_still else None
        halt = _halt(frame) if frame.is_idle else None
        return None if halt is None or self._asks_about(frame, halt) else self._why(halt)

    def _asks_about(self, frame: Frame, halt: NodeRun) -> bool:
        name = halt.output.get(EXHAUSTED)
        return name is not None and frame.ring.bounded(name).on_limit is OnLimit.ASK

    def _fail_around(self, body: Body, why: str, now: datetime) -> _Rows | None:
        """A loop fails with its round where something further out makes up for that: when nothing
        inside it is under way any more."""
        inside = [scope for scope in self._frames if scope.startswith(f"{body.place.path}[")]
        still = all(self._frames[scope].is_still for scope in inside)
        if not (still and self._forgives(body.place.scope)):
            return None
        for scope in inside:
            del self._frames[scope]
        failed = self._made(body.place, NodeStatus.FAILED, now, {})
        return self._kept(self.ended(replace(failed, error=why), now))

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

    def _after(self, run: NodeRun, now: datetime) -> Sight:
        """What the edges behind it may speak of: what it has brought, too."""
        seen = self.sight(scope_of(run.path), now)
        name = self.node(run.path).id
        alias = name.replace("-", "_")
        known = {name, alias} if self._aliases.get(alias) == name else {name}
        outputs = ChainMap(dict.fromkeys(known, brought(run)), seen.names["outputs"])
        states = ChainMap(dict.fromkeys(known, run.status.value), seen.names["nodeStates"])
        return replace(seen, names={**seen.names, "outputs": outputs, "nodeStates": states})

    def _is_held(self, run: NodeRun) -> bool:
        return not self.node(run.path).body

    def _beside(self, path: str, output: Mapping[str, Any], now: datetime) -> NodeRun:
        """What is kept beside the nodes."""
        place = Place("", path)
        return replace(self._made(place, NodeStatus.DONE, now, output), path=path)


def _halt(frame: Frame) -> NodeRun | None:
    """Where it does not go on, the first in the order of the plan."""
    halts = {**frame.dead_ends, **frame.exhausted}
    return halts[min(halts, key=frame.ring.order.__getitem__)] if halts else None


def _as_told(run: NodeRun, node: Node) -> NodeRun:
    """What the node says about failing for good."""
    if run.status is not NodeStatus.FAILED or node.on_error is OnError.FAIL:
        return run
    skips = node.on_error is OnError.SKIP
    status = NodeStatus.SKIPPED if skips else NodeStatus.DONE
    return replace(run, status=status, output={**run.output, "error": run.error})
