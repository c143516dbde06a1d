"""A group of named values as somebody has written it, asked for field by field.

What is of the wrong kind is a fault, and counts as not given: so all faults are found at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import JsonValue

from bot.engine.workflow.forms.durations import seconds_in
from bot.engine.workflow.model.faults import Fault

MOST_TEXT = 100_000
"""Characters of one text."""

_MOST_SEEN = 20
_LONGEST_NAME = 40
_ALIKE = 0.75
_LARGEST = 1e15
_Choice = TypeVar("_Choice", bound=StrEnum)
_Word = TypeVar("_Word", bound=str)


def fold(name: str) -> str:
    """`maxLoops`, `max_loops` and `max-loops` are one name."""
    return name.replace("_", "").replace("-", "").casefold()


@dataclass(slots=True)
class Faults:
    """All that has been found so far."""

    found: list[Fault]

    def add(self, key: str, where: str = "", field: str = "", **facts: object) -> None:
        self.found.append(Fault(key=key, where=where, field=field, facts=facts))


class Fields:
    """`where` is the node or edge it belongs to, `path` the field within that, if it is one."""

    def __init__(
        self, given: Mapping[str, Any], faults: Faults, *, where: str = "", path: str = ""
    ) -> None:
        self.where = where
        self.faults = faults
        self.path = path
        self._given: dict[str, Any] = {}
        self._written: dict[str, str] = {}
        self._known: dict[str, str] = {}
        for name, value in given.items():
            folded = fold(name)
            if folded in self._given:
                self.add("given_twice", name)
                continue
            self._given[folded], self._written[folded] = value, name

    def add(self, key: str, field: str, **facts: object) -> None:
        self.faults.add(key, self.where, self._at(field), **facts)

    def has(self, *names: str) -> bool:
        return any(self._given.get(fold(name)) is not None for name in names)

    def take(self, *names: str) -> Any:
        """What is given under the first of these names; None for nothing."""
        for name in names:
            self._known.setdefault(fold(name), name)
        return next((self._given[fold(name)] for name in names if self.has(name)), None)

    def text(self, *names: str, default: str = "", most: int = MOST_TEXT) -> str:
        value = self.take(*names)
        if value is None:
            return default
        told = as_written(value)
        if told is None:
            self.add("not_a_text", names[0])
            return default
        if len(told) > most:
            self.add("too_long", names[0], most=most)
            return default
        return told

    def word(self, *names: str, default: str = "", most: int = 2_000) -> str:
        """A text of which the blanks around it are no part."""
        return self.text(*names, default=default, most=most).strip() or default

    def number(self, *names: str, default: float) -> float:
        value = self._figure(names)
        return default if value is None else value

    def whole(self, *names: str, default: int) -> int:
        value = self._figure(names)
        if value is None:
            return default
        if not float(value).is_integer():
            self.add("not_a_whole_number", names[0])
            return default
        return int(value)

    def flag(self, *names: str, default: bool) -> bool:
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

    def seconds(self, *names: str) -> float | None:
        value = self.take(*names)
        if value is None:
            return None
        seconds = seconds_in(value)
        if seconds is None:
            self.add("bad_duration", names[0])
        return seconds

    def choice(self, kind: type[_Choice], *names: str, default: _Choice) -> _Choice:
        return kind(self.one_of([each.value for each in kind], *names, default=default.value))

    def one_of(self, choices: Sequence[_Word], *names: str, default: _Word) -> _Word:
        value = self.take(*names)
        if value is None:
            return default
        told = (as_written(value) or "").strip().casefold()
        for choice in choices:
            if choice == told:
                return choice
        self.add("not_one_of", names[0], given=brief(value), known=", ".join(choices))
        return default

    def value(self, *names: str) -> JsonValue:
        """Anything; it has been made sure that it is data."""
        found: JsonValue = self.take(*names)
        return found

    def group(self, *names: str) -> Mapping[str, Any] | None:
        value = self.take(*names)
        if value is None or isinstance(value, Mapping):
            return value
        self.add("not_a_group", names[0])
        return None

    def several(self, *names: str) -> list[Any] | None:
        value = self.take(*names)
        if value is None or isinstance(value, list):
            return value
        self.add("not_a_list", names[0])
        return None

    def words(self, *names: str) -> tuple[str, ...]:
        """A list of words, or one text with commas between them."""
        value = self.take(*names)
        if isinstance(value, str):
            value = [each for each in re.split("[,，、]", value) if each.strip()]
        if value is None:
            return ()
        told = [as_written(each) for each in value] if isinstance(value, list) else [None]
        if None in told:
            self.add("not_a_list_of_words", names[0])
        return tuple(each.strip()[:200] for each in told if each is not None)

    def groups(self, *names: str) -> Iterator[Fields]:
        """Each group of a list; what is none is a fault."""
        for n, each in enumerate(self.several(*names) or ()):
            place = f"{names[0]}[{n + 1}]"
            if isinstance(each, Mapping):
                yield Fields(each, self.faults, where=self.where, path=self._at(place))
            else:
                self.add("not_a_group", place)

    def some(self, names: Iterable[str], *, path: str) -> Fields:
        """Only what is given under these names, as a group of its own."""
        given = {name: self.take(name) for name in names}
        return Fields(given, self.faults, where=self.where, path=path)

    def check_names(self) -> None:
        """A name that is nearly one of those asked for, and not given, is a slip and a fault;
        others are notes of whoever wrote them."""
        unknown = [name for folded, name in self._written.items() if folded not in self._known]
        for name in unknown[:_MOST_SEEN]:
            if len(name) > _LONGEST_NAME:
                continue
            alike = get_close_matches(fold(name), self._known, n=1, cutoff=_ALIKE)
            if alike and self._given.get(alike[0]) is None:
                self.add("unknown_field", name, meant=self._known[alike[0]])

    def _figure(self, names: tuple[str, ...]) -> float | None:
        value = self.take(*names)
        if isinstance(value, str) and len(value) < _LONGEST_NAME:
            with suppress(ValueError):
                value = float(value)
        if value is None:
            return None
        figure = isinstance(value, int | float) and not isinstance(value, bool)
        # What is no number at all is not smaller than anything either.
        if not figure or not abs(value) < _LARGEST:
            self.add("not_a_number", names[0])
            return None
        return float(value) if isinstance(value, float) else int(value)

    def _at(self, field: str) -> str:
        return f"{self.path}.{field[:_LONGEST_NAME]}".strip(".")


def as_written(value: object) -> str | None:
    """A text, or what stands for one; None for what does not."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return None


def brief(value: object) -> str:
    return " ".join(str(value)[:200].split())[:60]
