"""Card to plain text: the fallback every platform has, and what the command line prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import assert_never
from unicodedata import combining, east_asian_width

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from cards import formats
from cards.model import (
    Block,
    Button,
    Buttons,
    Card,
    Check,
    Checklist,
    Code,
    Collapsible,
    Divider,
    Fields,
    File,
    Form,
    FormField,
    Image,
    Note,
    Option,
    Progress,
    Select,
    Table,
    Text,
)
from cards.safe_text import clean, in_line

_TABLE_WIDTH = 72
_BAR_CELLS = 10
_PARSED_AT_MOST = 50_000
_RULE = "———"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessage:
    """`degraded` lists what plain text could not show, for the log."""

    text: str
    degraded: tuple[str, ...] = ()


def render(card: Card, *, pressable: bool = True) -> TextMessage:
    """The whole card as plain text, sealed or not. Never fails, whatever the card holds.
    `pressable` False leaves out what stands in for buttons."""
    degraded: list[str] = []
    parts = [[in_line(card.title)]] if card.title else []
    blocks = (each for each in card.blocks if pressable or not _stands_in(each))
    parts.extend(_block(block, degraded) for block in blocks)
    text = "\n\n".join("\n".join(lines) for lines in parts if lines)
    return TextMessage(text=text or in_line(card.summary), degraded=tuple(degraded))


def _stands_in(block: Block) -> bool:
    """Whether it is there to be pressed, and something can be typed instead."""
    typed = isinstance(block, Form) and bool(block.action.command)
    return typed or isinstance(block, Buttons | Select)


def plain(markdown: str) -> str:
    """Markdown as plain text: marks gone, code and addresses kept. Very long text keeps its
    marks: taking them off would hold the event loop for a second."""
    if len(markdown) > _PARSED_AT_MOST:
        return clean(markdown)
    tree = SyntaxTreeNode(_parser().parse(clean(markdown)))
    return "\n\n".join("\n".join(_markdown_lines(node)) for node in tree.children)


def one_line(markdown: str, limit: int = 120) -> str:
    """Markdown as one plain line of at most `limit` characters, for summaries."""
    # Parsing is for people's eyes: no more of a long text than can be seen in the end.
    text = " ".join(plain(markdown[: limit * 20]).split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _block(  # noqa: C901, PLR0911 - one case for each block of the closed union
    block: Block, degraded: list[str]
) -> list[str]:
    match block:
        case Buttons() | Select() | Form():
            return _inputs(block, degraded)
        case Text(markdown=markdown) | Note(markdown=markdown):
            return plain(markdown).split("\n") if markdown.strip() else []
        case Fields(pairs=pairs):
            return [f"{in_line(label)}: {in_line(value)}" for label, value in pairs]
        case Checklist(items=items):
            return [line for item in items for line in _check(item)]
        case Progress(percent=percent, label=label):
            return [f"{in_line(label)} {_bar(percent)}".lstrip()]
        case Code(text=text):
            return clean(text).rstrip("\n").split("\n")
        case Table(columns=columns, rows=rows):
            return _table([_cells(columns), *(_cells(row) for row in rows)])
        case Divider():
            return [_RULE]
        case Image(alt=alt, path=path):
            degraded.append("image: named, not shown")
            return [f"🖼 {in_line(alt)} ({in_line(path)})"]
        case File(name=name, path=path, size=size):
            degraded.append("file: named, not attached")
            return [f"📎 {in_line(name)} ({formats.size(size)}, {in_line(path)})"]
        case Collapsible(title=title, blocks=blocks):
            inner = [line for leaf in blocks for line in _block(leaf, degraded)]
            return [in_line(title), *(f"  {line}".rstrip() for line in inner)]
        case _:
            assert_never(block)


def _inputs(block: Buttons | Select | Form, degraded: list[str]) -> list[str]:
    match block:
        case Buttons(items=items):
            return [line for item in items for line in _button(item, degraded)]
        case Select(placeholder=placeholder, options=options, action=action):
            degraded.append("select: options listed")
            how = f"{in_line(placeholder)}: {action.command}" if action.command else placeholder
            return [in_line(how), *_options(options)]
        case Form(fields=fields, submit=submit, action=action):
            degraded.append("form: fields listed")
            typed = [f"{in_line(submit)}: {action.command}"] if action.command else []
            return [*(line for item in fields for line in _form_field(item)), *typed]
        case _:
            assert_never(block)


def _button(button: Button, degraded: list[str]) -> list[str]:
    if button.action.command:
        return [f"{in_line(button.label)}: {button.action.command}"]
    degraded.append(f"button without a command left out: {button.action.kind}")
    return []


def _form_field(item: FormField) -> list[str]:
    return [f"• {in_line(item.label)}", *(f"  {line}" for line in _options(item.options))]


def _options(options: Iterable[Option]) -> list[str]:
    return [f"• {in_line(option.label)}" for option in options]


def _check(item: Check) -> list[str]:
    margin = "   " * item.depth
    detail = [f"{margin}   {line}" for line in clean(item.detail).strip().split("\n") if line]
    return [f"{margin}{item.state.mark} {in_line(item.label)}", *detail]


def _bar(percent: int) -> str:
    percent = min(100, max(0, percent))
    full = percent * _BAR_CELLS // 100
    return f"{'▓' * full}{'░' * (_BAR_CELLS - full)} {percent} %"


def _table(rows: Sequence[list[str]]) -> list[str]:
    """Aligned columns where they fit a narrow window, else one `column: cell` line a cell."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=False)]
    if sum(widths) + 2 * len(widths) > _TABLE_WIDTH:
        return _stacked(rows)
    rule = ["─" * width for width in widths]
    return ["  ".join(map(_pad, row, widths)).rstrip() for row in (rows[0], rule, *rows[1:])]


def _stacked(rows: Sequence[list[str]]) -> list[str]:
    lines: list[str] = []
    for row in rows[1:]:
        lines.extend(["", *(f"{name}: {cell}" for name, cell in zip(rows[0], row, strict=False))])
    return lines[1:] or [", ".join(rows[0])]


def _cells(row: Iterable[str]) -> list[str]:
    return [in_line(cell) for cell in row]


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
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
            return _table([_markdown_row(row) for row in node.walk() if row.type == "tr"])
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


def _markdown_row(row: SyntaxTreeNode) -> list[str]:
    return [" ".join(_children_lines(cell)) for cell in row.children]


def _inline(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text" | "code_inline" | "image":
            return node.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "hr":
            return _RULE
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
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
