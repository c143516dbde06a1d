"""Blocks that only show something, as card elements."""

from __future__ import annotations

from typing import assert_never

from cards import formats
from cards.model import (
    Check,
    Checklist,
    Code,
    Collapsible,
    Divider,
    Fields,
    File,
    Image,
    Leaf,
    Note,
    Progress,
    Table,
    Text,
)
from cards.render.feishu.canvas import Canvas, Element, plain, written
from cards.render.feishu.markdown import escape, fence
from cards.render.feishu.size import count, cut, scrub, weight

_BAR_CELLS = 12
_MAX_COLUMNS = 50
_PAGE_ROWS = 10
_TABLE_BYTES = 20_000
_PANEL_BYTES = 12_000
_PANEL_COMPONENTS = 60
# A hard break that shows as nothing: single newlines may be swallowed.
_BREAK = "  \n"


def leaf(  # noqa: C901, PLR0911 - one case for each block of the closed union
    block: Leaf, canvas: Canvas, *, top: bool = True
) -> list[Element]:
    """Elements for one block; `top` False where no table may stand."""
    match block:
        case Text(markdown=markdown):
            return canvas.markdown(markdown)
        case Note(markdown=markdown):
            return canvas.markdown(markdown, text_size="notation")
        case Fields(pairs=pairs):
            return _lines(*(f"**{_text(name)}**: {_text(value)}" for name, value in pairs))
        case Checklist(items=items):
            return _lines(*(_check(item) for item in items))
        case Progress(percent=percent, label=label):
            return written(f"{_bar(percent)} {_text(label)}".rstrip())
        case Code(text=text, language=language):
            return written(fence(scrub(text), language)) if text.strip() else []
        case Table():
            return _table(block, canvas, top=top)
        case Divider():
            return [{"tag": "hr"}]
        case Image():
            return [_image(block, canvas)]
        case File(name=name, size=size):
            return _lines(f"📎 **{_text(name)}** ({formats.size(size)})")
        case _:
            assert_never(block)


def collapsible(block: Collapsible, canvas: Canvas) -> list[Element]:
    """One folded panel, or several where the content is long."""
    panels: list[Element] = []
    inner = [element for part in block.blocks for element in leaf(part, canvas, top=False)]
    while inner:
        taken = 1
        while taken < len(inner) and _fits(inner[: taken + 1]):
            taken += 1
        number = f" ({len(panels) + 1})" if panels else ""
        panels.append(_panel(cut(block.title, 100) + number, inner[:taken]))
        inner = inner[taken:]
    return panels


def _fits(elements: list[Element]) -> bool:
    return weight(elements) <= _PANEL_BYTES and count(elements) <= _PANEL_COMPONENTS


def _panel(title: str, elements: list[Element]) -> Element:
    return {
        "tag": "collapsible_panel",
        "expanded": False,
        "header": {"title": plain(title or "…"), "padding": "8px"},
        "elements": elements,
    }


def _lines(*lines: str) -> list[Element]:
    return written(_BREAK.join(lines))


def _text(text: str) -> str:
    return escape(scrub(text))


def _check(item: Check) -> str:
    margin = "　" * item.depth
    line = f"{margin}{item.state.mark} {_text(item.label)}"
    if not item.detail:
        return line
    return f"{line}{_BREAK}{margin}　<font color='grey'>{_text(item.detail)}</font>"


def _bar(percent: int) -> str:
    percent = min(100, max(0, percent))
    full = percent * _BAR_CELLS // 100
    return f"`{'▓' * full}{'░' * (_BAR_CELLS - full)}` **{percent}%**"


def _image(block: Image, canvas: Canvas) -> Element:
    key = canvas.images.get(block.path)
    if key is None:
        canvas.degrade("image: named, not shown")
        return {"tag": "markdown", "content": f"🖼️ {_text(block.alt) or '…'}"}
    return {"tag": "img", "img_key": key, "alt": plain(cut(block.alt, 200))}


def _table(block: Table, canvas: Canvas, *, top: bool) -> list[Element]:
    if not block.columns or not block.rows:
        return _lines(" · ".join(f"**{_text(name)}**" for name in block.columns))
    if not top or canvas.tables < 1 or len(block.columns) > _MAX_COLUMNS:
        canvas.degrade("table: shown as code")
        return _table_as_code(block)
    columns = [_column(number, block) for number in range(len(block.columns))]
    rows = [
        {
            f"c{number}": _cell(columns[number]["data_type"], value)
            for number, value in enumerate(row[: len(columns)])
        }
        for row in block.rows
    ]
    table = {"tag": "table", "page_size": _PAGE_ROWS, "columns": columns, "rows": rows}
    if weight(table) > _TABLE_BYTES:
        canvas.degrade("table: shown as code, it is too large")
        return _table_as_code(block)
    canvas.tables -= 1
    return [table]


def _table_as_code(block: Table) -> list[Element]:
    rows = (block.columns, *block.rows)
    return written(fence("\n".join(" | ".join(cut(cell, 500) for cell in row) for row in rows)))


def _column(number: int, block: Table) -> Element:
    cells = [row[number] for row in block.rows if number < len(row)]
    numeric = bool(cells) and all(_is_number(cell) for cell in cells)
    return {
        "name": f"c{number}",
        "display_name": cut(block.columns[number], 100),
        "data_type": "number" if numeric else "text",
        "horizontal_align": "right" if numeric else "left",
    }


def _is_number(cell: str) -> bool:
    """Whether a number column would show exactly this."""
    return cell.isascii() and cell.isdigit() and len(cell) < 10 and str(int(cell)) == cell  # noqa: PLR2004 - 32 bits


def _cell(kind: str, value: str) -> str | int:
    return int(value) if kind == "number" else scrub(value)
