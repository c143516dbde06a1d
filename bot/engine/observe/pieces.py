"""Spans read from the rows that work leaves: a task, its nodes, its helpers, its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from bot.engine.observe.ids import helper_span, node_span, tool_span, workflow_span
from storage.records.tasks import NodeRun, NodeStatus, Spent, Task, TaskStatus
from storage.records.tools import CallState
from storage.records.workers.spans import (
    Attribute,
    HelperWork,
    ModelCall,
    NodeAttempt,
    Span,
    SpanKind,
    SpanState,
    ToolUse,
)

_NAME = 80
_ERROR = 300
_HELPER = "helper:"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeName:
    """What a node's run is called; `inside` is the path of the run whose round it is part of,
    `order` says which of those that began in the same moment comes first."""

    title: str
    type: str
    inside: str = ""
    order: tuple[int, ...] = ()


NameOf: TypeAlias = Callable[[str], NodeName | None]
"""By path; None for what is no activation of a node."""

_WHOLE = {
    TaskStatus.RUNNING: SpanState.RUNNING,
    TaskStatus.COMPLETED: SpanState.DONE,
    TaskStatus.FAILED: SpanState.FAILED,
    TaskStatus.CANCELLED: SpanState.CUT,
}
_NODES = {
    NodeStatus.RUNNING: SpanState.RUNNING,
    NodeStatus.PENDING: SpanState.WAITING,
    NodeStatus.WAITING: SpanState.WAITING,
    NodeStatus.FAILED: SpanState.FAILED,
}
_HELPERS = {
    "accepted": SpanState.WAITING,
    "running": SpanState.RUNNING,
    "failed": SpanState.FAILED,
}
_TOOLS = {
    CallState.RUNNING: SpanState.RUNNING,
    CallState.DENIED: SpanState.FAILED,
    CallState.FAILED: SpanState.FAILED,
    CallState.CUT: SpanState.CUT,
    CallState.DONE: SpanState.DONE,
}


def whole(task: Task) -> Span:
    state = _WHOLE.get(task.status, SpanState.WAITING)
    return Span(
        id=workflow_span(task.id),
        parent="",
        name=_line(task.title, _NAME),
        kind=SpanKind.WORKFLOW,
        state=state,
        started_at=task.started_at or task.created_at,
        ended_at=task.ended_at if task.status.is_final else None,
        error=_line(task.status_reason, _ERROR) if state is SpanState.FAILED else "",
        attributes={
            "shiftboss.task.id": task.id,
            "shiftboss.task.status": task.status.value,
            "shiftboss.task.priority": task.priority.value,
        },
    )


class Nodes:
    """The tries of a task's nodes, and what was begun within which."""

    def __init__(
        self, task: Task, runs: Mapping[str, NodeRun], tries: Sequence[NodeAttempt], name_of: NameOf
    ) -> None:
        self._task, self._runs, self._name_of = task, runs, name_of
        self._tries: dict[str, list[NodeAttempt]] = {}
        for each in tries:
            self._tries.setdefault(each.path, []).append(each)
        for path, run in runs.items():
            if path not in self._tries and run.started_at is not None:
                self._tries[path] = [_only_try(run, run.started_at)]

    def spans(self, calls: Sequence[Span]) -> list[Span]:
        """`calls` are those of models, which say how a try has ended."""
        last = {call.parent: call.state for call in calls}
        named = [(name, path) for path in self._tries if (name := self._name_of(path)) is not None]
        named.sort(key=lambda each: each[0].order)
        return [
            self._span(each, name, last, bool(calls))
            for name, path in named
            for each in self._tries[path]
        ]

    @property
    def ends(self) -> Mapping[str, datetime | None]:
        """By the id of its span, when each try ended."""
        return {
            node_span(self._task.id, path, each.attempt): each.ended_at
            for path, tries in self._tries.items()
            for each in tries
        }

    def at(self, path: str, time: datetime) -> str:
        """The span under which something was begun there at that time."""
        if path.startswith(_HELPER):
            return helper_span(path.removeprefix(_HELPER))
        tries = self._tries.get(path, ())
        begun = [each for each in tries if each.started_at <= time] or tries[:1]
        if not begun:
            return workflow_span(self._task.id)
        return node_span(self._task.id, path, begun[-1].attempt)

    def _span(
        self, each: NodeAttempt, name: NodeName, last: Mapping[str, SpanState], known: bool
    ) -> Span:
        span_id = node_span(self._task.id, each.path, each.attempt)
        state = self._state(each, last.get(span_id), known)
        attributes: dict[str, Attribute] = {
            "shiftboss.node.path": each.path,
            "shiftboss.node.type": name.type,
            "shiftboss.node.attempt": each.attempt,
        }
        return Span(
            id=span_id,
            parent=self.at(name.inside, each.started_at),
            name=_line(name.title, _NAME),
            kind=SpanKind.NODE,
            state=state,
            started_at=each.started_at,
            ended_at=None if state.is_open else each.ended_at or self._task.ended_at,
            error="" if state.is_open else _line(each.error, _ERROR),
            attributes=attributes,
        )

    def _state(self, each: NodeAttempt, last: SpanState | None, known: bool) -> SpanState:
        run = self._runs.get(each.path)
        mine = run if run is not None and run.attempt == each.attempt else None
        if each.ended_at is None:
            if self._task.status.is_final or mine is None:
                return SpanState.CUT
            return _NODES.get(mine.status, SpanState.DONE)
        if mine is not None and mine.status is NodeStatus.FAILED:
            return SpanState.FAILED
        if not each.error:
            skipped = mine is not None and mine.status is NodeStatus.SKIPPED
            return SpanState.SKIPPED if skipped else SpanState.DONE
        if last is None:
            # Given back before a model was asked; where no call was kept at all nobody knows.
            return SpanState.LEFT if known else SpanState.FAILED
        return last if last in {SpanState.CUT, SpanState.LEFT} else SpanState.FAILED


