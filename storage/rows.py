"""Converts between table rows and records whose fields have the columns' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints, overload

from sqlalchemy import Row

_T = TypeVar("_T")


@overload
def record_from(kind: type[_T], row: Row[Any], prefix: str = "", /, **given: Any) -> _T: ...
@overload
def record_from(kind: type[_T], row: None, prefix: str = "", /, **given: Any) -> None: ...
def record_from(kind: Any, row: Row[Any] | None, prefix: str = "", /, **given: Any) -> Any:
    """The record in a row, None if there is no row. `prefix` is that of all column names; `given`
    replaces columns."""
    if row is None:
        return None
    values = dict(given)
    for name, convert in _converters(kind):
        if name not in given:
            value = getattr(row, prefix + name)
            values[name] = value if convert is None else convert(value)
    return kind(**values)


def records_from(kind: type[_T], rows: Iterable[Row[Any]]) -> tuple[_T, ...]:
    return tuple(record_from(kind, row) for row in rows)


def row_from(record: Any) -> dict[str, Any]:
    """The columns of a record, for an insert."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()
    }


@cache
def _converters(kind: type[Any]) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    hints = get_type_hints(kind)
    return tuple((each.name, _converter(hints[each.name])) for each in fields(kind))


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    if get_origin(hint) is tuple:
        return tuple
    if not get_args(hint):
        return hint if isinstance(hint, type) and issubclass(hint, Enum) else None
    some, *_ = inner = [each for each in get_args(hint) if each is not NoneType]
    convert = _converter(some) if len(inner) == 1 else None
    return None if convert is None else lambda value: None if value is None else convert(value)
