"""The figures that a benchmark yields, the bars they are held against, and its scale."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")


class Scale(StrEnum):
    """How much a benchmark does: `FULL` takes minutes and gives figures that mean something,
    `SMALL` takes seconds and shows only that the benchmark still works."""

    FULL = "full"
    SMALL = "small"

    def pick(self, full: _T, small: _T) -> _T:
        """The one of the two that belongs to this scale."""
        return full if self is Scale.FULL else small


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit for a figure: an upper one, or a lower one where `is_minimum`."""

    limit: float
    is_minimum: bool = False

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.is_minimum else value <= self.limit


def at_most(limit: float) -> Bar:
    return Bar(limit)


def at_least(limit: float) -> Bar:
    return Bar(limit, is_minimum=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `unit` is empty for a count."""

    name: str
    value: float
    unit: str = ""
    bar: Bar | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is met; None without a bar."""
        return None if self.bar is None else self.bar.is_met_by(self.value)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part that could not be measured here, and the reason."""

    name: str
    reason: str


Measurement: TypeAlias = Figure | LeftOut
MeasureFunction: TypeAlias = Callable[[Scale], Awaitable[Sequence[Measurement]]]


def format_value(value: float, unit: str = "") -> str:
    """The value with three or more significant digits, thousands separated, and its unit."""
    number = f"{value:,.{_decimals(value)}f}"
    return f"{number} {unit}".rstrip()


def format_bar(bar: Bar, unit: str = "") -> str:
    sign = "≥" if bar.is_minimum else "≤"
    return f"{sign} {bar.limit:,g} {unit}".rstrip()


def _decimals(value: float) -> int:
    if float(value).is_integer() or abs(value) >= 100:
        return 0
    if abs(value) >= 10:
        return 1
    return 2 if abs(value) >= 0.1 or not value else min(6, 1 - math.floor(math.log10(abs(value))))