def models(
    calls: Sequence[ModelCall], ends: Mapping[str, datetime | None], over: datetime | None
) -> list[Span]:
    """`ends` tells by the ids of spans when what calls were made under has ended, `over` when all
    has: one whose end nobody has stored was cut off then, or when its session went on with
    another."""
    after: dict[str, datetime] = {}
    sessions: dict[str, list[ModelCall]] = {}
    for call in calls:
        sessions.setdefault(str(call.attributes.get("gen_ai.conversation.id")), []).append(call)
    for one in sessions.values():
        after |= {first.span_id: second.started_at for first, second in pairwise(one)}
    made = []
    for call in calls:
        ended, state = call.ended_at, SpanState(call.status or SpanState.RUNNING)
        if ended is None:
            known = (ends.get(call.parent_id), after.get(call.span_id), over)
            ended = min((each for each in known if each is not None), default=None)
            state = SpanState.CUT if ended is not None else state
        made.append(_model(call, state, ended))
    return made


def _model(call: ModelCall, state: SpanState, ended: datetime | None) -> Span:
    told = call.attributes
    return Span(
        id=call.span_id,
        parent=call.parent_id,
        name=call.name,
        kind=SpanKind.LLM,
        state=state,
        started_at=call.started_at,
        ended_at=ended,
        error=str(told.get("error.type", "")),
        attributes=told,
        spent=spent_on(told),
    )


def spent_on(told: Mapping[str, Attribute]) -> Spent:
    """What the attributes of a call of a model say that it has used."""

    def number(name: str) -> int:
        value = told.get(name, 0)
        return value if isinstance(value, int) else 0

    requests = number("shiftboss.requests")
    return Spent(
        calls=requests,
        input_tokens=number("gen_ai.usage.input_tokens"),
        output_tokens=number("gen_ai.usage.output_tokens"),
        cost_micros=number("shiftboss.cost_micros"),
        unpriced=int(requests > 0 and "shiftboss.cost_micros" not in told),
        cache_read_tokens=number("gen_ai.usage.cache_read.input_tokens"),
        cache_write_tokens=number("gen_ai.usage.cache_creation.input_tokens"),
    )


def helpers(works: Sequence[HelperWork], at: Callable[[str, datetime], str]) -> list[Span]:
    return [
        Span(
            id=helper_span(each.id),
            parent=at(each.path, each.created_at),
            name=_line(f"invoke_agent {each.label}", _NAME),
            kind=SpanKind.HELPER,
            state=_HELPERS.get(each.status, SpanState.DONE),
            started_at=each.started_at or each.created_at,
            ended_at=each.ended_at,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.id": each.id,
                "gen_ai.agent.name": _line(each.label, _NAME),
            },
        )
        for each in works
    ]


def tools(
    uses: Sequence[ToolUse],
    calls: Sequence[Span],
    *,
    whose: str,
    at: Callable[[str, datetime], str],
    over: datetime | None,
) -> list[Span]:
    """Each under the call of a model that made it, or, where that is not known, what was `at` its
    path then. `whose` is part of their names; what is open when all is `over` was cut off."""
    by_session: dict[str, list[Span]] = {}
    for call in calls:
        by_session.setdefault(str(call.attributes.get("gen_ai.conversation.id")), []).append(call)
    made = []
    for use in uses:
        begun = use.started_at or use.asked_at
        callers = [each for each in by_session.get(use.session_id, ()) if each.started_at <= begun]
        parent = callers[-1].id if callers else at(use.path, begun)
        made.append(_tool(use, parent, begun, tool_span(whose, use.id), over))
    return made


def _tool(use: ToolUse, parent: str, begun: datetime, span_id: str, over: datetime | None) -> Span:
    call = CallState(use.state)
    state = _TOOLS.get(call, SpanState.WAITING if use.ended_at is None else SpanState.DONE)
    ended = use.ended_at
    if ended is None and over is not None:
        ended, state = over, SpanState.CUT
    return Span(
        id=span_id,
        parent=parent,
        name=_line(f"execute_tool {use.tool}", _NAME),
        kind=SpanKind.TOOL,
        state=state,
        started_at=begun,
        ended_at=ended,
        error=call.value if state.is_wrong else "",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": use.tool,
            "gen_ai.tool.call.id": use.call_id,
            "shiftboss.tool.kind": use.kind,
            "shiftboss.tool.asked": use.asked,
            "shiftboss.tool.size": use.size,
        },
    )


def _only_try(run: NodeRun, started_at: datetime) -> NodeAttempt:
    return NodeAttempt(
        path=run.path,
        attempt=run.attempt,
        started_at=started_at,
        ended_at=run.ended_at,
        error=run.error,
    )


def _line(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
