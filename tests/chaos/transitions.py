"""Every state transition that the store can be seen to make, by name, and how it is seen.

A transition is written `noun.from>to`; what is new comes from nothing: `task.>pending`. The lists
are complete on purpose: whatever a process makes and is not here is a fault, of the program or of
the list, and whatever is here is died at (`test_every_transition`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from storage.records.approvals import ApprovalState, ToolCallState
from storage.records.memory import ExtractionJobState, MemoryState
from storage.records.messages import InboxState, OutboxState
from storage.records.tasks import NodeStatus, SubagentStatus, TaskControl, TaskStatus
from tests.chaos.memory import transitions as of_memory

States: TypeAlias = Mapping[tuple[str, str], str]
"""The state of each thing, by noun and name."""

STATE_QUERY = f"""
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
UNION ALL SELECT 'turn', id, CASE WHEN open_turn = '' THEN 'complete' ELSE 'open' END FROM sessions
UNION ALL SELECT 'request', id, 'sent' FROM pending_model_calls
UNION ALL SELECT 'bill', CAST(id AS TEXT), 'booked' FROM usage
UNION ALL SELECT 'helper', id, status FROM helpers
UNION ALL SELECT 'schedule', id, state FROM schedules WHERE kind IN ('reminder', 'job')
UNION ALL SELECT 'firing', CAST(f.id AS TEXT), f.state FROM firings f
    JOIN schedules s ON s.id = f.schedule_id WHERE s.kind IN ('reminder', 'job')
UNION ALL SELECT 'report', id, CASE WHEN delivered_at IS NOT NULL THEN 'told'
    WHEN status IN ('done', 'failed') THEN 'owed' ELSE 'awaited' END FROM helpers
{of_memory.STATE_QUERY}"""
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
    NodeStatus.WAITING: (NodeStatus.DONE, NodeStatus.CANCELLED),
    NodeStatus.DONE: (),
    NodeStatus.FAILED: (NodeStatus.RUNNING, NodeStatus.PENDING),
    NodeStatus.SKIPPED: (),
    # No story has a step that runs when a join ends it: test_cancelling_join dies at its commits.
    NodeStatus.CANCELLED: (),
}

CONTROL = {
    TaskControl.RUN: (TaskControl.PAUSE, TaskControl.YIELD),
    TaskControl.PAUSE: (TaskControl.RUN,),
    TaskControl.YIELD: (TaskControl.RUN, TaskControl.PAUSE),
}

MANUAL = {
    TaskStatus.PENDING: (TaskStatus.BLOCKED, TaskStatus.COMPLETED),
    TaskStatus.RUNNING: (),
    TaskStatus.WAITING: (TaskStatus.RUNNING, TaskStatus.COMPLETED),
    TaskStatus.PAUSED: (TaskStatus.RUNNING, TaskStatus.BLOCKED, TaskStatus.COMPLETED),
    TaskStatus.BLOCKED: (TaskStatus.RUNNING, TaskStatus.COMPLETED),
    TaskStatus.FAILED: (TaskStatus.RUNNING,),
    TaskStatus.CANCELLED: (TaskStatus.RUNNING,),
}
"""People's actions on work that they do themselves and only track here, and to subtasks that they
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

CALL: Mapping[ToolCallState, Sequence[ToolCallState]] = {
    ToolCallState.OPEN: (
        ToolCallState.ALLOWED,
        ToolCallState.DENIED,
        ToolCallState.ANSWERED,
        ToolCallState.CUT,
    ),
    ToolCallState.ALLOWED: (ToolCallState.RUNNING, ToolCallState.CUT),
    ToolCallState.DENIED: (),
    ToolCallState.ANSWERED: (),
    ToolCallState.RUNNING: (ToolCallState.DONE, ToolCallState.FAILED, ToolCallState.CUT),
    ToolCallState.DONE: (),
    ToolCallState.FAILED: (),
    ToolCallState.CUT: (),
}
"""A call that was made or refused moves no more; one that was allowed while its worker was dead
is cut, and its twin takes the decision over."""

