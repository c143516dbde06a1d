"""Renders a card as plain text, the fallback of every platform and the command line's output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, assert_never
from unicodedata import combining, east_asian_width

from cards import formats, model
from cards.formats import clean_line, strip_controls

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

_TABLE_WIDTH = 72
_MAX_PARSED_CHARACTERS = 50_000
_DIVIDER_LINE = "———"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessage:
    """`degraded` lists what plain text could not show, for the log."""

    text: str
    degraded: tuple[str, ...] = ()


def render(card: model.Card, *, include_controls: bool = True) -> TextMessage:
    """Render the whole card, with or without tokens. Never fails, whatever the card contains.
    `include_controls` False omits the substitutes for buttons."""
    degraded: list[str] = []
    parts = [[clean_line(card.title)]] if card.title else []
    blocks = (each for each in card.blocks if include_controls or not _is_control(each))
    parts.extend(_block_lines(block, degraded) for block in blocks)
    text = "\n\n".join("\n".join(lines) for lines in parts if lines)
    return TextMessage(text=text or clean_line(card.summary), degraded=tuple(degraded))


def _is_control(block: model.Block) -> bool:
    """Whether the block is a control with a typed alternative."""
    has_command = isinstance(block, model.FormBlock) and bool(block.action.command)
    return has_command or isinstance(block, model.ButtonsBlock | model.SelectBlock)


def markdown_to_text(markdown: str) -> str:
    """Markdown as plain text, preserving code and addresses. Very long text is returned unchanged:
    parsing it would block the event loop for a second."""
    if len(markdown) > _MAX_PARSED_CHARACTERS:
        return strip_controls(markdown)
    # Imported on first use: many cards have no Markdown.
    from markdown_it.tree import SyntaxTreeNode

    tree = SyntaxTreeNode(_parser().parse(strip_controls(markdown)))
    return "\n\n".join("\n".join(_markdown_lines(node)) for node in tree.children)


def _block_lines(  # noqa: C901, PLR0911 - one case for each block of the closed union
    block: model.Block, degraded: list[str]
) -> list[str]:
    match block:
        case model.ButtonsBlock() | model.SelectBlock() | model.FormBlock():
            return _control_lines(block, degraded)
        case model.TextBlock(markdown) | model.NoteBlock(markdown):
            return markdown_to_text(markdown).split("\n") if markdown.strip() else []
        case model.FieldsBlock(pairs=pairs):
            return [f"{clean_line(label)}: {clean_line(value)}" for label, value in pairs]
        case model.ChecklistBlock(items=items):
            return [line for item in items for line in _checklist_lines(item)]
        case model.ProgressBlock(percent=percent, label=label):
            return [f"{clean_line(label)} {formats.progress_bar(percent)}".lstrip()]
        case model.CodeBlock(text=text):
            return strip_controls(text).rstrip("\n").split("\n")
        case model.TableBlock(columns=columns, rows=rows):
            return _table_lines([_cells(columns), *(_cells(row) for row in rows)])
        case model.DividerBlock():
            return [_DIVIDER_LINE]
        case model.ImageBlock(alt=alt, path=path):
            degraded.append("image: named, not shown")
            return [f"🖼 {clean_line(alt)} ({clean_line(path)})"]
        case model.FileBlock(name=name, path=path, size=size):
            degraded.append("file: named, not attached")
            return [f"📎 {clean_line(name)} ({formats.file_size(size)}, {clean_line(path)})"]
        case model.CollapsibleBlock(title=title, blocks=blocks):
            inner = [line for leaf in blocks for line in _block_lines(leaf, degraded)]
            return [clean_line(title), *(f"  {line}".rstrip() for line in inner)]
        case _:
            assert_never(block)


def _control_lines(
    block: model.ButtonsBlock | model.SelectBlock | model.FormBlock, degraded: list[str]
) -> list[str]:
    match block:
        case model.ButtonsBlock(items=items):
            return [line for item in items for line in _button_lines(item, degraded)]
        case model.SelectBlock(placeholder=placeholder, options=options, action=action):
            degraded.append("select: options listed")
            how = f"{clean_line(placeholder)}: {action.command}" if action.command else placeholder
            return [clean_line(how), *_option_lines(options)]
        case model.FormBlock(fields=fields, submit=submit, action=action):
            degraded.append("form: fields listed")
            command_lines = [f"{clean_line(submit)}: {action.command}"] if action.command else []
            return [*(line for item in fields for line in _form_field_lines(item)), *command_lines]
        case _:
            assert_never(block)


def _button_lines(button: model.CardButton, degraded: list[str]) -> list[str]:
    if button.action.command:
        return [f"{clean_line(button.label)}: {button.action.command}"]
    degraded.append(f"button without a command left out: {button.action.kind}")
    return []


def _form_field_lines(item: model.FormField) -> list[str]:
    return [f"• {clean_line(item.label)}", *(f"  {line}" for line in _option_lines(item.options))]


def _option_lines(options: Iterable[model.SelectOption]) -> list[str]:
    return [f"• {clean_line(option.label)}" for option in options]


def _checklist_lines(item: model.ChecklistItem) -> list[str]:
    margin = "   " * item.depth
    detail = [
        f"{margin}   {line}" for line in strip_controls(item.detail).strip().split("\n") if line
    ]
    return [f"{margin}{item.state.symbol} {clean_line(item.label)}", *detail]


def _table_lines(rows: Sequence[list[str]]) -> list[str]:
    """Aligned columns if they fit a narrow window, else one `column: cell` line per cell."""
    widths = [max(map(_display_width, column)) for column in zip(*rows, strict=False)]
    if sum(widths) + 2 * len(widths) > _TABLE_WIDTH:
        return _stacked_rows(rows)
    rule = ["─" * width for width in widths]
    return ["  ".join(map(_pad, row, widths)).rstrip() for row in (rows[0], rule, *rows[1:])]


def _stacked_rows(rows: Sequence[list[str]]) -> list[str]:
    lines: list[str] = []
    for row in rows[1:]:
        lines.extend(["", *(f"{name}: {cell}" for name, cell in zip(rows[0], row, strict=False))])
    return lines[1:] or [", ".join(rows[0])]


def _cells(row: Iterable[str]) -> list[str]:
    return [clean_line(cell) for cell in row]


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - _display_width(cell))


def _display_width(text: str) -> int:
    """Terminal columns: Chinese characters take two."""
    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def _markdown_lines(node: SyntaxTreeNode) -> list[str]:
    match node.type:
        case "bullet_list" | "ordered_list":
            return _list(node)
        case "blockquote":
            return [f"> {line}".rstrip() for line in _children_lines(node)]
        case "fence" | "code_block":
            return node.content.rstrip("\n").split("\n")
        case "table":
            rows = (row.children for row in node.walk() if row.type == "tr")
            return _table_lines([[" ".join(_children_lines(cell)) for cell in row] for row in rows])
        case "hr" | "inline":
            return _inline(node).split("\n")
        case _:
            return _children_lines(node)


def _children_lines(node: SyntaxTreeNode) -> list[str]:
    return [line for child in node.children for line in _markdown_lines(child)]


def _list(node: SyntaxTreeNode) -> list[str]:
    lines: list[str] = []
    first = int(node.attrs.get("start", 1))
    for number, item in enumerate(node.children, first):
        sign = "• " if node.type == "bullet_list" else f"{number}. "
        head, *rest = _children_lines(item) or [""]
        lines.extend([(sign + head).rstrip(), *(" " * len(sign) + line for line in rest)])
    return lines


def _inline(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text" | "code_inline" | "image":
            return node.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "hr":
            return _DIVIDER_LINE
        case "link":
            return _link(node)
        case _:
            return "".join(_inline(child) for child in node.children)


def _link(node: SyntaxTreeNode) -> str:
    label = "".join(_inline(child) for child in node.children)
    address = str(node.attrs.get("href", ""))
    return label if not address or address in (label, f"mailto:{label}") else f"{label} ({address})"


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
