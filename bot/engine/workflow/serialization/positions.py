"""Finds the line and column of an error in the text of a workflow, for editors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from bot.engine.workflow.expressions.operations import fold_name
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.serialization.data_parser import (
    YAML_LOADER,
    find_task_lines,
    is_markdown,
    strip_fence,
)

Position = tuple[int, int]
"""Line and column, from 1; both 0 if the place is not known."""

_UNKNOWN: Position = (0, 0)
_MAX_DEPTH = 60
_MAX_ITEMS = 250_000
_SEGMENT = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_OTHER_NAMES = {
    "prompt": ("detail", "description", "instruction"),
    "condition": ("when",),
    "source": ("from",),
    "target": ("to",),
    "persona": ("agent",),
    "nodes": ("steps",),
    "title": ("name",),
}
"""Names under which an author may have written the field that an issue names."""


@dataclass(slots=True)
class _Spot:
    """A value of the text, with the values in it. `entries` are by folded name."""

    line: int
    column: int
    text: str = ""
    entries: dict[str, _Spot] = field(default_factory=dict)
    items: list[_Spot] = field(default_factory=list)

    def get(self, *names: str) -> _Spot | None:
        found = (self.entries.get(fold_name(name)) for name in names)
        return next(filter(None, found), None)


def find_positions(text: str, issues: Sequence[ValidationIssue]) -> list[Position]:
    """The position of each issue, as near as it is known. Blocking."""
    try:
        inside = strip_fence(text)
    except InvalidGraph:
        return [_UNKNOWN] * len(issues)
    above = text.count("\n", 0, max(0, text.find(inside)))
    find: Callable[[ValidationIssue], Position] = _find_nothing
    if all("line" in each.facts for each in issues):
        pass
    elif is_markdown(inside):
        find = _MarkdownIndex(find_task_lines(inside)).find
    elif (root := _read_spots(inside)) is not None:
        find = _DataIndex(root).find
    found = (_own_position(each) or find(each) for each in issues)
    return [(line + above if line else 0, column) for line, column in found]


def _find_nothing(_issue: ValidationIssue) -> Position:
    return _UNKNOWN


def _own_position(issue: ValidationIssue) -> Position | None:
    line, column = issue.facts.get("line"), issue.facts.get("column")
    if not isinstance(line, int):
        return None
    return line, column if isinstance(column, int) else 1


@dataclass(frozen=True, slots=True)
class _MarkdownIndex:
    lines: Mapping[str, int]

    def find(self, issue: ValidationIssue) -> Position:
        for name in reversed(issue.where.split("→")):
            if name in self.lines:
                return self.lines[name], 1
        return _UNKNOWN


class _DataIndex:
    """The nodes, edges and inputs of a text by their names in issues."""

    def __init__(self, root: _Spot) -> None:
        inner = root.get("workflow")
        self._root = inner if inner is not None and len(root.entries) == 1 else root
        self._named: dict[str, list[_Spot]] = defaultdict(list)
        self._inputs: dict[str, list[_Spot]] = defaultdict(list)
        for section in ("nodes", "steps", "edges", "inputs"):
            names = self._inputs if section == "inputs" else self._named
            whole = self._root.get(section) or _Spot(0, 0)
            for name, each in whole.entries.items():
                names[name].append(each)
            for number, each in enumerate(whole.items, 1):
                for name in {f"{section}[{number}]", *_names_of(each)}:
                    names[fold_name(name)].append(each)

    def find(self, issue: ValidationIssue) -> Position:
        segments = [found[1] or found[2] for found in _SEGMENT.finditer(issue.field)]
        within = [self._root]
        if issue.where:
            is_input = segments[:1] == ["inputs"]
            segments = segments[1:] if is_input else segments
            within = (self._inputs if is_input else self._named)[fold_name(issue.where)]
        if issue.key == "twice":
            # The second of two with one name is the mistake.
            within = within[-1:]
        found = [_walk(each, segments) for each in within]
        _, spot = max(found, key=lambda each: each[0], default=(0, self._root))
        return _UNKNOWN if spot is self._root else (spot.line, spot.column)


def _walk(spot: _Spot, segments: Sequence[str]) -> tuple[int, _Spot]:
    """How many parts of the path there are, and where the last of them is."""
    for depth, segment in enumerate(segments):
        if segment.isdecimal():
            found = next(iter(spot.items[int(segment) - 1 : int(segment)]), None)
        else:
            found = spot.get(segment, *_OTHER_NAMES.get(segment, ()))
        if found is None:
            return depth, spot
        spot = found
    return len(segments), spot


def _names_of(spot: _Spot) -> set[str]:
    """As issues name it."""
    names = {each.text.strip()[:64] for name in ("id", "name") if (each := spot.get(name))}
    source, target = spot.get("from", "source"), spot.get("to", "target")
    if source is not None and target is not None:
        names.add(f"{source.text.strip()}→{target.text.strip()}"[:100])
    return names - {""}


def _read_spots(text: str) -> _Spot | None:
    """The values of a text that was read before; None if it cannot be read as YAML."""
    top: list[_Spot] = []
    open_: list[tuple[_Spot, bool]] = []
    key: list[tuple[str, Position] | None] = []
    try:
        for count, event in enumerate(yaml.parse(text, Loader=YAML_LOADER)):
            if count > _MAX_ITEMS or len(open_) > _MAX_DEPTH:
                return None
            if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                open_.pop()
                key.pop()
            elif isinstance(event, yaml.NodeEvent):
                _take(event, top, open_, key)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return top[0] if top else None


def _take(
    event: Any,
    top: list[_Spot],
    open_: list[tuple[_Spot, bool]],
    key: list[tuple[str, Position] | None],
) -> None:
    mark = event.start_mark
    spot = _Spot(mark.line + 1, mark.column + 1, text=str(getattr(event, "value", "")))
    if not open_:
        top.append(spot)
    else:
        parent, is_mapping = open_[-1]
        if not is_mapping:
            parent.items.append(spot)
        elif key[-1] is None:
            key[-1] = (spot.text, (spot.line, spot.column))
            return
        else:
            name, place = key[-1]
            # A name leads to a list or an empty value better than the value does.
            if not spot.text:
                spot.line, spot.column = place
            parent.entries[fold_name(name)] = spot
            key[-1] = None
    if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
        open_.append((spot, isinstance(event, yaml.MappingStartEvent)))
        key.append(None)
