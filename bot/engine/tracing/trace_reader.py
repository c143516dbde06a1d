"""Reads the traces of tasks and chat answers.

Only model calls are recorded as spans; everything else is derived from the rows that drive the
work, so a trace can't contradict them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from bot.engine.tracing import span_builder
from bot.engine.tracing.span_builder import NodeNameLookup, NodeSpanBuilder
from bot.engine.tracing.span_ids import (
    chat_trace_prefix,
    subagent_span_id,
    subagent_trace_id,
    task_trace_id,
)
from storage.db import Database, Transaction
from storage.records.people import ChatId
from storage.records.tasks import NodeRun, Task, TaskGraph, TaskId
from storage.records.traces import ModelCall, SpanAttribute, SpanKind, SpanState, Trace, TraceSpan
from storage.tasks import TaskGraphRepo, TaskRepo
from storage.traces import AnswerTrace, SpanRepo, TraceParts

PlanBody: TypeAlias = Mapping[str, Any]
"""A plan as stored."""

_MAX_OLDER_PLANS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTraceReader:
    """Reads task traces.

    `name_lookup` names the node runs of a stored plan, given older plans newest first;
    `find_dropped` returns the paths for which a plan has no node; `redact` masks secrets.
    `name_lookup` and `redact` must be thread-safe."""

    db: Database
    tasks: TaskRepo
    graphs: TaskGraphRepo
    spans: SpanRepo
    name_lookup: Callable[
        [PlanBody | None, Mapping[str, NodeRun], Sequence[PlanBody]], NodeNameLookup
    ]
    find_dropped: Callable[[PlanBody, Collection[str]], Collection[str]]
    redact: Callable[[str], str]
    now: Callable[[], datetime]

    async def get_task_trace(self, task_id: TaskId) -> Trace:
        """Return a consistent snapshot, also of running tasks. Raises NotFound."""
        async with self.db.read() as view:
            task = await self.tasks.get(task_id, tx=view)
            graph = await self.graphs.find_latest(task_id, tx=view)
            runs = await self.graphs.list_runs(task_id, tx=view)
            found = await self.spans.get_task_parts(task_id, tx=view)
            paths = {*runs, *(each.path for each in found.attempts)}
            older = await self._older_plans(graph, paths, view) if graph is not None else []
        # Thousands of spans would block the event loop.
        spans = await asyncio.to_thread(self._spans, task, graph, older, runs, found)
        return Trace(id=task_trace_id(task_id), task_id=task_id, taken_at=self.now(), spans=spans)

    async def _older_plans(
        self, graph: TaskGraph, paths: Collection[str], view: Transaction
    ) -> Sequence[PlanBody]:
        """Return older plans that contain nodes dropped by newer ones."""
        left, at = self.find_dropped(graph.body, paths), graph
        found_plans: list[PlanBody] = []
        for _ in range(_MAX_OLDER_PLANS):
            before = await self.graphs.find_latest(at.task_id, before=at.version, tx=view)
            if not left or before is None:
                break
            still, at = self.find_dropped(before.body, left), before
            if len(still) < len(left):
                found_plans.append(at.body)
            left = still
        return found_plans

    def _spans(
        self,
        task: Task,
        graph: TaskGraph | None,
        older: Sequence[PlanBody],
        runs: Mapping[str, NodeRun],
        found: TraceParts,
    ) -> tuple[TraceSpan, ...]:
        name_of = self.name_lookup(graph.body if graph else None, runs, older)
        spans = assemble_task_spans(task, runs, found, name_of)
        return tuple(redact_span(span, self.redact) for span in spans)


def redact_span(span: TraceSpan, redact: Callable[[str], str]) -> TraceSpan:
    def masked(value: SpanAttribute) -> SpanAttribute:
        return redact(value) if isinstance(value, str) else value

    attributes = {name: masked(value) for name, value in span.attributes.items()}
    return replace(span, name=redact(span.name), error=redact(span.error), attributes=attributes)


def assemble_task_spans(
    task: Task, runs: Mapping[str, NodeRun], rows: TraceParts, name_of: NodeNameLookup
) -> Sequence[TraceSpan]:
    """Return all spans, parents first, with usage including their descendants'."""
    nodes = NodeSpanBuilder(task, runs, rows.attempts, name_of)
    works = span_builder.subagent_spans(rows.helpers, nodes.span_at)
    ends = {**nodes.end_times, **{each.id: each.ended_at for each in works}}
    calls = span_builder.model_call_spans(rows.calls, ends, task.ended_at)
    tools = span_builder.tool_call_spans(
        rows.tools, calls, owner_id=task.id, span_at=nodes.span_at, ended_at=task.ended_at
    )
    return span_tree(span_builder.task_span(task), [*nodes.spans(calls), *works, *calls, *tools])


