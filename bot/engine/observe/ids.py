"""The names of traces and spans that are views of rows: the same row has the same name for ever."""

from __future__ import annotations

import hashlib

_TRACE, _SPAN, _TURN = 32, 16, 16
"""Digits, as W3C Trace Context has them."""


def trace_id(task_id: str) -> str:
    return _name("trace", task_id)[:_TRACE]


def talk_trace(chat_id: str, turn: str) -> str:
    """Traces of one chat begin alike."""
    return f"{talk_prefix(chat_id)}{_name('turn', turn)[:_TURN]}"


def talk_prefix(chat_id: str) -> str:
    return _name("talk", chat_id)[: _TRACE - _TURN]


def talk_span(chat_id: str, turn: str) -> str:
    """An answer as a whole."""
    return _name("answer", chat_id, turn)[:_SPAN]


def errand_trace(parent: str) -> str:
    """What talk has sent off goes on when its answer is there: calls under that span."""
    return _name("errand", parent)[:_TRACE]


def workflow_span(task_id: str) -> str:
    return _name("workflow", task_id)[:_SPAN]


def node_span(task_id: str, path: str, attempt: int) -> str:
    """One try of a node."""
    return _name("node", task_id, path, str(attempt))[:_SPAN]


def helper_span(helper_id: str) -> str:
    return _name("helper", helper_id)[:_SPAN]


def tool_span(task_id: str, row: int) -> str:
    return _name("tool", task_id, str(row))[:_SPAN]


def _name(*parts: str) -> str:
    return hashlib.sha256("\0".join(("shiftboss", *parts)).encode()).hexdigest()
