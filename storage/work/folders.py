"""Folders that are one place to work in: the same, or one inside the other."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, func, literal, or_

_SLASH = "/"


def one_place(one: str, other: str) -> bool:
    """Whether two tasks in these folders could touch the same files. Who has none has one of
    their own."""
    if not one or not other:
        return False
    mine, others = (f"{each.rstrip(_SLASH)}{_SLASH}" for each in (one, other))
    return mine.startswith(others) or others.startswith(mine)


def nested(one: ColumnElement[str], other: ColumnElement[str] | str) -> ColumnElement[bool]:
    """One lies in the other. The same folder is not meant: that is looked up by index."""
    place = literal(other) if isinstance(other, str) else other
    return and_(one != "", place != "", or_(_inside(one, place), _inside(place, one)))


def _inside(inner: ColumnElement[str], outer: ColumnElement[str]) -> ColumnElement[bool]:
    folder = func.rtrim(outer, _SLASH).concat(_SLASH)
    return func.substr(inner, 1, func.length(folder)) == folder
