"""Finds the place of an issue in the text of a workflow, with what the author wrote there."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from bot.engine.workflow.expressions.operations import fold_name
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.serialization.data_parser import YAML_LOADER, strip_fence
from bot.engine.workflow.serialization.markdown_parser import (
    MarkdownPlace,
    find_markdown_places,
    is_markdown,
)

_MAX_DEPTH = 60
_MAX_ITEMS = 250_000
_MAX_WRITTEN = 80
_LARGEST = 10**18
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_SEGMENT = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NUMBER = re.compile(r"[-+]?\d{18,}(?:\.\d*)?|[-+]?\d+(?:\.\d*)?[eE]\+?\d{2,3}")
_OTHER_NAMES = {
    "prompt": ("detail", "description", "instruction", "name", "title", "deliverables"),
    "condition": ("when",),
    "source": ("from",),
    "target": ("to",),
    "persona": ("agent",),
    "nodes": ("steps",),
    "title": ("name",),
    "targetNode": ("target", "to"),
    "enum": ("options", "choices", "values"),
    "options": ("choices", "enum"),
    "bodyNodes": ("body", "nodes"),
    "collection": ("items",),
    "expression": (),
    "defaultTarget": ("default",),
    "loopVar": ("var",),
    "datetime": ("at", "time"),
    "timezone": ("tz",),
    "outputVar": ("output",),
    "retry": ("retries",),
    "onCancel": ("compensation",),
}
"""Names under which an author may have written the field that an issue names."""
_ABOUT_NAMES = {"unknown_field", "reserved_name", "given_twice", "wrong_config", "foreign_field"}
"""Issues that are about the name of a field rather than its value."""
_MARKDOWN_NAMES = {
    **dict.fromkeys(("retry", "maxAttempts"), "retries"),
    "source": "after",
    "target": "after",
    "condition": "when",
}
"""Fields of a Markdown task by the last part of an issue's field."""


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A place in the text of a workflow: line and column from 1, both 0 if unknown. `field` is the
    path of the field in the author's spelling, `written` the author's text there.
    """

    line: int = 0
    column: int = 0
    field: str = ""
    written: str = ""


_UNKNOWN = TextPlace()


@dataclass(slots=True)
class _Spot:
    """A value in the text, with the values inside it. `name` is the key before it as it is written,
    at `name_place`; `end` is the offset behind it. `entries` are keyed by folded name.
    """

    line: int
    column: int
    text: str = ""
    name: str = ""
    name_place: tuple[int, int] = (0, 0)
    start: int = 0
    end: int = 0
    entries: dict[str, _Spot] = field(default_factory=dict)
    items: list[_Spot] = field(default_factory=list)

    def get(self, *names: str) -> _Spot | None:
        found = (self.entries.get(fold_name(name)) for name in names)
        return next(filter(None, found), None)

    def walk(self) -> Iterator[_Spot]:
        yield self
        for each in (*self.entries.values(), *self.items):
            yield from each.walk()


def find_places(text: str, issues: Sequence[ValidationIssue]) -> list[TextPlace]:
    """The place of each issue, as precisely as it is known. Blocking."""
    try:
        inside = strip_fence(text)
    except InvalidGraph:
        return [_UNKNOWN] * len(issues)
    above = text.count("\n", 0, max(0, text.find(inside)))
    source = _Source(inside)
    find: Callable[[ValidationIssue], TextPlace] = _find_nothing
    if all("line" in each.facts for each in issues):
        pass
    elif is_markdown(inside):
        find = _MarkdownIndex(source, find_markdown_places(inside)).find
    elif (spots := _read_spots(source)) is not None:
        find = _DataIndex(source, *spots).find
    found = (_own_place(source, each) or find(each) for each in issues)
    return [replace(each, line=each.line + above) if each.line else each for each in found]


def _find_nothing(_issue: ValidationIssue) -> TextPlace:
    return _UNKNOWN


class _Source:
    """A text by lines, counted as editors and YAML do."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """Line and column count from 1."""
        return self._starts[min(line, len(self._starts)) - 1] + column - 1

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_at(self, line: int) -> str:
        first = self._starts[min(line, len(self._starts)) - 1]
        return _LINE_END.split(self.text[first : first + 2_000], maxsplit=1)[0]

    def find(self, written: str, start: int, end: int) -> int:
        """The offset of the text in a part of this one, or -1. White space may be broken into
        lines there, quotes may be escaped."""
        at = self.text.find(written, start, end)
        if at < 0 and written.strip():
            words = r"\s+".join(
                re.escape(each).replace('"', r'\\?"').replace("'", "''?")
                for each in written.split()
            )
            found = re.compile(words).search(self.text, start, end)
            at = found.start() if found else -1
        return at


def _own_place(source: _Source, issue: ValidationIssue) -> TextPlace | None:
    line, column = issue.facts.get("line"), issue.facts.get("column")
    if not isinstance(line, int):
        return None
    return TextPlace(
        line,
        column if isinstance(column, int) else 1,
        field=issue.field,
        written=_shorten(issue.written or issue.field or source.line_at(line)),
    )


def _shorten(text: str) -> str:
    line = " ".join(text[: 4 * _MAX_WRITTEN].split())
    return line if len(line) <= _MAX_WRITTEN else f"{line[: _MAX_WRITTEN - 1]}…"


@dataclass(frozen=True, slots=True)
class _MarkdownIndex:
    source: _Source
    places: Mapping[str, Mapping[str, MarkdownPlace]]

    def find(self, issue: ValidationIssue) -> TextPlace:
        own = issue.field.rpartition(".")[2]
        names = (own, _MARKDOWN_NAMES.get(own, ""), "")
        for where in (issue.where, *reversed(issue.where.split("→"))):
            fields = self.places.get(where)
            if fields is None:
                continue
            found = next(fields[name] for name in names if name in fields)
            if issue.written and issue.written not in found.value:
                others = (each for each in fields.values() if issue.written in each.value)
                found = next(others, found)
            start = self.source.offset(found.line, 1)
            at = self.source.find(issue.written, start, start + 2_000) if issue.written else -1
            line, column = (
                (found.line, found.column) if at < 0 else self.source.place(at + issue.at)
            )
            return TextPlace(line, column, found.name, _shorten(issue.written or found.value))
        return _UNKNOWN


class _DataIndex:
    """The nodes, edges and inputs of a text by their names in issues. `again` holds names that are
    set twice in one mapping.
    """

    def __init__(self, source: _Source, root: _Spot, again: Mapping[str, list[_Spot]]) -> None:
        inner = root.get("workflow")
        self._source = source
        self._root = inner if inner is not None and len(root.entries) == 1 else root
        self._again = {name: iter(each) for name, each in again.items()}
        self._named: dict[str, list[_Spot]] = defaultdict(list)
        self._inputs: dict[str, list[_Spot]] = defaultdict(list)
        for section in ("nodes", "steps", "edges", "inputs"):
            names = self._inputs if section == "inputs" else self._named
            whole = self._root.get(section) or _Spot(0, 0)
            for name, each in whole.entries.items():
                names[name].append(each)
            for number, each in enumerate(whole.items, 1):
                # Issues of `steps` speak of `nodes`.
                place = f"{'nodes' if section == 'steps' else section}[{number}]"
                for name in {place, *_names_of(each)}:
                    names[fold_name(name)].append(each)
            for name, each in [*_undoing_nodes(whole)] if section in {"nodes", "steps"} else ():
                names[fold_name(name)].append(each)

    def find(self, issue: ValidationIssue) -> TextPlace:
        if issue.key == "given_twice" and (
            spot := next(self._again.get(issue.field, iter(())), None)
        ):
            return TextPlace(spot.line, spot.column, spot.name, spot.name)
        if issue.key == "bad_number":
            large = (each for each in self._root.walk() if _is_large(each.text))
            spot = next(large, self._root)
            return TextPlace(spot.line, spot.column, spot.name, _shorten(spot.text))
        segments = [found[1] or found[2] for found in _SEGMENT.finditer(issue.field)]
        head: list[str] = []
        within = [self._root]
        if issue.where:
            is_input = segments[:1] == ["inputs"]
            if is_input:
                head, segments = segments[:1], segments[1:]
            within = (self._inputs if is_input else self._named)[fold_name(issue.where)]
        if issue.key == "twice":
            # The second of two with one name is the mistake.
            within = within[-1:]
        found = [_walk(each, segments) for each in within]
        path, rest, spot = min(
            found, key=lambda each: len(each[1]), default=((), segments, self._root)
        )
        is_found = bool(segments) and not rest
        path = (*head, *path, *rest)
        if is_found and issue.key in _ABOUT_NAMES:
            return TextPlace(*spot.name_place, _join(path), _shorten(spot.name))
        return self._place(issue, path, spot, within[0] if within else self._root)

    def _place(
        self, issue: ValidationIssue, path: Sequence[str], spot: _Spot, owner: _Spot
    ) -> TextPlace:
        if issue.written:
            for part in (spot, owner):
                at = self._source.find(issue.written, part.start, part.end)
                if at >= 0:
                    line, column = self._source.place(at + issue.at)
                    return TextPlace(line, column, _join(path), _shorten(issue.written))
        written = issue.written or spot.text
        return TextPlace(spot.line, spot.column, _join(path), _shorten(written))


def _is_large(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and abs(float(text)) > _LARGEST


def _join(path: Sequence[str]) -> str:
    text = ""
    for each in path:
        text += f"[{each}]" if each.isdecimal() else f".{each}" if text else each
    return text


def _walk(spot: _Spot, segments: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str], _Spot]:
    """Follow the path as far as it exists. Return that part in the author's spelling, the rest of
    the path, and the value reached. Settings may stand in `config` or in the node itself.
    """
    path: tuple[str, ...] = ()
    for n, segment in enumerate(segments):
        if segment.isdecimal():
            items = spot.items or [*spot.entries.values()]
            found = next(iter(items[int(segment) - 1 : int(segment)]), None)
        else:
            found = spot.get(segment, *_OTHER_NAMES.get(segment, ()))
            if found is None and n == 0 and len(segments) > 1:
                if (block := spot.get("config", f"{segment}Config")) is not None:
                    found = block
                elif spot.get(segments[1], *_OTHER_NAMES.get(segments[1], ())) is not None:
                    continue
        if found is None:
            return path, segments[n:], spot
        path = (*path, segment if segment.isdecimal() else found.name or segment)
        spot = found
    return path, (), spot


def _names_of(spot: _Spot) -> set[str]:
    """The names under which issues refer to the entry."""
    names = {each.text.strip()[:64] for name in ("id", "name") if (each := spot.get(name))}
    source, target = spot.get("from", "source"), spot.get("to", "target")
    if source is not None and target is not None:
        names.add(f"{source.text.strip()}→{target.text.strip()}"[:100])
    return names - {""}


def _undoing_nodes(nodes: _Spot) -> Iterator[tuple[str, _Spot]]:
    """The compensations that are written inside the nodes that they undo."""
    for name, each in (*nodes.entries.items(), *((_id_of(item), item) for item in nodes.items)):
        inside = each.get("onCancel", "compensation")
        if inside is not None and inside.entries:
            yield _id_of(inside) or f"{name}_undo", inside


def _id_of(spot: _Spot) -> str:
    found = spot.get("id")
    return found.text.strip()[:64] if found is not None else ""


def _read_spots(source: _Source) -> tuple[_Spot, dict[str, list[_Spot]]] | None:
    """The values of a text that was read before, and the names that are set twice; None if it
    cannot be read as YAML."""
    builder = _SpotBuilder(source)
    try:
        for count, event in enumerate(yaml.parse(source.text, Loader=YAML_LOADER)):
            if count > _MAX_ITEMS or len(builder.open) > _MAX_DEPTH:
                return None
            builder.take(event)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return (builder.top[0], builder.again) if builder.top else None


@dataclass(slots=True)
class _SpotBuilder:
    """`open` holds the mappings and lists that are not finished; `_keys` the name of the next value
    in each."""

    source: _Source
    top: list[_Spot] = field(default_factory=list)
    open: list[tuple[_Spot, bool]] = field(default_factory=list)
    again: dict[str, list[_Spot]] = field(default_factory=lambda: defaultdict(list))
    _keys: list[_Spot | None] = field(default_factory=list)

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            spot, _ = self.open.pop()
            self._keys.pop()
            spot.end = self._offset(event.end_mark)
        elif isinstance(event, yaml.NodeEvent):
            added = self._add(event)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            if added is not None and (is_mapping or isinstance(event, yaml.SequenceStartEvent)):
                self.open.append((added, is_mapping))
                self._keys.append(None)

    def _add(self, event: Any) -> _Spot | None:
        """None for a name."""
        mark = event.start_mark
        spot = _Spot(
            mark.line + 1,
            mark.column + 1,
            text=str(getattr(event, "value", "")),
            start=self._offset(mark),
            end=self._offset(event.end_mark),
        )
        if not self.open:
            self.top.append(spot)
            return spot
        parent, is_mapping = self.open[-1]
        if not is_mapping:
            parent.items.append(spot)
            return spot
        key = self._keys[-1]
        if key is None:
            spot.name = spot.text
            self._keys[-1] = spot
            if fold_name(spot.text) in parent.entries:
                self.again[spot.text[:60]].append(spot)
            return None
        # A name leads to a list or an empty value better than the value does.
        if not spot.text:
            spot.line, spot.column = key.line, key.column
        spot.name, spot.name_place = key.text, (key.line, key.column)
        parent.entries.setdefault(fold_name(key.text), spot)
        self._keys[-1] = None
        return spot

    def _offset(self, mark: Any) -> int:
        return self.source.offset(mark.line + 1, mark.column + 1)