HELPER: Mapping[SubagentStatus, Sequence[SubagentStatus]] = {
    SubagentStatus.ACCEPTED: (SubagentStatus.RUNNING, SubagentStatus.FAILED),
    SubagentStatus.RUNNING: (SubagentStatus.ACCEPTED, SubagentStatus.DONE, SubagentStatus.FAILED),
    SubagentStatus.DONE: (),
    SubagentStatus.FAILED: (),
}

WORKER_TRANSITIONS = (
    "turn.>complete",
    "turn.complete>open",
    "turn.open>complete",
    "request.>sent",
    "bill.>booked",
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

CREATIONS = (
    "task.>pending",
    "control.>run",
    "node.>running",
    "node.>waiting",
    "node.>done",
    "node.>skipped",
    "node.>cancelled",
    "node.>pending",
    "plan.>there",
    "approval.>waiting",
    "event.>untold",
    "inbox.>new",
    "outbox.>queued",
    "button.>open",
)

MESSAGE_TRANSITIONS = (
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

COMMAND_TRANSITIONS = tuple(
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
"""People's commands to a task and its helpers' reports: recorded once, with their effects."""


SCHEDULE_TRANSITIONS = (
    "schedule.>proposed",
    "schedule.proposed>active",
    "schedule.active>paused",
    "schedule.paused>active",
    "schedule.active>ended",
    "firing.>sent",
    "firing.>started",
    "firing.sent>done",
    "firing.started>done",
)


def transition_names(noun: str, moves: Mapping[Any, Iterable[Any]]) -> tuple[str, ...]:
    return tuple(f"{noun}.{old}>{new}" for old, news in moves.items() for new in news)


ALL_STATE_CHANGES = (
    *transition_names("task", TASK),
    *transition_names("node", NODE),
    *transition_names("control", CONTROL),
    *transition_names("approval", APPROVAL),
    *transition_names("call", CALL),
    *transition_names("helper", HELPER),
)
ALL_TRANSITIONS = (
    *ALL_STATE_CHANGES,
    *COMMAND_TRANSITIONS,
    *WORKER_TRANSITIONS,
    *CREATIONS,
    *MESSAGE_TRANSITIONS,
    *SCHEDULE_TRANSITIONS,
    *of_memory.ALL_TRANSITIONS,
)


def unlisted_transitions(
    noun: str, states: Iterable[Any], moves: Mapping[Any, Iterable[Any]]
) -> set[str]:
    """Pairs of these states that are in no list: what must never be seen."""
    every = {f"{noun}.{old}>{new}" for old, new in product(states, repeat=2) if old != new}
    return every - set(transition_names(noun, moves))


FORBIDDEN = (
    (unlisted_transitions("task", TaskStatus, TASK) - set(transition_names("task", MANUAL)))
    | unlisted_transitions("node", NodeStatus, NODE)
    | unlisted_transitions("control", TaskControl, CONTROL)
    | unlisted_transitions("approval", ApprovalState, APPROVAL)
    | unlisted_transitions("call", ToolCallState, CALL)
    | unlisted_transitions("helper", SubagentStatus, HELPER)
    | unlisted_transitions("memory", MemoryState, of_memory.ENTRY)
    | unlisted_transitions("job", ExtractionJobState, of_memory.JOB)
    # What was held back is handled if somebody says so.
    | {f"inbox.{state}>{InboxState.NEW}" for state in InboxState if state is not InboxState.HELD}
    | {f"outbox.{OutboxState.DEAD}>{OutboxState.SHOWN}"}
)


def read_states(rows: Iterable[Sequence[Any]]) -> States:
    return {(str(noun), str(name)): str(state) for noun, name, state in rows}


def diff_states(before: States, after: States) -> list[tuple[str, str]]:
    """The transitions of one commit: each with the name of what made it."""
    made = [
        (f"{key[0]}.{before.get(key, '')}>{state}", key[1])
        for key, state in after.items()
        if before.get(key) != state
    ]
    ended = [
        (f"{key[0]}.{state}>gone", key[1])
        for key, state in before.items()
        if key[0] in of_memory.DELETABLE and key not in after
    ]
    return [*made, *ended]
