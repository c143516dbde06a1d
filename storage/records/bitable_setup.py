"""Defines what the setup of a Bitable finds and does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from storage.records.bitable import BitableBase, TableRole


class BitableGapKind(StrEnum):
    """A fault of a base. COLUMN_TYPE: a column of this name has another type, so that one of
    ours has to stand beside it."""

    TABLE = "table"
    COLUMN = "column"
    COLUMN_TYPE = "column_type"
    OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableGap:
    """`name` is how the missing part is called in the base's language; `table` is where."""

    kind: BitableGapKind
    table: TableRole
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableReport:
    """A base and its gaps, which are filled if `is_repaired`. `is_new`: it was made just now.
    `announces`: people's changes come at once, and not only when the tables are read again. `calls`
    were made to the platform."""

    base: BitableBase
    gaps: tuple[BitableGap, ...] = ()
    is_repaired: bool = False
    is_new: bool = False
    announces: bool = True
    calls: int = 0

    @property
    def is_good(self) -> bool:
        return self.is_repaired or not self.gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableStatus:
    """`base` is None if none is set up, `chat` is where its tasks belong. `has_feishu` is False
    without a Feishu app."""

    base: BitableBase | None
    has_feishu: bool
    chat: str = ""
