"""Builds spans from stored rows: tasks, node attempts, sub-agents, model and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from bot.engine.tracing.span_ids import (
    node_span_id,
    subagent_span_id,
    tool_span_id,
    workflow_span_id,
)
from storage.records.approvals import ToolCallState
from storage.records.tasks import NodeRun, NodeStatus, Task, TaskStatus, UsageTotals
from storage.records.traces import (
    ModelCall,
    NodeAttempt,
    SpanAttribute,
    SpanKind,
    SpanState,
    SubagentUse,
    ToolUse,
    TraceSpan,
)

_MAX_NAME = 80
_MAX_ERROR = 300
_SUBAGENT_PREFIX = "helper:"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeName:
    """A node run's title and type.

    `parent_path` is the path of the run whose iteration contains it; `order` sorts runs that
    started at the same time."""

    title: str
    type: str
    parent_path: str = ""
    order: tuple[int, ...] = ()


NodeNameLookup: TypeAlias = Callable[[str], NodeName | None]
"""Looks up a name by path; None if the path is not a node run."""

_TASK_STATES = {
    TaskStatus.RUNNING: SpanState.RUNNING,
    TaskStatus.COMPLETED: SpanState.DONE,
    TaskStatus.FAILED: SpanState.FAILED,
    TaskStatus.CANCELLED: SpanState.CUT_OFF,
}
_NODE_STATES = {
    NodeStatus.RUNNING: SpanState.RUNNING,
    NodeStatus.PENDING: SpanState.WAITING,
    NodeStatus.WAITING: SpanState.WAITING,
    NodeStatus.FAILED: SpanState.FAILED,
}
_BAD_ENDS = {
    NodeStatus.FAILED: SpanState.FAILED,
    NodeStatus.CANCELLED: SpanState.CUT_OFF,
}
_SUBAGENT_STATES = {
    "accepted": SpanState.WAITING,
    "running": SpanState.RUNNING,
    "failed": SpanState.FAILED,
}
_TOOL_STATES = {
    ToolCallState.RUNNING: SpanState.RUNNING,
    ToolCallState.DENIED: SpanState.FAILED,
    ToolCallState.FAILED: SpanState.FAILED,
    ToolCallState.CUT: SpanState.CUT_OFF,
    ToolCallState.DONE: SpanState.DONE,
}


def task_span(task: Task) -> TraceSpan:
    state = _TASK_STATES.get(task.status, SpanState.WAITING)
    return TraceSpan(
        id=workflow_span_id(task.id),
        parent="",
        name=_single_line(task.title, _MAX_NAME),
        kind=SpanKind.WORKFLOW,
        state=state,
        started_at=task.started_at or task.created_at,
        ended_at=task.ended_at if task.status.is_final else None,
        error=_single_line(task.status_reason, _MAX_ERROR) if state is SpanState.FAILED else "",
        attributes={
            "shiftboss.task.id": task.id,
            "shiftboss.task.status": task.status.value,
            "shiftboss.task.priority": task.priority.value,
        },
    )


class NodeSpanBuilder:
    """Builds the spans of node attempts and finds the parent spans of other rows."""

    def __init__(
        self,
        task: Task,
        runs: Mapping[str, NodeRun],
        attempts: Sequence[NodeAttempt],
        name_of: NodeNameLookup,
    ) -> None:
        self._task, self._runs, self._name_of = task, runs, name_of
        self._attempts: dict[str, list[NodeAttempt]] = {}
        for each in attempts:
            self._attempts.setdefault(each.path, []).append(each)
        for path, run in runs.items():
            if path not in self._attempts and run.started_at is not None:
                self._attempts[path] = [_attempt_of_run(run, run.started_at)]

    def spans(self, calls: Sequence[TraceSpan]) -> list[TraceSpan]:
        """Build the spans; `calls` are model call spans, which tell how an attempt ended."""
        last = {call.parent: call.state for call in calls}
        named = [
            (name, path) for path in self._attempts if (name := self._name_of(path)) is not None
        ]
        named.sort(key=lambda each: each[0].order)
        return [
            self._span(each, name, last, bool(calls))
            for name, path in named
            for each in self._attempts[path]
        ]

    @property
    def end_times(self) -> Mapping[str, datetime | None]:
        """End time of each attempt by span ID."""
        return {
            node_span_id(self._task.id, path, each.attempt): each.ended_at
            for path, tries in self._attempts.items()
            for each in tries
        }

    def span_at(self, path: str, time: datetime) -> str:
        """Return the ID of the span that was active at this path and time."""
        if path.startswith(_SUBAGENT_PREFIX):
            return subagent_span_id(path.removeprefix(_SUBAGENT_PREFIX))
        tries = self._attempts.get(path, ())
        begun = [each for each in tries if each.started_at <= time] or tries[:1]
        if not begun:
            return workflow_span_id(self._task.id)
        return node_span_id(self._task.id, path, begun[-1].attempt)

    def _span(
        self, each: NodeAttempt, name: NodeName, last: Mapping[str, SpanState], known: bool
    ) -> TraceSpan:
        span_id = node_span_id(self._task.id, each.path, each.attempt)
        state = self._state(each, last.get(span_id), known)
        attributes: dict[str, SpanAttribute] = {
            "shiftboss.node.path": each.path,
            "shiftboss.node.type": name.type,
            "shiftboss.node.attempt": each.attempt,
        }
        return TraceSpan(
            id=span_id,
            parent=self.span_at(name.parent_path, each.started_at),
            name=_single_line(name.title, _MAX_NAME),
            kind=SpanKind.NODE,
            state=state,
            started_at=each.started_at,
            ended_at=None if state.is_open else each.ended_at or self._task.ended_at,
            error="" if state.is_open else _single_line(each.error, _MAX_ERROR),
            attributes=attributes,
        )

    def _state(self, each: NodeAttempt, last: SpanState | None, known: bool) -> SpanState:
        run = self._runs.get(each.path)
        mine = run if run is not None and run.attempt == each.attempt else None
        if each.ended_at is None:
            if self._task.status.is_final or mine is None:
                return SpanState.CUT_OFF
            return _NODE_STATES.get(mine.status, SpanState.DONE)
        if mine is not None and mine.status in _BAD_ENDS:
            return _BAD_ENDS[mine.status]
        if not each.error:
            skipped = mine is not None and mine.status is NodeStatus.SKIPPED
            return SpanState.SKIPPED if skipped else SpanState.DONE
        if last is None:
            # Suspended before a model call; unknown if no calls are stored at all.
            return SpanState.SUSPENDED if known else SpanState.FAILED
        return last if last in {SpanState.CUT_OFF, SpanState.SUSPENDED} else SpanState.FAILED


def model_call_spans(
    calls: Sequence[ModelCall],
    parent_ends: Mapping[str, datetime | None],
    ended_at: datetime | None,
) -> list[TraceSpan]:
    """Build spans of model calls.

    A call without a stored end was cut off at the earliest of: its parent's end in `parent_ends`,
    its session's next call, and `ended_at`."""
    after: dict[str, datetime] = {}
    sessions: dict[str, list[ModelCall]] = {}
    for call in calls:
        sessions.setdefault(str(call.attributes.get("gen_ai.conversation.id")), []).append(call)
    for one in sessions.values():
        after |= {first.span_id: second.started_at for first, second in pairwise(one)}
    spans = []
    for call in calls:
        ended, state = call.ended_at, SpanState(call.status or SpanState.RUNNING)
        if ended is None:
            known = (parent_ends.get(call.parent_id), after.get(call.span_id), ended_at)
            ended = min((each for each in known if each is not None), default=None)
            state = SpanState.CUT_OFF if ended is not None else state
        spans.append(_model_call_span(call, state, ended))
    return spans


