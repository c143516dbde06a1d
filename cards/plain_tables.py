"""Tables for places that only have text: aligned columns, or rows as lists when too wide."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

MOST_COLUMNS_WIDE = 56
"""A table wider than this wraps on a phone and cannot be read any more."""

_EMPTY = "—"
_ZERO_WIDTH = frozenset("\u200b\u200c\u200d\ufe0e\ufe0f")


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their heads, for a fixed-width font. Cells are single lines."""
    table = [list(columns), *(_fill(row, len(columns)) for row in rows)]
    widths = [max(display_width(row[i]) for row in table) for i in range(len(columns))]
    lines = [_line(row, widths) for row in table]
    lines.insert(1, "─" * min(sum(widths) + 3 * (len(widths) - 1), MOST_COLUMNS_WIDE))
    return "\n".join(lines)


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the aligned table is narrow enough to be read on a phone."""
    table = [list(columns), *(_fill(row, len(columns)) for row in rows)]
    widths = [max(display_width(row[i]) for row in table) for i in range(len(columns))]
    return sum(widths) + 3 * (len(widths) - 1) <= MOST_COLUMNS_WIDE


def display_width(text: str) -> int:
    """Cells a text takes in a fixed-width font: Chinese characters take two."""
    return sum(
        0 if combining(c) or c in _ZERO_WIDTH else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )


def _fill(row: Sequence[str], length: int) -> list[str]:
    return [cell or _EMPTY for cell in [*row, *[""] * length][:length]]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)
    ]
    return " │ ".join(cells).rstrip()
