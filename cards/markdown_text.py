"""Markdown as marked-up text: what a model writes, safe to show on any chat platform."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from cards.plain_tables import aligned, fits
from cards.rich_text import Mark, Rich, clean, plain, tidied, utf16_length

_TABLE_RULE = re.compile(r"^[ \t]{0,3}\|?[ \t]{0,20}:?-+:?[ \t]*\|", re.MULTILINE)
_LINK = re.compile(
    r"(?:https?://(?:[^\s/?#@:\[\].]+\.)+[^\s/?#@:\[\].]+(?::\d{1,5})?(?:[/?#]\S*)?|tg://[a-z]+\S*)"
)
_LONGEST_LINK = 1024
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_FENCE = re.compile(rb"[ \t]{0,3}(?:```|~~~)|[ ]{4}|\t")
_LINE_TAG = re.compile(rb"[ \t>]*(<)")
_KINDS = frozenset(
    {"bold", "italic", "strikethrough", "code", "pre", "text_link"}
    | {"blockquote", "expandable_blockquote"}
)
# Each pass frees one layer of HTML; deeper nesting is an attack, not a text.
_MOST_PASSES = 8


def to_rich(markdown: str) -> Rich:
    """Markdown as text and marks. Never fails: what cannot be understood is shown as written."""
    source = clean(markdown)
    if not source.strip():
        return Rich()
    escaped = _escape(_tables_as_text(source))
    if escaped is None:
        return plain(source)
    text, marks = _convert(escaped)
    return _with_addresses(text, marks) if text.strip() else plain(source)


def _convert(source: str) -> tuple[str, list[Mark]]:
    from telegramify_markdown import convert  # heavy; only channels that need it load it

    # LaTeX conversion would rewrite code blocks as well: off.
    text, entities = convert(source, latex_escape=False, config=_config())
    marks = [
        Mark(
            kind=entity.type,
            offset=entity.offset,
            length=entity.length,
            url=entity.url or "",
            language=_language(entity.language or ""),
        )
        for entity in entities
        if entity.type in _KINDS
    ]
    return _without_end(text, marks)


def _without_end(text: str, marks: Sequence[Mark]) -> tuple[str, list[Mark]]:
    """Lists end in an empty line of their own; what follows a block is its card's to say."""
    kept = text.rstrip("\n")
    end = utf16_length(kept)
    cut = (replace(each, length=min(each.length, end - each.offset)) for each in marks)
    return kept, [each for each in cut if each.length > 0]


@cache
def _config() -> Any:
    from telegramify_markdown import RenderConfig  # see _convert

    config = RenderConfig.isolated()
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = ""
    symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.unordered_list_item = "•"
    symbols.task_uncompleted = "☐"
    symbols.horizontal_rule = "———"
    return config


def _language(name: str) -> str:
    first = name.split(" ", 1)[0]
    return first if _LANGUAGE.fullmatch(first) else ""


def _with_addresses(text: str, marks: Sequence[Mark]) -> Rich:
    """Drop links that are none, but keep their address readable behind the words."""
    kept: list[Mark] = []
    notes: list[tuple[int, str]] = []
    for mark in tidied(marks):
        if not mark.url or (len(mark.url) <= _LONGEST_LINK and _LINK.fullmatch(mark.url)):
            kept.append(mark)
        elif not mark.url.startswith("#"):
            notes.append((mark.end, f" ({clean(mark.url)[:_LONGEST_LINK]})"))
    for at, note in sorted(notes, reverse=True):
        text, kept = _insert(text, kept, at, note)
    return Rich(text=text, marks=tuple(kept))


def _insert(text: str, marks: Iterable[Mark], at: int, note: str) -> tuple[str, list[Mark]]:
    raw = text.encode("utf-16-le")
    size = utf16_length(note)
    moved = []
    for mark in marks:
        if mark.offset >= at:
            moved.append(replace(mark, offset=mark.offset + size))
        elif mark.end > at:
            moved.append(replace(mark, length=mark.length + size))
        else:
            moved.append(mark)
    both = raw[: at * 2] + note.encode("utf-16-le") + raw[at * 2 :]
    return both.decode("utf-16-le"), moved


def _escape(source: str) -> str | None:
    """Escape `<` and `||` outside code: the converter drops tags and hides spoilers.

    None if the text resists.
    """
    data = source.encode()
    for _ in range(_MOST_PASSES):
        tags = sorted(set(_tag_positions(data)))
        if not tags:
            return _escape_bars(data).decode()
        data = _with_backslashes(data, tags)
    return None