def _model_call_span(call: ModelCall, state: SpanState, ended: datetime | None) -> TraceSpan:
    attributes = call.attributes
    return TraceSpan(
        id=call.span_id,
        parent=call.parent_id,
        name=call.name,
        kind=SpanKind.LLM,
        state=state,
        started_at=call.started_at,
        ended_at=ended,
        error=str(attributes.get("error.type", "")),
        attributes=attributes,
        spent=usage_from_attributes(attributes),
    )


def usage_from_attributes(attributes: Mapping[str, SpanAttribute]) -> UsageTotals:
    """Read the usage from a model call's attributes."""

    def number(name: str) -> int:
        value = attributes.get(name, 0)
        return value if isinstance(value, int) else 0

    requests = number("shiftboss.requests")
    return UsageTotals(
        calls=requests,
        input_tokens=number("gen_ai.usage.input_tokens"),
        output_tokens=number("gen_ai.usage.output_tokens"),
        cost_micros=number("shiftboss.cost_micros"),
        unpriced=int(requests > 0 and "shiftboss.cost_micros" not in attributes),
        cache_read_tokens=number("gen_ai.usage.cache_read.input_tokens"),
        cache_write_tokens=number("gen_ai.usage.cache_creation.input_tokens"),
    )


def subagent_spans(
    runs: Sequence[SubagentUse], span_at: Callable[[str, datetime], str]
) -> list[TraceSpan]:
    return [
        TraceSpan(
            id=subagent_span_id(each.id),
            parent=span_at(each.path, each.created_at),
            name=_single_line(f"invoke_agent {each.label}", _MAX_NAME),
            kind=SpanKind.SUBAGENT,
            state=_SUBAGENT_STATES.get(each.status, SpanState.DONE),
            started_at=each.started_at or each.created_at,
            ended_at=each.ended_at,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.id": each.id,
                "gen_ai.agent.name": _single_line(each.label, _MAX_NAME),
            },
        )
        for each in runs
    ]


