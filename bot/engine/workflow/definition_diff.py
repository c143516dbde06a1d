"""Finds what differs between two definitions of a workflow: nodes, edges and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bot.engine.workflow.definition import Workflow, dump_workflow
from storage.records.workflows import ChangeKind, DefinitionChange

_SETTINGS = ("name", "plan", "inputs", "variables", "outputs", "timeout", "parallel")
_IGNORED_FIELDS = frozenset({"given", "used"})
"""Fields of nodes that come from a run."""

_MAX_VALUE = 2_000


def diff_workflows(old: Workflow, new: Workflow) -> tuple[DefinitionChange, ...]:
    """The changes from `old` to `new`: first settings, then nodes in their order, then edges. A
    different order of nodes, or different input values of a run, is no change.
    """
    before, after = dump_workflow(old), dump_workflow(new)
    settings = ({name: each[name] for name in _SETTINGS} for each in (before, after))
    return (
        *_changed_fields("", "setting", *settings),
        *_changed_items("node", _nodes_of(before), _nodes_of(after)),
        *_changed_items("edge", _edges_of(before), _edges_of(after)),
    )


def _nodes_of(body: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {
        node["id"]: {
            name: value
            for name, value in _flat(node)
            if name not in _IGNORED_FIELDS and name != "id"
        }
        for node in body["nodes"]
    }


def _flat(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings of a node as one mapping: those of its type stand beside its own."""
    for name, value in node.items():
        if name == "config" and isinstance(value, Mapping):
            yield from ((key, each) for key, each in value.items() if key != "kind")
        else:
            yield name, value


def _edges_of(body: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Edges by their two ends; further edges between the same nodes are numbered."""
    edges: dict[str, Mapping[str, Any]] = {}
    for edge in body["edges"]:
        name = f"{edge['source']} → {edge['target']}"
        n = sum(known == name or known.startswith(f"{name} (") for known in edges)
        fields = ("condition", "max_loops", "on_limit", "label")
        edges[f"{name} ({n + 1})" if n else name] = {each: edge[each] for each in fields}
    return edges


def _changed_items(
    what: str, old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> Iterator[DefinitionChange]:
    for name, fields in old.items():
        if name not in new:
            title = str(fields.get("title", ""))
            yield DefinitionChange(kind=ChangeKind.REMOVED, what=what, name=name, before=title)
        else:
            yield from _changed_fields(name, what, fields, new[name])
    for name, fields in new.items():
        if name not in old:
            title = str(fields.get("title", ""))
            yield DefinitionChange(kind=ChangeKind.ADDED, what=what, name=name, after=title)


def _changed_fields(
    name: str, what: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[DefinitionChange]:
    for field in dict.fromkeys((*old, *new)):
        before, after = old.get(field), new.get(field)
        if before != after:
            yield DefinitionChange(
                kind=ChangeKind.CHANGED,
                what=what,
                name=name,
                field=field,
                before=_as_text(before),
                after=_as_text(after),
            )


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:_MAX_VALUE]
