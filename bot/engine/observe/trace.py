"""A task's trace: workflow, nodes, calls of models and of tools, as they are now.

Only calls of models are written for it. The rest is a view of the rows by which the work itself
goes on, so that no trace can say anything else than what is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, TypeAlias

from bot.engine.observe import pieces
from bot.engine.observe.ids import trace_id
from bot.engine.observe.pieces import NameOf, Nodes
from storage.agents.spans import Pieces, SpanRepo
from storage.db import Database, Transaction
from storage.records.tasks import Graph, NodeRun, Spent, Task, TaskId
from storage.records.workers.spans import Attribute, Span, Trace
from storage.work.graphs import GraphRepo
from storage.work.tasks import TaskRepo

Body: TypeAlias = Mapping[str, Any]
"""A plan as it was stored."""

_MOST_OLDER = 50
_NOTHING = Spent()
_SPENT = tuple(each.name for each in fields(Spent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """`anatomy` names the runs of a plan as it was stored, by all of them and by the plans before
    it, the newest first; `dropped` says which of these runs a plan has no node for; `mask` takes
    out secrets. The first and the last are safe in any thread."""

    db: Database
    tasks: TaskRepo
    graphs: GraphRepo
    spans: SpanRepo
    anatomy: Callable[[Body | None, Mapping[str, NodeRun], Sequence[Body]], NameOf]
    dropped: Callable[[Body, Collection[str]], Collection[str]]
    mask: Callable[[str], str]
    now: Callable[[], datetime]

    async def trace_of(self, task_id: TaskId) -> Trace:
        """As of one moment, also while the task runs. Raises NotFound."""
        async with self.db.read() as view:
            task = await self.tasks.get(task_id, tx=view)
            graph = await self.graphs.latest(task_id, tx=view)
            runs = await self.graphs.runs(task_id, tx=view)
            found = await self.spans.pieces(task_id, tx=view)
            paths = {*runs, *(each.path for each in found.attempts)}
            older = await self._older(graph, paths, view) if graph is not None else []
        # Thousands of spans take long enough for the event loop to be missed.
        spans = await asyncio.to_thread(self._spans, task, graph, older, runs, found)
        return Trace(id=trace_id(task_id), task_id=task_id, at=self.now(), spans=spans)

    async def _older(
        self, graph: Graph, paths: Collection[str], view: Transaction
    ) -> Sequence[Body]:
        """Plans that hold what newer ones have dropped, as far back as is needed."""
        left, at = self.dropped(graph.body, paths), graph
        made: list[Body] = []
        for _ in range(_MOST_OLDER):
            before = await self.graphs.latest(at.task_id, before=at.version, tx=view)
            if not left or before is None:
                break
            still, at = self.dropped(before.body, left), before
            if len(still) < len(left):
                made.append(at.body)
            left = still
        return made

    def _spans(
        self,
        task: Task,
        graph: Graph | None,
        older: Sequence[Body],
        runs: Mapping[str, NodeRun],
        found: Pieces,
    ) -> tuple[Span, ...]:
        name_of = self.anatomy(graph.body if graph else None, runs, older)
        spans = assembled(task, runs, found, name_of)
        return tuple(without_secrets(span, self.mask) for span in spans)


def without_secrets(span: Span, mask: Callable[[str], str]) -> Span:
    def masked(value: Attribute) -> Attribute:
        return mask(value) if isinstance(value, str) else value

    told = {name: masked(value) for name, value in span.attributes.items()}
    return replace(span, name=mask(span.name), error=mask(span.error), attributes=told)


def assembled(
    task: Task, runs: Mapping[str, NodeRun], found: Pieces, name_of: NameOf
) -> Sequence[Span]:
    """All spans, each behind its parent, with what it has used together with those below."""
    nodes = Nodes(task, runs, found.attempts, name_of)
    works = pieces.helpers(found.helpers, nodes.at)
    ends = {**nodes.ends, **{each.id: each.ended_at for each in works}}
    calls = pieces.models(found.calls, ends, task.ended_at)
    tools = pieces.tools(found.tools, calls, whose=task.id, at=nodes.at, over=task.ended_at)
    return tree(pieces.whole(task), [*nodes.spans(calls), *works, *calls, *tools])


def tree(whole: Span, others: Sequence[Span]) -> Sequence[Span]:
    """All of them, each behind its parent, with what it has used together with those below."""
    known = {whole.id, *(each.id for each in others)}
    # What it was made under may be gone: then it is the workflow's own.
    parents = {each.id: each.parent if each.parent in known else whole.id for each in others}
    below: dict[str, list[Span]] = {}
    for each in others:
        below.setdefault(parents[each.id], []).append(each)
    ordered = list(_downward(whole, below))
    spent = {each.id: each.spent for each, _ in ordered}
    for each, depth in reversed(ordered):
        if depth:
            parent = parents[each.id]
            spent[parent] = _sum(spent[parent], spent[each.id])
    begun = {whole.id: _first(whole, others)}
    return [
        _placed(
            each,
            parent=parents.get(each.id, ""),
            depth=depth,
            spent=spent[each.id],
            started_at=begun.get(each.id, each.started_at),
        )
        for each, depth in ordered
    ]


def _placed(span: Span, *, started_at: datetime, **found: Any) -> Span:
    ended_at = span.ended_at
    if ended_at is not None:
        # Clocks are put back now and then: nothing ends before it began.
        ended_at = max(ended_at, started_at)
    return replace(span, started_at=started_at, ended_at=ended_at, **found)


def _downward(whole: Span, below: Mapping[str, list[Span]]) -> Iterator[tuple[Span, int]]:
    """Each with how deep it stands. Without recursion: rounds in rounds may be many."""
    stack = [(whole, 0)]
    while stack:
        span, depth = stack.pop()
        yield span, depth
        inner = sorted(below.get(span.id, ()), key=lambda each: each.started_at)
        stack += [(each, depth + 1) for each in reversed(inner)]


def _first(whole: Span, others: Sequence[Span]) -> datetime:
    """A task that was tried again has begun with its first step."""
    return min((each.started_at for each in others), default=whole.started_at)


def _sum(one: Spent, other: Spent) -> Spent:
    if other == _NOTHING:
        return one
    return Spent(**{name: getattr(one, name) + getattr(other, name) for name in _SPENT})
