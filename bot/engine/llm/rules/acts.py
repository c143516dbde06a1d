"""The few things that can be done without a model, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Unit(StrEnum):
    WORDS = "words"
    LINES = "lines"
    CHARACTERS = "characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """ "It": what an earlier step made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Text given word for word."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFile:
    """The text of a file."""

    path: str


Source: TypeAlias = Literal | InFile | Earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Haiku:
    """`chinese` is the language it was asked in."""

    topic: str
    chinese: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarise:
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    unit: Unit
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFolder:
    path: str


Making: TypeAlias = Haiku | Summarise | Count | Show | ListFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Put what `content` makes into a file."""

    path: str
    content: Making


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Greet:
    """Nothing but a greeting or thanks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Anything else: it takes a model."""


Act: TypeAlias = Making | Write | Wait | Greet | Unknown
