"""Where the nodes of one ring stand: which wait, which are free, which no branch can reach."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bot.engine.workflow.model.layout import Ring
from bot.engine.workflow.model.nodes import Join, NodeType
from bot.engine.workflow.model.shape import Edge
from bot.engine.workflow.routing.marks import EXHAUSTED, is_dead, is_over, took
from bot.engine.workflow.routing.paths import Place
from storage.records.tasks import NodeRun, NodeStatus


class Frame:
    """One round of a ring. It follows from the runs alone: told them all at once or one after the
    other, in whatever order, it is the same. `times` says how often each edge that leads back has
    been taken, `taken` the same of those that have a bound and lead forward."""

    def __init__(self, ring: Ring, scope: str, times: Mapping[str, int] | None = None) -> None:
        self.ring = ring
        self.scope = scope
        self.times = dict(times or {})
        self.runs: dict[str, NodeRun] = {}
        self.past: dict[str, NodeRun] = {}
        self.failed: dict[str, NodeRun] = {}
        self._rounds = dict.fromkeys(ring.nodes, 1)
        for edge, n in self.times.items():
            for node in ring.region.get(edge, ()):
                self._rounds[node] += n
        self._open = {node: len(ring.into.get(node, ())) for node in ring.nodes}
        self._come = dict.fromkeys(ring.nodes, 0)
        self._steps: list[int] = []
        self._others: list[int] = []
        self._dead: list[int] = []
        self._names = tuple(ring.nodes)
        self._under_way: set[str] = set()
        self._over = 0
        self._returning: dict[str, Edge] = {}
        self.exhausted: dict[str, NodeRun] = {}
        self.dead_ends: dict[str, NodeRun] = {}
        self.taken: Counter[str] = Counter()
        for node in ring.nodes:
            self._look(node)

    def place(self, node: str) -> Place:
        """Its activation now."""
        return Place(self.scope, node, self._rounds[node])

    def note(self, node: str, run: NodeRun) -> None:
        """What was stored of its activation now."""
        before = self.runs.get(node)
        self.runs[node] = run
        self._count(node, run)
        if is_over(run) and (not is_over(before) or node in self.exhausted):
            self._over += not is_over(before)
            self._spread(node, run)

    def count(self, run: NodeRun) -> None:
        """Which edges with a bound forward were taken behind a node, now or in an earlier round."""
        self.taken.update(self.ring.counted.keys() & (took(run) or ()))

    def free_steps(self) -> Iterator[str]:
        """Steps that may start now, as they stand in the plan. Those that are noted as begun while
        this runs are not in its way."""
        at = 0
        while at < len(self._steps):
            n = self._steps[at]
            yield self._names[n]
            at += self._steps[at : at + 1] == [n]

    def next_free(self) -> str | None:
        """A node that may go on now and is no step."""
        return self._names[self._others[0]] if self._others else None

    def next_dead(self) -> str | None:
        """A node that no branch can come to any more."""
        while self._dead and not self._is_pending(self._names[self._dead[-1]]):
            self._dead.pop()
        return self._names[self._dead[-1]] if self._dead else None

    def next_return(self) -> Edge | None:
        """An edge that leads back and was taken, once all that it starts anew has come to rest."""
        for edge in self._returning.values():
            region = self.ring.region[edge.name]
            if not any(node in region for node in (*self._under_way, *self._all_free())):
                return edge
        return None

    def go_back(self, edge: Edge) -> None:
        """Start a new round of all that comes behind the edge."""
        region = self.ring.region[edge.name]
        self.times[edge.name] = self.times.get(edge.name, 0) + 1
        for name in [name for name, each in self._returning.items() if each.source in region]:
            del self._returning[name]
        for node in region:
            self._begin_anew(node)
        for node in region:
            self._listen(node, region)
        for node in region:
            self._look(node)

    @property
    def is_complete(self) -> bool:
        settled = self._over == len(self.ring.nodes)
        return settled and not (self._returning or self.exhausted or self.dead_ends)

    @property
    def is_still(self) -> bool:
        """Nothing in it is under way."""
        return not self._under_way

    @property
    def is_idle(self) -> bool:
        """Nothing in it is under way, and nothing could be."""
        return not (self._under_way or self._steps or self._others or self._returning)

    def last(self, node: str) -> NodeRun | None:
        """The last of its activations that is over."""
        run = self.runs.get(node)
        return run if is_over(run) else self.past.get(node)

    def last_done(self) -> NodeRun | None:
        """The last of those that were not passed over, though all that comes behind them was."""
        for node in reversed(self._names):
            run = self.runs.get(node)
            behind = (self.runs.get(edge.target) for edge in self.ring.out.get(node, ()))
            if run is None or not is_over(run) or is_dead(run):
                continue
            if all(each is not None and is_dead(each) for each in behind):
                return run
        return None

    def _begin_anew(self, node: str) -> None:
        run = self.runs.pop(node, None)
        if run is not None:
            self.past[node] = run
        self._over -= is_over(run)
        self._rounds[node] += 1
        self._open[node] = self._come[node] = 0
        self.failed.pop(node, None)
        self.exhausted.pop(node, None)
        self.dead_ends.pop(node, None)
        self._drop(node)

    def _all_free(self) -> Iterator[str]:
        return (self._names[n] for n in (*self._steps, *self._others))

    def _list(self, node: str) -> list[int]:
        step = NodeType(self.ring.nodes[node].type).is_step
        return self._steps if step else self._others

    def _drop(self, node: str) -> None:
        free, n = self._list(node), self.ring.order[node]
        at = bisect_left(free, n)
        if at < len(free) and free[at] == n:
            del free[at]

    def _is_pending(self, node: str) -> bool:
        run = self.runs.get(node)
        return run is None or run.status is NodeStatus.PENDING

    def _count(self, node: str, run: NodeRun) -> None:
        self._under_way.discard(node)
        self.failed.pop(node, None)
        self._drop(node)
        match run.status:
            case NodeStatus.RUNNING | NodeStatus.WAITING:
                self._under_way.add(node)
            case NodeStatus.FAILED:
                self.failed[node] = run
            case NodeStatus.PENDING:
                self._look(node)
            case NodeStatus.DONE | NodeStatus.SKIPPED:
                pass

    def _spread(self, node: str, run: NodeRun) -> None:
        self.exhausted.pop(node, None)
        if EXHAUSTED in run.output:
            self.exhausted[node] = run
            return
        chosen = took(run)
        self.count(run)
        returning = [
            edge for edge in self.ring.back_out.get(node, ()) if chosen and edge.name in chosen
        ]
        if returning:
            self._returning.update({edge.name: edge for edge in returning})
            return
        if chosen is not None and not chosen and self._needs_way(node):
            self.dead_ends[node] = run
        for edge in self.ring.out.get(node, ()):
            self._open[edge.target] -= 1
            self._come[edge.target] += _is_taken(edge, run)
            self._look(edge.target)

    def _needs_way(self, node: str) -> bool:
        """Whether it is no end, though nothing behind it was taken."""
        return bool(self.ring.out.get(node)) or self.ring.nodes[node].type == NodeType.SWITCH

    def _listen(self, node: str, region: Iterable[str]) -> None:
        """What edges from outside a region have brought stays true; the others are open again."""
        for edge in self.ring.into.get(node, ()):
            before = None if edge.source in region else self.runs.get(edge.source)
            if before is None or not is_over(before):
                self._open[node] += 1
            else:
                self._come[node] += _is_taken(edge, before)

    def _look(self, node: str) -> None:
        if not self._is_pending(node):
            return
        if self._may_start(node):
            self._drop(node)
            insort(self._list(node), self.ring.order[node])
        elif not self._open[node]:
            self._dead.append(self.ring.order[node])

    def _may_start(self, node: str) -> bool:
        if not self.ring.into.get(node):
            return True
        config = self.ring.nodes[node].config
        mode = config.mode if isinstance(config, Join) else "all"
        if mode == "all":
            return not self._open[node] and self._come[node] > 0
        wanted = config.n if isinstance(config, Join) and mode == "n" else 1
        return self._come[node] >= wanted


def _is_taken(edge: Edge, run: NodeRun) -> bool:
    chosen = took(run)
    if run.status is NodeStatus.SKIPPED and chosen is None:
        return not is_dead(run) and not edge.condition
    return edge.name in chosen if chosen is not None else not edge.condition
