"""Caps on what may be spent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_PART = re.compile(
    r"(?:(?P<sign>\$)\s*)?(?P<number>\d+(?:\.\d+)?)\s*(?P<many>[kKmM])?\s*(?P<unit>usd|tokens?)?",
    re.IGNORECASE,
)
_MANY = {"k": 1_000, "m": 1_000_000}
_MICROS = 1_000_000


class Scope(StrEnum):
    """What a cap is on: one task for its whole life, the others for a day."""

    TASK = "task"
    PERSON = "person"
    CHAT = "chat"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """`micros` are US dollars in millionths; 0 means no limit of that sort."""

    micros: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        return bool(self.micros or self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapLeft:
    """How much of one cap is used up. `allowed` is the cap with all that was granted beyond it,
    `granted` that part alone."""

    scope: Scope
    allowed: Cap
    granted: Cap
    used: Cap

    @property
    def left(self) -> Cap:
        """Never less than nothing; 0 of a sort that has no limit means nothing too."""
        return Cap(
            micros=max(0, self.allowed.micros - self.used.micros),
            tokens=max(0, self.allowed.tokens - self.used.tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What somebody allowed beyond a cap. `day` is empty for a task's."""

    approval_id: str
    scope: Scope
    subject: str
    day: str
    cap: Cap


def cap_of(text: str) -> Cap:
    """What people write: `5`, `5 USD`, `2M tokens`, or both with a comma; empty is no limit.

    Raises ValueError with what would be right.
    """
    micros = tokens = 0
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _PART.fullmatch(part)
        if found is None or (found["sign"] and (found["unit"] or "").lower().startswith("token")):
            raise ValueError(f"{part!r} is not of the form 5 USD or 2M tokens")
        amount = float(found["number"]) * _MANY.get((found["many"] or "").lower(), 1)
        if (found["unit"] or "").lower().startswith("token"):
            tokens = round(amount)
        else:
            micros = round(amount * _MICROS)
    return Cap(micros=micros, tokens=tokens)
