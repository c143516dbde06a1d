"""The names of traces and spans that are views of rows: the same row has the same name for ever."""

from __future__ import annotations

import hashlib

_TRACE, _SPAN = 32, 16
"""Digits, as W3C Trace Context has them."""


def trace_id(task_id: str) -> str:
    return _name("trace", task_id)[:_TRACE]


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
