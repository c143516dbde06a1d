"""Tolerant reading of user-written mappings, field by field, and of durations such as `90`, `30m`,
`1h 30m` or `2 天`. Also holds the issues found in them, and checks that several node types share.

A field of the wrong kind is reported and counts as missing, so one pass finds all issues.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from pydantic import JsonValue

from bot.engine.workflow.expressions.operations import fold_name

_VARIABLE_NAME = re.compile(r"[^\W\d]\w{0,63}")
_MAX_SECONDS = 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationIssue:
    """One issue. `where` is the node or edge, empty for the whole workflow; `field` is the part of
    it. `key` names a text under `workflow.fault` in the catalogue, filled with `facts`.

    `written` is the part of the author's text in that field that the issue is about, such as an
    expression; if empty, the whole field. `at` is the offset of the mistake in it. `suggestion` is
    what the author may have meant. A fact named `reason` is a key under `workflow.expression`.
    """

    key: str
    where: str = ""
    field: str = ""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    written: str = ""
    at: int = 0
    suggestion: str = ""

    def __str__(self) -> str:
        place = ".".join(filter(None, (self.where, self.field)))
        facts = ", ".join(f"{name} {value!r}" for name, value in self.facts.items())
        return " ".join(filter(None, (place + ":" if place else "", self.key, facts)))


class InvalidGraph(ValueError):
    """The workflow cannot run. `issues` lists every reason."""

    def __init__(self, issues: Iterable[ValidationIssue]) -> None:
        self.issues = tuple(issues)
        super().__init__("; ".join(map(str, self.issues)))


def variable_name_issues(name: str, field: str) -> Iterator[ValidationIssue]:
    """Check a variable name."""
    if not _VARIABLE_NAME.fullmatch(name):
        yield ValidationIssue(key="bad_name", field=field, facts={"name": name[:40]}, written=name)


class _Titled(Protocol):
    @property
    def title(self) -> str: ...


def unknown_node_issue(
    name: str, field: str, known: Collection[str] | Mapping[str, _Titled], *, where: str = ""
) -> ValidationIssue:
    """The issue that a field names a node that the workflow does not have. The author may have
    meant a title."""
    facts = {"node": name[:60]}
    nodes = known if isinstance(known, Mapping) else {}
    titles = {fold_name(node.title): each for each, node in nodes.items()}
    alike = titles.get(fold_name(name)) or similar_name(name, known)
    alike = alike or titles.get(similar_name(name, titles), "")
    return ValidationIssue(
        key="unknown_node", where=where, field=field, facts=facts, written=name, suggestion=alike
    )


def duration_issues(
    seconds: float | None, field: str, *, where: str = "", zero: bool = False
) -> Iterator[ValidationIssue]:
    """Check that a duration is positive and at most a year; `zero` also allows 0. None is valid."""
    if seconds is None or 0 < seconds <= _MAX_SECONDS or (zero and seconds == 0):
        return
    yield ValidationIssue(key="bad_duration", where=where, field=field)


def range_issues(
    n: float, field: str, least: int, most: int, *, where: str = ""
) -> Iterator[ValidationIssue]:
    """Check that a number lies between `least` and `most`."""
    if not least <= n <= most:
        facts = {"least": least, "most": most}
        yield ValidationIssue(key="out_of_range", where=where, field=field, facts=facts)


def similar_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name that is most similar to this one; empty if none is similar."""
    folded = {fold_name(each): each for each in known}
    alike = get_close_matches(fold_name(name), folded, n=1, cutoff=cutoff)
    return folded[alike[0]] if alike and folded[alike[0]] != name else ""


def usable_id(written: str, taken: Container[str]) -> str:
    """The id of a node as its author may have meant it; empty if there is none, or it is taken."""
    plain = re.sub(r"\W+", "_", written, flags=re.ASCII).strip("_")[:_MAX_NAME]
    return plain if plain[:1].isalpha() and plain not in taken else ""


_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_SPELLED = {
    "": "s",
    "毫秒": "ms",
    **dict.fromkeys(("sec", "secs", "second", "seconds", "秒", "秒钟"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分", "分钟"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours", "时", "小时"), "h"),
    **dict.fromkeys(("day", "days", "天", "日"), "d"),
    **dict.fromkeys(("week", "weeks", "周", "星期"), "w"),
}
_DURATION_PART = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([^\W\d_]*)\s*")
_MAX_DURATION_TEXT = 100
_MAX_DURATION = 1e15


