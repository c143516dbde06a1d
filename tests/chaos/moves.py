"""Every state transition that the store can be seen to make, by name, and how it is seen.

A transition is written `noun.from>to`; what is new comes from nothing: `task.>pending`. The lists
are complete on purpose: whatever a process makes and is not here is a fault, of the program or of
the list, and whatever is here is died at (`test_every_transition`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from storage.records.approvals import ApprovalState
from storage.records.helping import HelperStatus
from storage.records.memory.entries import EntryState
from storage.records.memory.jobs import JobState
from storage.records.messages import InboxState, OutboxState
from storage.records.tasks import Control, NodeStatus, TaskStatus
from storage.records.tools import CallState
from tests.chaos.memory import moves as of_memory

Things: TypeAlias = Mapping[tuple[str, str], str]
"""What state each thing is in, by noun and name."""

SEEN = f"""
SELECT 'task', id, status FROM tasks
UNION ALL SELECT 'control', id, control FROM tasks
UNION ALL SELECT 'node', task_id || '/' || path, status FROM node_runs
UNION ALL SELECT 'plan', task_id || '/' || version, 'there' FROM task_graphs
UNION ALL SELECT 'approval', id, state FROM approvals
UNION ALL SELECT 'order', source, kind FROM commands
UNION ALL SELECT 'event', CAST(id AS TEXT),
    CASE WHEN told_at IS NULL THEN 'untold' ELSE 'told' END FROM events
UNION ALL SELECT 'button', token, CASE WHEN used_at IS NULL THEN 'open' ELSE 'used' END
    FROM actions WHERE single_use
UNION ALL SELECT 'inbox', CAST(id AS TEXT), state FROM inbox
UNION ALL SELECT 'outbox', "key",
    CASE WHEN state = 'queued' AND tried_revision > 0 THEN 'tried' ELSE state END FROM outbox
