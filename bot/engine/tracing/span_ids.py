"""Derives stable trace and span IDs from the rows they represent."""

from __future__ import annotations

import hashlib

_TRACE, _SPAN, _TURN = 32, 16, 16
"""Hexadecimal digits, as in W3C Trace Context."""


def task_trace_id(task_id: str) -> str:
    return _hash_id("trace", task_id)[:_TRACE]


def chat_trace_id(chat_id: str, turn: str) -> str:
    """Trace IDs of one chat share a prefix."""
    return f"{chat_trace_prefix(chat_id)}{_hash_id('turn', turn)[:_TURN]}"


def chat_trace_prefix(chat_id: str) -> str:
    return _hash_id("talk", chat_id)[: _TRACE - _TURN]


def answer_span_id(chat_id: str, turn: str) -> str:
    """Return the root span of an answer."""
    return _hash_id("answer", chat_id, turn)[:_SPAN]


def subagent_trace_id(parent_span_id: str) -> str:
    """Sub-agents of a chat have their own trace, because they may outlast the answer."""
    return _hash_id("errand", parent_span_id)[:_TRACE]


def workflow_span_id(task_id: str) -> str:
    return _hash_id("workflow", task_id)[:_SPAN]


def node_span_id(task_id: str, path: str, attempt: int) -> str:
    """Return the span of one attempt."""
    return _hash_id("node", task_id, path, str(attempt))[:_SPAN]


def subagent_span_id(helper_id: str) -> str:
    return _hash_id("helper", helper_id)[:_SPAN]


def tool_span_id(task_id: str, row: int) -> str:
    return _hash_id("tool", task_id, str(row))[:_SPAN]


def _hash_id(*parts: str) -> str:
    return hashlib.sha256("\0".join(("shiftboss", *parts)).encode()).hexdigest()