def parse_duration(value: object, unit: str = "s") -> float | None:
    """Return seconds, or None for an invalid duration. `unit` applies to plain numbers."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    factor = _unit_seconds(unit)
    if factor is None:
        return None
    if isinstance(value, int | float):
        return value * factor if abs(value) < _MAX_DURATION and math.isfinite(value) else None
    return _parse_duration_text(value.strip(), factor)


def _parse_duration_text(text: str, factor: float) -> float | None:
    if not text or len(text) > _MAX_DURATION_TEXT:
        return None
    at, total = 0, 0.0
    while at < len(text):
        found = _DURATION_PART.match(text, at)
        if found is None:
            return None
        own = _unit_seconds(found[2]) if found[2] else factor
        if own is None:
            return None
        total += float(found[1]) * own
        at = found.end()
    return total


def unit_names() -> frozenset[str]:
    """All names of units of time."""
    return frozenset({*_UNITS, *_SPELLED} - {""})


def _unit_seconds(unit: str) -> float | None:
    known = unit.strip().casefold()
    return _UNITS.get(_SPELLED.get(known, known))


MAX_TEXT = 100_000
"""Maximum length of a text field."""

_MAX_UNKNOWN_FIELDS = 20
_MAX_NAME = 40
_SIMILARITY_CUTOFF = 0.75
_MAX_NUMBER = 1e15
_Choice = TypeVar("_Choice", bound=StrEnum)
_Word = TypeVar("_Word", bound=str)


class FieldReader:
    """Reads one mapping. `where` is its node or edge; `path` is the field within that. Problems are
    added to `issues`."""

    def __init__(
        self,
        values: Mapping[str, Any],
        issues: list[ValidationIssue],
        *,
        where: str = "",
        path: str = "",
    ) -> None:
        self.where = where
        self.issues = issues
        self.path = path
        self._values: dict[str, Any] = {}
        self._written_names: dict[str, str] = {}
        self._requested: dict[str, str] = {}
        for name, value in values.items():
            folded = fold_name(name)
            if folded in self._values:
                self.add("given_twice", name)
                continue
            self._values[folded], self._written_names[folded] = value, name

    def add(self, key: str, field: str, *, suggestion: str = "", **facts: object) -> None:
        self.issues.append(
            ValidationIssue(
                key=key,
                where=self.where,
                field=self._field_path(field),
                facts=facts,
                suggestion=suggestion,
            )
        )

    def has(self, *names: str) -> bool:
        return any(self._values.get(fold_name(name)) is not None for name in names)

    def take(self, *names: str) -> Any:
        """The value of the first of these names that is present, or None."""
        for name in names:
            self._requested.setdefault(fold_name(name), name)
        return next((self._values[fold_name(name)] for name in names if self.has(name)), None)

    def text(self, *names: str, default: str = "", limit: int = MAX_TEXT) -> str:
        value = self.take(*names)
        if value is None:
            return default
        text = scalar_text(value)
        if text is None:
            self.add("not_a_text", names[0])
            return default
        if len(text) > limit:
            self.add("too_long", names[0], most=limit)
            return default
        return text

    def word(self, *names: str, default: str = "", limit: int = 2_000) -> str:
        """A text without surrounding whitespace."""
        return self.text(*names, default=default, limit=limit).strip() or default

    def expression(self, *names: str, default: str = "") -> str:
        """The text of an expression; accepts `{{ }}` around it, a plain value or a list of
        values."""
        value = self.take(*names)
        if isinstance(value, list):
            return json.dumps(value, ensure_ascii=False)
        return strip_placeholder(self.word(*names, default=default))

    def number(self, *names: str, default: float) -> float:
        value = self._number(names)
        return default if value is None else value

    def integer(self, *names: str, default: int) -> int:
        value = self._number(names)
        if value is None:
            return default
        if not float(value).is_integer():
            self.add("not_a_whole_number", names[0])
            return default
        return int(value)

    def boolean(self, *names: str, default: bool) -> bool:
        value = self.take(*names)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        known = {"true": True, "yes": True, "false": False, "no": False}
        if isinstance(value, str) and value.strip().casefold() in known:
            return known[value.strip().casefold()]
        self.add("not_a_flag", names[0])
        return default

    def duration(self, *names: str) -> float | None:
        value = self.take(*names)
        if value is None:
            return None
        seconds = parse_duration(value)
        if seconds is None:
            self.add("bad_duration", names[0])
        return seconds

    def enum_value(self, kind: type[_Choice], *names: str, default: _Choice) -> _Choice:
        return kind(self.one_of([each.value for each in kind], *names, default=default.value))

    def one_of(self, choices: Sequence[_Word], *names: str, default: _Word) -> _Word:
        value = self.take(*names)
        if value is None:
            return default
        word = (scalar_text(value) or "").strip().casefold()
        for choice in choices:
            if choice == word:
                return choice
        self.add(
            "not_one_of",
            names[0],
            suggestion=similar_name(word, choices),
            given=shorten_value(value),
            known=", ".join(choices),
        )
        return default

    def value(self, *names: str) -> JsonValue:
        """Any value; the parser has already ensured that it is plain data."""
        found: JsonValue = self.take(*names)
        return found

    def mapping(self, *names: str) -> Mapping[str, Any] | None:
        value = self.take(*names)
        if value is None or isinstance(value, Mapping):
            return value
        self.add("not_a_group", names[0])
        return None

    def items(self, *names: str) -> list[Any] | None:
        value = self.take(*names)
        if value is None or isinstance(value, list):
            return value
        self.add("not_a_list", names[0])
        return None

    def word_list(self, *names: str) -> tuple[str, ...]:
        """A list of words, or one text with commas between them."""
        value = self.take(*names)
        if isinstance(value, str):
            value = [each for each in re.split("[,，、]", value) if each.strip()]
        if value is None:
            return ()
        words = [scalar_text(each) for each in value] if isinstance(value, list) else [None]
        if None in words:
            self.add("not_a_list_of_words", names[0])
        return tuple(each.strip()[:200] for each in words if each is not None)

    def mappings(self, *names: str, key: str = "") -> Iterator[FieldReader]:
        """A reader for each mapping of a list; other items are reported. With `key`, problems of a
        mapping are reported under the value of that field."""
        for n, each in enumerate(self.items(*names) or (), start=1):
            place = f"{names[0]}[{n}]"
            if not isinstance(each, Mapping):
                self.add("not_a_group", place)
            elif key:
                where = (scalar_text(each.get(key)) or "").strip()[:64] or place
                yield FieldReader(each, self.issues, where=where)
            else:
                yield FieldReader(each, self.issues, where=self.where, path=self._field_path(place))

    def named_mappings(self, *names: str, key: str, plain: str = "") -> Iterator[FieldReader]:
        """Like `mappings`; also accepts a mapping from values of `key` to mappings. There, a plain
        value counts as a mapping with the field `plain`."""
        given = self.take(*names)
        if not isinstance(given, Mapping):
            yield from self.mappings(*names, key=key)
            return
        if key in given and not plain and not any(isinstance(e, Mapping) for e in given.values()):
            # The fields of one without the dash before it.
            self.add("no_dashes", names[0])
            return
        listed = [
            {key: name, **each}
            if isinstance(each, Mapping)
            else {key: name, plain: each}
            if plain
            else each
            for name, each in given.items()
        ]
        yield from FieldReader({names[0]: listed}, self.issues).mappings(names[0], key=key)

    def pairs(self, name: str, key: str, value: str) -> Iterator[FieldReader]:
        """Like `mappings`; a single mapping counts as a list of `key`/`value` pairs."""
        given = self.take(name)
        if not isinstance(given, Mapping):
            yield from self.mappings(name)
            return
        for each, own in given.items():
            pair = {key: each, value: own}
            yield FieldReader(pair, self.issues, where=self.where, path=f"{self.path}.{name}")

    def subset(self, names: Iterable[str], *, path: str) -> FieldReader:
        """A reader for only these fields."""
        given = {name: self.take(name) for name in names}
        return FieldReader(given, self.issues, where=self.where, path=path)

    def nested_reader(self, values: Mapping[str, Any], path: str) -> FieldReader:
        """A reader for the fields of a group in this one."""
        return FieldReader(values, self.issues, where=self.where, path=path)

    def check_unknown_names(self, foreign: Mapping[str, str] = MappingProxyType({})) -> None:
        """Report unknown names that resemble a missing field, and those with which other programs
        say how a run goes on: `foreign` has what stands for them here, by folded name. All others
        are ignored as the author's notes.
        """
        unknown = [
            name for folded, name in self._written_names.items() if folded not in self._requested
        ]
        for name in unknown[:_MAX_UNKNOWN_FIELDS]:
            if len(name) > _MAX_NAME:
                continue
            alike = get_close_matches(
                fold_name(name), self._requested, n=1, cutoff=_SIMILARITY_CUTOFF
            )
            if alike and self._values.get(alike[0]) is None:
                self.add("unknown_field", name, suggestion=self._requested[alike[0]])
            elif (ours := foreign.get(fold_name(name))) is not None:
                self.add("foreign_field", name, suggestion=ours)

    def _number(self, names: tuple[str, ...]) -> float | None:
        value = self.take(*names)
        if isinstance(value, str) and len(value) < _MAX_NAME:
            with suppress(ValueError):
                value = float(value)
        if value is None:
            return None
        figure = isinstance(value, int | float) and not isinstance(value, bool)
        # Written so that NaN fails, too.
        if not figure or not abs(value) < _MAX_NUMBER:
            self.add("not_a_number", names[0])
            return None
        return float(value) if isinstance(value, float) else int(value)

    def _field_path(self, field: str) -> str:
        return f"{self.path}.{field[:_MAX_NAME]}".strip(".")


def strip_placeholder(text: str) -> str:
    """The expression inside `{{ }}` or `${ }`; other text unchanged."""
    for open_, close in (("{{", "}}"), ("${", "}")):
        inside = text[len(open_) : -len(close)]
        if text.startswith(open_) and text.endswith(close) and open_ not in inside:
            return inside.strip()
    return text


def scalar_text(value: object) -> str | None:
    """The text form of a scalar; None for anything else."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return None


def shorten_value(value: object) -> str:
    return " ".join(str(value)[:200].split())[:60]