def tool_call_spans(
    uses: Sequence[ToolUse],
    calls: Sequence[TraceSpan],
    *,
    owner_id: str,
    span_at: Callable[[str, datetime], str],
    ended_at: datetime | None,
) -> list[TraceSpan]:
    """Build spans of tool calls under the model call that made them, else under `span_at`.

    `owner_id` is part of their IDs; calls still open at `ended_at` were cut off."""
    by_session: dict[str, list[TraceSpan]] = {}
    for call in calls:
        by_session.setdefault(str(call.attributes.get("gen_ai.conversation.id")), []).append(call)
    spans = []
    for use in uses:
        begun = use.started_at or use.asked_at
        callers = [each for each in by_session.get(use.session_id, ()) if each.started_at <= begun]
        parent = callers[-1].id if callers else span_at(use.path, begun)
        spans.append(_tool_call_span(use, parent, begun, tool_span_id(owner_id, use.id), ended_at))
    return spans


def _tool_call_span(
    use: ToolUse, parent: str, begun: datetime, span_id: str, trace_ended_at: datetime | None
) -> TraceSpan:
    call = ToolCallState(use.state)
    state = _TOOL_STATES.get(call, SpanState.WAITING if use.ended_at is None else SpanState.DONE)
    ended = use.ended_at
    if ended is None and trace_ended_at is not None:
        ended, state = trace_ended_at, SpanState.CUT_OFF
    return TraceSpan(
        id=span_id,
        parent=parent,
        name=_single_line(f"execute_tool {use.tool}", _MAX_NAME),
        kind=SpanKind.TOOL,
        state=state,
        started_at=begun,
        ended_at=ended,
        error=call.value if state.is_failure else "",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": use.tool,
            "gen_ai.tool.call.id": use.call_id,
            "shiftboss.tool.kind": use.kind,
            "shiftboss.tool.asked": use.asked,
            "shiftboss.tool.size": use.size,
        },
    )


def _attempt_of_run(run: NodeRun, started_at: datetime) -> NodeAttempt:
    return NodeAttempt(
        path=run.path,
        attempt=run.attempt,
        started_at=started_at,
        ended_at=run.ended_at,
        error=run.error,
    )


def _single_line(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