def span_tree(root: TraceSpan, others: Sequence[TraceSpan]) -> Sequence[TraceSpan]:
    """Return all spans, parents first, with usage including their descendants'."""
    known = {root.id, *(each.id for each in others)}
    # If the parent is missing, use the root.
    parents = {each.id: each.parent if each.parent in known else root.id for each in others}
    below: dict[str, list[TraceSpan]] = {}
    for each in others:
        below.setdefault(parents[each.id], []).append(each)
    ordered = list(_depth_first(root, below))
    spent = {each.id: each.spent for each, _ in ordered}
    for each, depth in reversed(ordered):
        if depth:
            parent = parents[each.id]
            spent[parent] += spent[each.id]
    begun = {root.id: _first_start(root, others)}
    return [
        _place_span(
            each,
            parent=parents.get(each.id, ""),
            depth=depth,
            spent=spent[each.id],
            started_at=begun.get(each.id, each.started_at),
        )
        for each, depth in ordered
    ]


def _place_span(span: TraceSpan, *, started_at: datetime, **found: Any) -> TraceSpan:
    ended_at = span.ended_at
    if ended_at is not None:
        # The clock may have been set back.
        ended_at = max(ended_at, started_at)
    return replace(span, started_at=started_at, ended_at=ended_at, **found)


def _depth_first(
    root: TraceSpan, below: Mapping[str, list[TraceSpan]]
) -> Iterator[tuple[TraceSpan, int]]:
    """Yield spans with their depth; iterative, because loops may be deeply nested."""
    stack = [(root, 0)]
    while stack:
        span, depth = stack.pop()
        yield span, depth
        inner = sorted(below.get(span.id, ()), key=lambda each: each.started_at)
        stack += [(each, depth + 1) for each in reversed(inner)]


def _first_start(root: TraceSpan, others: Sequence[TraceSpan]) -> datetime:
    """A retried task starts with its first span."""
    return min((each.started_at for each in others), default=root.started_at)


_ANSWER_PURPOSE = "chat"
"""Purpose of calls that answer; others caption pictures, for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTraceReader:
    """Reads chat traces.

    Calls left open before `process_started_at` were cut off; `redact` masks secrets."""

    db: Database
    spans: SpanRepo
    redact: Callable[[str], str]
    now: Callable[[], datetime]
    process_started_at: datetime

    async def get_chat_trace(self, chat_id: ChatId) -> Trace | None:
        """Return the chat's last or current answer; None if there is none."""
        async with self.db.read() as view:
            found = await self.spans.get_last_answer(chat_trace_prefix(chat_id), tx=view)
            if found is None:
                return None
            trace_ids = [subagent_trace_id(subagent_span_id(each.id)) for each in found.helpers]
            subagent_calls = await self.spans.list_model_calls(trace_ids, tx=view)
        spans = assemble_chat_spans(
            found, subagent_calls, process_started_at=self.process_started_at
        )
        masked = tuple(redact_span(span, self.redact) for span in spans)
        return Trace(id=found.calls[0].trace_id, task_id=None, taken_at=self.now(), spans=masked)


def assemble_chat_spans(
    turn: AnswerTrace, subagent_calls: Sequence[ModelCall], *, process_started_at: datetime
) -> Sequence[TraceSpan]:
    """Return all spans; `subagent_calls` may outlast the answer."""
    root = _answer_span(turn.calls[0])

    def at(_path: str, _time: datetime) -> str:
        return root.id

    works = span_builder.subagent_spans(turn.helpers, at)
    # Calls started before this process are not running any more.
    gone = [each for each in turn.calls if each.started_at < process_started_at]
    here = turn.calls[len(gone) :]
    answering = [
        *span_builder.model_call_spans(gone, {root.id: process_started_at}, None),
        *span_builder.model_call_spans(here, {}, None),
    ]
    ends = {each.id: each.ended_at for each in works}
    calls = [*answering, *span_builder.model_call_spans(subagent_calls, ends, None)]
    trace = turn.calls[0].trace_id
    tools = span_builder.tool_call_spans(
        turn.tools, calls, owner_id=trace, span_at=at, ended_at=None
    )
    return span_tree(_with_end(root, answering), [*works, *calls, *tools])


def _answer_span(first: ModelCall) -> TraceSpan:
    return TraceSpan(
        id=first.parent_id,
        parent="",
        name=SpanKind.CHAT.value,
        kind=SpanKind.CHAT,
        state=SpanState.RUNNING,
        started_at=first.started_at,
        ended_at=None,
    )


def _with_end(root: TraceSpan, calls: Sequence[TraceSpan]) -> TraceSpan:
    """Use the state of the last answering call; earlier ones were retried."""
    ends = [each.ended_at for each in calls if each.ended_at is not None]
    if len(ends) < len(calls):
        return root
    answers = [
        each for each in calls if each.attributes.get("shiftboss.purpose") == _ANSWER_PURPOSE
    ]
    last = (answers or calls)[-1]
    return replace(root, state=last.state, ended_at=max(ends), error=last.error)