UNION ALL SELECT 'call', CAST(id AS TEXT), state FROM tool_calls
UNION ALL SELECT 'helper', id, status FROM helpers
UNION ALL SELECT 'report', id, CASE WHEN delivered_at IS NOT NULL THEN 'told'
    WHEN status IN ('done', 'failed') THEN 'owed' ELSE 'awaited' END FROM helpers
{of_memory.SEEN}"""
"""The state of everything, as rows of noun, name, state."""

TASK = {
    TaskStatus.PENDING: (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.CANCELLED),
    TaskStatus.RUNNING: (
        TaskStatus.PENDING,
        TaskStatus.WAITING,
        TaskStatus.PAUSED,
        TaskStatus.BLOCKED,
        TaskStatus.COMPLETED,
        TaskStatus.FAILED,
        TaskStatus.CANCELLED,
    ),
    TaskStatus.WAITING: (
        TaskStatus.PENDING,
        TaskStatus.PAUSED,
        TaskStatus.BLOCKED,
        TaskStatus.CANCELLED,
    ),
    TaskStatus.PAUSED: (TaskStatus.PENDING, TaskStatus.CANCELLED),
    TaskStatus.BLOCKED: (TaskStatus.PENDING, TaskStatus.PAUSED, TaskStatus.CANCELLED),
    TaskStatus.COMPLETED: (),
    TaskStatus.FAILED: (TaskStatus.PENDING,),
    TaskStatus.CANCELLED: (TaskStatus.PENDING,),
}

NODE = {
    NodeStatus.PENDING: (NodeStatus.RUNNING,),
    NodeStatus.RUNNING: (
        NodeStatus.PENDING,
        NodeStatus.DONE,
        NodeStatus.FAILED,
        NodeStatus.SKIPPED,
    ),
    NodeStatus.WAITING: (NodeStatus.DONE,),
    NodeStatus.DONE: (),
    NodeStatus.FAILED: (NodeStatus.RUNNING, NodeStatus.PENDING),
    NodeStatus.SKIPPED: (),
}

CONTROL = {
    Control.RUN: (Control.PAUSE, Control.YIELD),
    Control.PAUSE: (Control.RUN,),
    Control.YIELD: (Control.RUN, Control.PAUSE),
}

BY_HAND = {
    TaskStatus.PENDING: (TaskStatus.BLOCKED, TaskStatus.COMPLETED),
    TaskStatus.RUNNING: (),
    TaskStatus.WAITING: (TaskStatus.RUNNING, TaskStatus.COMPLETED),
    TaskStatus.PAUSED: (TaskStatus.RUNNING, TaskStatus.BLOCKED, TaskStatus.COMPLETED),
    TaskStatus.BLOCKED: (TaskStatus.RUNNING, TaskStatus.COMPLETED),
    TaskStatus.FAILED: (TaskStatus.RUNNING,),
    TaskStatus.CANCELLED: (TaskStatus.RUNNING,),
}
"""What people do to work that they do themselves and only keep here, and to subtasks that they
tick off: one commit each, with nothing of ours under way meanwhile."""

APPROVAL: Mapping[ApprovalState, Sequence[ApprovalState]] = {
    ApprovalState.WAITING: (
        ApprovalState.APPROVED,
        ApprovalState.REJECTED,
        ApprovalState.EXPIRED,
    ),
    ApprovalState.APPROVED: (),
    ApprovalState.REJECTED: (),
    ApprovalState.EXPIRED: (),
}

CALL: Mapping[CallState, Sequence[CallState]] = {
    CallState.OPEN: (
        CallState.ALLOWED,
        CallState.DENIED,
        CallState.ANSWERED,
        CallState.CUT,
    ),
    CallState.ALLOWED: (CallState.RUNNING, CallState.CUT),
    CallState.DENIED: (),
    CallState.ANSWERED: (),
    CallState.RUNNING: (CallState.DONE, CallState.FAILED, CallState.CUT),
    CallState.DONE: (),
    CallState.FAILED: (),
    CallState.CUT: (),
}
"""A call that was made or refused moves no more; one that was allowed while its worker was dead
is cut, and its twin takes the decision over."""

HELPER: Mapping[HelperStatus, Sequence[HelperStatus]] = {
    HelperStatus.ACCEPTED: (HelperStatus.RUNNING, HelperStatus.FAILED),
    HelperStatus.RUNNING: (HelperStatus.ACCEPTED, HelperStatus.DONE, HelperStatus.FAILED),
    HelperStatus.DONE: (),
    HelperStatus.FAILED: (),
}

OF_WORKERS = (
    "call.>open",
    "call.>running",
    "call.>denied",
    "helper.>accepted",
    "report.>awaited",
    "report.awaited>told",
    "report.awaited>owed",
    "report.owed>told",
)
"""A report is owed while others of the same talk are at work, and told once."""

NEW = (
    "task.>pending",
    "control.>run",
    "node.>running",
    "node.>waiting",
    "node.>done",
    "node.>skipped",
    "plan.>there",
    "approval.>waiting",
    "event.>untold",
    "inbox.>new",
    "outbox.>queued",
    "button.>open",
)

MAIL = (
    "event.untold>told",
    "inbox.new>handled",
    "outbox.>shown",
    "outbox.queued>tried",
    "outbox.tried>shown",
    "outbox.shown>queued",
    "outbox.tried>queued",
    "button.open>used",
)
"""Messages on their way. What is streamed before it is a card has a place with nothing to show."""

ORDERS = tuple(
    f"order.>{kind}"
    for kind in (
        "pause",
        "resume",
        "stop",
        "retry",
        "priority",
        "message",
        "inject",
        "replan",
        "helper",
    )
)
"""What people order of a task, and its helpers tell it: noted once, with whatever follows."""


def names(noun: str, moves: Mapping[Any, Iterable[Any]]) -> tuple[str, ...]:
    return tuple(f"{noun}.{old}>{new}" for old, news in moves.items() for new in news)


OF_WORK = (
    *names("task", TASK),
    *names("node", NODE),
    *names("control", CONTROL),
    *names("approval", APPROVAL),
    *names("call", CALL),
    *names("helper", HELPER),
)
ALL = (*OF_WORK, *ORDERS, *OF_WORKERS, *NEW, *MAIL, *of_memory.ALL)


def unlisted(noun: str, states: Iterable[Any], moves: Mapping[Any, Iterable[Any]]) -> set[str]:
    """Pairs of these states that are in no list: what must never be seen."""
    every = {f"{noun}.{old}>{new}" for old, new in product(states, repeat=2) if old != new}
    return every - set(names(noun, moves))


FORBIDDEN = (
    (unlisted("task", TaskStatus, TASK) - set(names("task", BY_HAND)))
    | unlisted("node", NodeStatus, NODE)
    | unlisted("control", Control, CONTROL)
    | unlisted("approval", ApprovalState, APPROVAL)
    | unlisted("call", CallState, CALL)
    | unlisted("helper", HelperStatus, HELPER)
    | unlisted("memory", EntryState, of_memory.ENTRY)
    | unlisted("job", JobState, of_memory.JOB)
    | {f"inbox.{state}>{InboxState.NEW}" for state in InboxState}
    | {f"outbox.{OutboxState.DEAD}>{OutboxState.SHOWN}"}
)


def things(rows: Iterable[Sequence[Any]]) -> Things:
    return {(str(noun), str(name)): str(state) for noun, name, state in rows}


def between(before: Things, after: Things) -> list[tuple[str, str]]:
    """The transitions of one commit: each with the name of what made it."""
    made = [
        (f"{key[0]}.{before.get(key, '')}>{state}", key[1])
        for key, state in after.items()
        if before.get(key) != state
    ]
    ended = [
        (f"{key[0]}.{state}>gone", key[1])
        for key, state in before.items()
        if key[0] in of_memory.MORTAL and key not in after
    ]
    return [*made, *ended]