def _events(data: bytes) -> Iterator[tuple[Any, dict[str, int]]]:
    import pyromark  # comes with the converter, see _convert

    options = (
        pyromark.Options.ENABLE_TABLES
        | pyromark.Options.ENABLE_STRIKETHROUGH
        | pyromark.Options.ENABLE_TASKLISTS
        | pyromark.Options.ENABLE_MATH
    )
    for payload, span in pyromark.events_with_range(data.decode(), options=options):
        yield payload, {"start": span["start"], "end": span["end"]}


def _tag_positions(data: bytes) -> Iterator[int]:
    """Where each tag the parser sees starts."""
    for payload, span in _events(data):
        if isinstance(payload, dict) and "InlineHtml" in payload:
            yield span["start"]
        elif isinstance(payload, dict) and payload.get("Start") == "HtmlBlock":
            yield from _block_tags(data, span["start"], span["end"])


def _block_tags(data: bytes, start: int, end: int) -> Iterator[int]:
    """Tags that begin the lines of an HTML block, up to where code might begin."""
    for line in data[start:end].splitlines(keepends=True):
        if _FENCE.match(line):
            return
        if tag := _LINE_TAG.match(line):
            yield start + tag.start(1)
        start += len(line)


def _escape_bars(data: bytes) -> bytes:
    if b"||" not in data:
        return data
    code = [
        (span["start"], span["end"])
        for payload, span in _events(data)
        if isinstance(payload, dict) and ("Code" in payload or _is_code_block(payload))
    ]
    bars = [m.start() for m in re.finditer(rb"\|(?=\|)|(?<=\|)\|", data)]
    starts = [start for start, _ in code]
    outside = [at for at in bars if not (i := bisect_right(starts, at)) or at >= code[i - 1][1]]
    return _with_backslashes(data, outside)


def _is_code_block(payload: dict[str, Any]) -> bool:
    start = payload.get("Start")
    return isinstance(start, dict) and "CodeBlock" in start


def _with_backslashes(data: bytes, positions: Sequence[int]) -> bytes:
    pieces = []
    last = 0
    for at in positions:
        pieces.append(data[last:at])
        last = at
    pieces.append(data[last:])
    return b"\\".join(pieces)


def _tables_as_text(source: str) -> str:
    """Top-level tables as aligned code, or as lists where they are too wide for a phone."""
    if not _TABLE_RULE.search(source):
        return source
    from markdown_it import MarkdownIt  # only texts with tables need it

    lines = source.split("\n")
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    tables = [t.map for t in tokens if t.type == "table_open" and t.level == 0 and t.map]
    rows = _rows(tokens)
    for (start, end), table in reversed(list(zip(tables, rows, strict=False))):
        lines[start:end] = ["", *_table_lines(table), ""]
    return "\n".join(lines)


def _rows(tokens: Sequence[Any]) -> list[list[list[str]]]:
    """The cells of every top-level table, as markdown."""
    tables: list[list[list[str]]] = []
    inside = False
    for token in tokens:
        if token.type in {"table_open", "table_close"} and token.level == 0:
            inside = token.type == "table_open"
            tables += [[]] if inside else []
        elif inside and token.type == "tr_open":
            tables[-1].append([])
        elif inside and token.type == "inline":
            tables[-1][-1].append(token)
    return tables


def _table_lines(table: list[list[Any]]) -> list[str]:
    head, *body = [[_words(cell) for cell in row] for row in table]
    if fits(head, body):
        return ["```", *aligned(head, body).replace("```", "'''").split("\n"), "```"]
    return [_listed(table[0], row) for row in table[1:]]


def _listed(head: Sequence[Any], row: Sequence[Any]) -> str:
    """One row of a wide table: the first cell, then `head: value` for the others."""
    first, *rest = [cell.content.strip() for cell in row]
    names = [cell.content.strip() for cell in head[1:]]
    pairs = [
        f"{name}: {value}" if name else value
        for name, value in zip(names, rest, strict=False)
        if value
    ]
    return f"- **{first}**" + (f" — {'; '.join(pairs)}" if pairs else "")


def _words(cell: Any) -> str:
    """A cell without its markup."""
    children = cell.children or []
    return "".join(child.content for child in children if child.content).strip()
