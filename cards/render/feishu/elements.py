"""Renders the blocks of a card as Feishu elements within the card's limits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from cards import formats, model
from cards.catalog import TextCatalog
from cards.render.feishu.markdown import (
    NormalizedMarkdown,
    code_fence,
    escape_text,
    normalize_markdown,
    split_markdown,
)

MAX_TABLES = 5
MAX_MARKDOWN_TABLES = 3
# Feishu allows 30 KB and 200 components; the rest is reserved for the header, the config and the
# platform's own counting.
PART_BYTES = 27_000
PART_COMPONENTS = 190

# Control characters except tab and newline, and lone surrogates, which cannot be encoded.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def compact_json(node: Any) -> str:
    return json.dumps(node, ensure_ascii=False, separators=(",", ":"))


def json_size(node: Any) -> int:
    """The node's size as JSON in bytes."""
    return len(compact_json(node).encode())


def count_components(node: Any) -> int:
    """The number of components in the node; plain texts count too."""
    if isinstance(node, dict):
        return ("tag" in node) + sum(count_components(value) for value in node.values())
    if isinstance(node, list):
        return sum(count_components(value) for value in node)
    return 0


def strip_unfit(text: str) -> str:
    return _UNFIT.sub("", text)


def truncate_line(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(strip_unfit(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


# More would not fit the cards of one message and would only block the event loop.
_MAX_MARKDOWN = 200_000
_KEPT_TAIL = 20_000

CardElement: TypeAlias = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class FeishuRenderContext:
    """State shared while rendering one card.

    `images` maps paths to uploaded keys, and `documents` paths to the link of their document, or to
    the key of the text that says why there is none; `callback_values` go into every callback beside
    the token.
    Tables and form names are counted here because their limits apply to the whole card.
    """

    words: TextCatalog
    images: Mapping[str, str]
    documents: Mapping[str, str]
    callback_values: Mapping[str, str]
    degraded: list[str] = field(default_factory=list)
    tables_left: int = MAX_TABLES
    markdown_tables_left: int = MAX_MARKDOWN_TABLES
    used_names: set[str] = field(default_factory=set)
    form_count: int = 0

    def degrade(self, loss: str) -> None:
        if loss not in self.degraded:
            self.degraded.append(loss)

    def normalize(self, markdown: str) -> NormalizedMarkdown:
        """Make Markdown valid for a card and count its tables."""
        if len(markdown) > _MAX_MARKDOWN:
            self.degrade("text: cut in the middle, it is too long")
            gap = f"\n\n{self.words('render.feishu.cut')}\n\n"
            markdown = markdown[: _MAX_MARKDOWN - _KEPT_TAIL] + gap + markdown[-_KEPT_TAIL:]
        normalized = normalize_markdown(
            strip_unfit(markdown), tables=min(self.markdown_tables_left, self.tables_left)
        )
        self.markdown_tables_left -= normalized.tables
        self.tables_left -= normalized.tables
        for note in normalized.notes:
            self.degrade(note)
        return normalized

    def render_markdown(self, markdown: str, **more: Any) -> list[CardElement]:
        """Any CommonMark as Markdown elements within the length limit."""
        return markdown_elements(self.normalize(markdown).text, **more)

    def callback(self, token: str) -> list[dict[str, Any]]:
        return [{"type": "callback", "value": {**self.callback_values, "t": token}}]

    def unique_name(self, base: str) -> str:
        """A form member's name, made unique on the card by a suffix such as `~2`."""
        name, number = base, 1
        while name in self.used_names:
            number += 1
            name = f"{base}~{number}"
        self.used_names.add(name)
        return name


def plain_text(content: str) -> CardElement:
    return {"tag": "plain_text", "content": content}


def markdown_elements(normalised: str, **more: Any) -> list[CardElement]:
    return [{"tag": "markdown", "content": piece, **more} for piece in split_markdown(normalised)]


_BAR_CELLS = 12
_MAX_COLUMNS = 50
_PAGE_ROWS = 10
_TABLE_BYTES = 20_000
_PANEL_BYTES = 12_000
_PANEL_COMPONENTS = 60
# An invisible hard break: single newlines may be swallowed.
_LINE_BREAK = "  \n"


def content_elements(  # noqa: C901, PLR0911 - one case for each block of the closed union
    block: model.ContentBlock, context: FeishuRenderContext, *, allow_table: bool = True
) -> list[CardElement]:
    """The elements for one block, without a native table unless `allow_table`."""
    match block:
        case model.TextBlock(markdown):
            return context.render_markdown(markdown)
        case model.NoteBlock(markdown):
            return context.render_markdown(markdown, text_size="notation")
        case model.FieldsBlock(pairs=pairs):
            return _text_lines(
                *(f"**{_escaped_text(name)}**: {_escaped_text(value)}" for name, value in pairs)
            )
        case model.ChecklistBlock(items=items):
            return _text_lines(*(_checklist_line(item) for item in items))
        case model.ProgressBlock(percent=percent, label=label):
            return markdown_elements(f"{_progress_bar(percent)} {_escaped_text(label)}".rstrip())
        case model.CodeBlock(text=text, language=language):
            return (
                markdown_elements(code_fence(strip_unfit(text), language)) if text.strip() else []
            )
        case model.TableBlock():
            return _table_elements(block, context, top=allow_table)
        case model.DividerBlock():
            return [{"tag": "hr"}]
        case model.ImageBlock():
            return [_image_element(block, context)]
        case model.FileBlock():
            return _text_lines(*_file_lines(block, context))
        case _:
            assert_never(block)


def _file_lines(block: model.FileBlock, context: FeishuRenderContext) -> list[str]:
    found = context.documents.get(block.path, "")
    if found.startswith("http"):
        return [f"📄 [{_escaped_text(block.document_title)}]({found})"]
    line = f"📎 **{_escaped_text(block.name)}** ({formats.file_size(block.size)})"
    return [line, *([context.words(found)] if found else [])]


def collapsible_elements(
    block: model.CollapsibleBlock, context: FeishuRenderContext
) -> list[CardElement]:
    """One collapsible panel, or several if the content is long."""
    panels: list[CardElement] = []
    inner = [
        element
        for part in block.blocks
        for element in content_elements(part, context, allow_table=False)
    ]
    while inner:
        count = 1
        while count < len(inner) and _fits_panel(inner[: count + 1]):
            count += 1
        number = f" ({len(panels) + 1})" if panels else ""
        panels.append(_collapsible_panel(truncate_line(block.title, 100) + number, inner[:count]))
        inner = inner[count:]
    return panels


def _fits_panel(elements: list[CardElement]) -> bool:
    return json_size(elements) <= _PANEL_BYTES and count_components(elements) <= _PANEL_COMPONENTS


def _collapsible_panel(title: str, elements: list[CardElement]) -> CardElement:
    return {
        "tag": "collapsible_panel",
        "expanded": False,
        "header": {"title": plain_text(title or "…"), "padding": "8px"},
        "elements": elements,
    }


def _text_lines(*lines: str) -> list[CardElement]:
    return markdown_elements(_LINE_BREAK.join(lines))


def _escaped_text(text: str) -> str:
    return escape_text(strip_unfit(text))


def _checklist_line(item: model.ChecklistItem) -> str:
    margin = "　" * item.depth
    line = f"{margin}{item.state.symbol} {_escaped_text(item.label)}"
    if not item.detail:
        return line
    return f"{line}{_LINE_BREAK}{margin}　<font color='grey'>{_escaped_text(item.detail)}</font>"


def _progress_bar(percent: int) -> str:
    percent = min(100, max(0, percent))
    full = percent * _BAR_CELLS // 100
    return f"`{'▓' * full}{'░' * (_BAR_CELLS - full)}` **{percent}%**"


def _image_element(block: model.ImageBlock, context: FeishuRenderContext) -> CardElement:
    key = context.images.get(block.path)
    if key is None:
        context.degrade("image: named, not shown")
        return {"tag": "markdown", "content": f"🖼️ {_escaped_text(block.alt) or '…'}"}
    return {"tag": "img", "img_key": key, "alt": plain_text(truncate_line(block.alt, 200))}


def _table_elements(
    block: model.TableBlock, context: FeishuRenderContext, *, top: bool
) -> list[CardElement]:
    if not block.columns or not block.rows:
        return _text_lines(" · ".join(f"**{_escaped_text(name)}**" for name in block.columns))
    if not top or context.tables_left < 1 or len(block.columns) > _MAX_COLUMNS:
        context.degrade("table: shown as code")
        return _table_as_code(block)
    columns = [_table_column(number, block) for number in range(len(block.columns))]
    rows = [
        {
            f"c{number}": _table_cell(columns[number]["data_type"], value)
            for number, value in enumerate(row[: len(columns)])
        }
        for row in block.rows
    ]
    table = {"tag": "table", "page_size": _PAGE_ROWS, "columns": columns, "rows": rows}
    if json_size(table) > _TABLE_BYTES:
        context.degrade("table: shown as code, it is too large")
        return _table_as_code(block)
    context.tables_left -= 1
    return [table]


def _table_as_code(block: model.TableBlock) -> list[CardElement]:
    rows = (block.columns, *block.rows)
    return markdown_elements(
        code_fence("\n".join(" | ".join(truncate_line(cell, 500) for cell in row) for row in rows))
    )


def _table_column(number: int, block: model.TableBlock) -> CardElement:
    cells = [row[number] for row in block.rows if number < len(row)]
    numeric = bool(cells) and all(_is_number(cell) for cell in cells)
    return {
        "name": f"c{number}",
        "display_name": truncate_line(block.columns[number], 100),
        "data_type": "number" if numeric else "text",
        "horizontal_align": "right" if numeric else "left",
    }


def _is_number(cell: str) -> bool:
    """Whether a number column would show exactly this text."""
    return cell.isascii() and cell.isdigit() and len(cell) < 10 and str(int(cell)) == cell  # noqa: PLR2004 - 32 bits


def _table_cell(kind: str, value: str) -> str | int:
    return int(value) if kind == "number" else strip_unfit(value)


SUBMIT_PREFIX = "submit_"
_BUTTONS_IN_ROW = 6
_MAX_LABEL = 60
_MAX_OPTIONS = 60
_MAX_FIELDS = 20
_MAX_INPUT = 1000
# Longer values are sent as `#index`, which the stored card resolves.
_MAX_VALUE = 200
_FORM_COMPONENTS = 150
_STYLES = {
    model.ButtonStyle.PLAIN: "default",
    model.ButtonStyle.PRIMARY: "primary_filled",
    model.ButtonStyle.DANGER: "danger",
}


def button_elements(block: model.ButtonsBlock, context: FeishuRenderContext) -> list[CardElement]:
    """Rows of buttons; a button without a token becomes a line with the command to type."""
    ready = [item for item in block.items if item.token]
    rows = [
        ready[start : start + _BUTTONS_IN_ROW] for start in range(0, len(ready), _BUTTONS_IN_ROW)
    ]
    elements = [_button_row([_button_element(item, context) for item in row]) for row in rows]
    for item in block.items:
        if not item.token:
            elements.extend(_command_hint(item.label, item.action.command, context))
    return elements


def select_elements(block: model.SelectBlock, context: FeishuRenderContext) -> list[CardElement]:
    if not block.token or not block.options:
        return _command_hint(block.placeholder, block.action.command, context)
    return [
        {
            "tag": "select_static",
            "placeholder": plain_text(truncate_line(block.placeholder, 100)),
            "options": _option_elements(block.options, _MAX_OPTIONS, context),
            "behaviors": context.callback(block.token),
        }
    ]


def form_elements(block: model.FormBlock, context: FeishuRenderContext) -> list[CardElement]:
    """The platform's form; a press carries each field under its name."""
    if not block.token or not block.fields:
        return _command_hint(block.submit, block.action.command, context)
    context.form_count += 1
    if len(block.fields) > _MAX_FIELDS:
        context.degrade("form: only the first fields are shown")
    fields = block.fields[:_MAX_FIELDS]
    room = max(2, _FORM_COMPONENTS // len(fields) - 4)
    members = [element for item in fields for element in _form_field_elements(item, room, context)]
    submit = {
        "tag": "button",
        "type": _STYLES[model.ButtonStyle.PRIMARY],
        "text": plain_text(truncate_line(block.submit, _MAX_LABEL) or "OK"),
        # Duplicated, because a form's press always carries the name but not always the value.
        "name": context.unique_name(f"{SUBMIT_PREFIX}{block.token}"),
        "form_action_type": "submit",
        "behaviors": context.callback(block.token),
    }
    return [{"tag": "form", "name": f"form_{context.form_count}", "elements": [*members, submit]}]


def _button_row(items: list[CardElement]) -> CardElement:
    columns = [{"tag": "column", "width": "auto", "elements": [item]} for item in items]
    return {
        "tag": "column_set",
        "flex_mode": "flow",
        "horizontal_spacing": "8px",
        "columns": columns,
    }


def _button_element(item: model.CardButton, context: FeishuRenderContext) -> CardElement:
    element: CardElement = {
        "tag": "button",
        "type": _STYLES[item.style],
        "text": plain_text(truncate_line(item.label, _MAX_LABEL) or "…"),
        "behaviors": context.callback(item.token),
    }
    if item.confirm is not None:
        title, text = truncate_line(item.confirm.title, 100), truncate_line(item.confirm.text, 300)
        element["confirm"] = {"title": plain_text(title or "?"), "text": plain_text(text)}
    return element


def _command_hint(label: str, command: str, context: FeishuRenderContext) -> list[CardElement]:
    context.degrade("button: no token, shown as text")
    line = escape_text(strip_unfit(label))
    return markdown_elements(f"{line}: `{command}`" if command else line, text_size="notation")


def _option_elements(
    options: tuple[model.SelectOption, ...], limit: int, context: FeishuRenderContext
) -> list[CardElement]:
    if len(options) > limit:
        context.degrade("options: only the first are shown")
    return [
        {
            "text": plain_text(truncate_line(option.label, 100) or "…"),
            "value": _option_value(number, option),
        }
        for number, option in enumerate(options[:limit])
    ]


def _option_value(number: int, option: model.SelectOption) -> str:
    value = strip_unfit(option.value)
    return value if value and len(value) <= _MAX_VALUE else f"#{number}"


def _form_field_elements(
    item: model.FormField, room: int, context: FeishuRenderContext
) -> list[CardElement]:
    common: dict[str, Any] = {
        "name": context.unique_name(item.name),
        "required": item.required,
        "width": "fill",
    }
    if item.placeholder:
        common["placeholder"] = plain_text(truncate_line(item.placeholder, 100))
    label = truncate_line(item.label, 100)
    if item.field is model.FormFieldKind.CHOICE and item.options:
        options = _option_elements(item.options, room, context)
        return [
            *markdown_elements(f"**{escape_text(label)}**" if label else ""),
            {"tag": "select_static", "options": options, **common},
        ]
    lines = {"input_type": "multiline_text", "rows": 3}
    return [
        {
            "tag": "input",
            "label": plain_text(label or item.name),
            "max_length": _MAX_INPUT,
            **({"default_value": value} if (value := _default_value(item)) else {}),
            **(lines if item.field is model.FormFieldKind.PARAGRAPH else {}),
            **common,
        }
    ]


def _default_value(item: model.FormField) -> str:
    """The value, or nothing if it is too long: a truncated value would be sent back truncated."""
    value = strip_unfit(item.value)
    return value if len(value) <= _MAX_INPUT else ""
