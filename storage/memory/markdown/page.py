"""A file of memories: entries as lines under headings, each with a small mark that says which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Layout(StrEnum):
    """In a `list` each entry is one item; in a `book` each is all that stands below a heading."""

    LIST = "list"
    BOOK = "book"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An entry as a file shows it: its `revision` is the one that was shown. Without an id it was
    written by hand. `rival` is the entry that says something else in the same place."""

    text: str
    id: str = ""
    revision: int = 0
    rival: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`title` is empty for what stands before the first heading."""

    title: str
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A file as it says itself. `number` counts how often it was written by us, 0 where its first
    mark is gone; `complete` says that its last mark is there; `front` is whatever stands before
    all, kept as it is; `left_out` counts those for which there is no room."""

    title: str
    sections: tuple[Section, ...] = ()
    number: int = 0
    complete: bool = True
    front: str = ""
    left_out: int = field(default=0, compare=False)

    @property
    def lines(self) -> Iterator[Line]:
        return (line for section in self.sections for line in section.lines)

    @property
    def shown(self) -> object:
        """What people see of it: two pages that show the same need not be written over."""
        return self.title, tuple(
            (each.title, tuple((line.id, line.text, line.rival) for line in each.lines))
            for each in self.sections
        )
