"""A workflow's run, as it is printed when it is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.app.terminal.workflow import Node, Ran

_LINE = 160
_SPANS = 60


def ran_data(ran: Ran) -> dict[str, Any]:
    """For programs."""
    from cards.plain import view_data
    from cards.views.work.trace_data import trace_data

    return {
        "task": view_data(ran.view),
        "nodes": [_node_data(each) for each in ran.nodes],
        "outputs": dict(ran.outputs),
        "missing_outputs": dict(ran.missing),
        "waits_for": [{"id": each.id, "title": each.title} for each in ran.waits_for],
        "spans": trace_data(ran.trace)["spans"],
    }


def ran_lines(ran: Ran) -> Iterator[str]:
    """For people."""
    from cards.views.work.traces import tree_lines
    from cards.words import words_for
    from storage.records.people import Language

    task = ran.view.task
    yield f"{task.id}  {task.status}  {task.title}"
    if task.status_reason:
        yield f"  {_line(task.status_reason)}"
    for node in ran.nodes:
        title = node.title if node.title != node.path else ""
        told = node.run.error or _brief(node)
        parts = (f"  {node.state:<8} {node.path}", title, _line(told))
        yield "  ".join(filter(None, parts))
    for name, value in ran.outputs.items():
        yield f"{name} = {_line(value)}"
    for name, why in ran.missing.items():
        yield f"{name} is left empty: {_line(why)}"
    for each in ran.waits_for:
        yield f"nothing goes on until somebody decides: {each.title} (shiftboss approve {each.id})"
    if ran.waits_for:
        yield "then `shiftboss dispatch` or `shiftboss run` goes on with it"
    yield from ("", *tree_lines(ran.trace, words_for(Language.ENGLISH), most=_SPANS))


def _node_data(node: Node) -> dict[str, Any]:
    return {
        "path": node.path,
        "node": node.id,
        "type": node.type,
        "title": node.title,
        "state": node.state,
        "attempt": node.run.attempt,
        "output": _output(node),
        "error": node.run.error,
    }


def _output(node: Node) -> dict[str, Any]:
    from bot.engine.workflow.routing.results import is_inner, plain

    told = {name: plain(each) for name, each in node.run.output.items() if not is_inner(name)}
    if "_raw" in told:
        told["result"] = told.pop("_raw")
    return told


def _brief(node: Node) -> object:
    output = node.run.output
    return next((output[name] for name in ("summary", "value") if output.get(name)), "")


def _line(value: object) -> str:
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(whole.split())
    return text if len(text) <= _LINE else f"{text[:_LINE]}…"
