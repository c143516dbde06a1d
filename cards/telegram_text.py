"""Converts Markdown to text with marks in UTF-16 units, safe for any chat platform, with tables as
aligned text or lists."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unicodedata import combining, east_asian_width

from cards.formats import is_blank

_TRIMMED_SPACE = " \t\n"
# A line break before this share of a piece would waste too much of the message.
_MIN_BREAK_RATIO = 0.3
_MAX_LINK_CHARACTERS = 6000
CODE_KINDS = frozenset({"code", "pre"})
_QUOTE_KINDS = frozenset({"blockquote", "expandable_blockquote"})
# Servers drop control characters, line separators and direction marks, which would shift all later
# offsets.
_UNSUPPORTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMark:
    """A style over `length` UTF-16 units from `offset`."""

    kind: str
    offset: int
    length: int
    url: str = ""
    language: str = ""

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class RichText:
    text: str = ""
    marks: tuple[TextMark, ...] = ()


def strip_unsupported(text: str) -> str:
    """The text without characters that platforms reject or silently drop."""
    return _UNSUPPORTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def to_one_line(text: str) -> str:
    return " ".join(strip_unsupported(text).split())


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def plain_text(text: str) -> RichText:
    return RichText(text=strip_unsupported(text))


def styled_text(text: str, kind: str, *, language: str = "") -> RichText:
    """Cleaned text under one mark."""
    return add_mark(plain_text(text), kind, language=language)


def add_mark(rich: RichText, kind: str, *, language: str = "") -> RichText:
    """The same text under one more mark."""
    length = utf16_length(rich.text)
    if not length:
        return rich
    outer = TextMark(kind=kind, offset=0, length=length, language=language)
    return RichText(text=rich.text, marks=(outer, *rich.marks))


def join_rich(pieces: Iterable[RichText], separator: str = "") -> RichText:
    """Join pieces; empty ones add no separator."""
    texts: list[str] = []
    marks: list[TextMark] = []
    at = 0
    for piece in pieces:
        if not piece.text:
            continue
        if texts:
            texts.append(separator)
            at += utf16_length(separator)
        texts.append(piece.text)
        marks.extend(replace(mark, offset=mark.offset + at) for mark in piece.marks)
        at += utf16_length(piece.text)
    return RichText(text="".join(texts), marks=tuple(marks))


def normalize_marks(marks: Iterable[TextMark]) -> tuple[TextMark, ...]:
    """Marks in order, without invalid combinations: crossing marks, styled code, nested quotes."""
    result: list[TextMark] = []
    around: list[TextMark] = []
    for mark in sorted(set(marks), key=lambda m: (m.offset, -m.length, m.kind)):
        while around and around[-1].end <= mark.offset:
            around.pop()
        if mark.length <= 0 or (around and not _can_nest(mark, around)):
            continue
        around.append(mark)
        result.append(mark)
    return tuple(result)


def split_rich(rich: RichText, limit: int, max_marks: int) -> tuple[RichText, ...]:
    """Split into pieces of at most `limit` UTF-16 units and `max_marks` marks.

    Splits at the last line break beyond 30 % of a piece, else anywhere; marks continue in the next
    piece, so code stays code and keeps its indentation. Elsewhere white space around a split is
    dropped, and empty pieces are.
    """
    ruler = _RichTextSplitter(rich)
    pieces: list[RichText] = []
    start = 0
    while start < len(rich.text):
        end = ruler.cut(start, limit, max_marks)
        piece = ruler.piece(start, end)
        if not is_blank(piece.text):
            pieces.append(replace(piece, marks=piece.marks[:max_marks]))
        start = end
    return tuple(pieces)


class _RichTextSplitter:
    """Splits one text by the UTF-16 offsets of its characters."""

    def __init__(self, rich: RichText) -> None:
        self._text = rich.text
        self._marks = normalize_marks(rich.marks)
        self._starts = [mark.offset for mark in self._marks]
        self._offsets = _utf16_offsets(rich.text)
        self._open: list[TextMark] = []
        self._next = 0

    def cut(self, start: int, limit: int, most_marks: int) -> int:
        """Where the piece that starts at `start` ends. Pieces must be cut in order."""
        first = self._offsets[start]
        self._open = [mark for mark in self._open if mark.end > first]
        hard = bisect_right(self._offsets, first + limit) - 1
        crowd = self._next + max(0, most_marks - len(self._open))
        if bisect_left(self._starts, self._offsets[hard]) > crowd:
            crowded = bisect_right(self._offsets, self._starts[crowd]) - 1
            hard = crowded if crowded > start else hard
        if hard >= len(self._text):
            return len(self._text)
        line = self._text.rfind("\n", start, hard + 1)
        return line if line - start > _MIN_BREAK_RATIO * (hard - start) else hard

    def piece(self, start: int, end: int) -> RichText:
        """The text of a range without outer white space, with its marks. Within code only the line
        break of the split is dropped."""
        raw = self._text[start:end]
        if self._is_in_code(start):
            body = raw.removeprefix("\n")
            body = body if self._is_in_code(end) else body.rstrip(_TRIMMED_SPACE)
            start += len(raw) - len(raw.removeprefix("\n"))
        else:
            body = raw.lstrip(_TRIMMED_SPACE)
            start += len(raw) - len(body)
            body = body if self._is_in_code(end) else body.rstrip(_TRIMMED_SPACE)
        if not body:
            return RichText()
        first, last = self._offsets[start], self._offsets[start + len(body)]
        return RichText(text=body, marks=tuple(self._clipped(first, last)))

    def _is_in_code(self, position: int) -> bool:
        """True if code begins before the position and ends after it."""
        at = self._offsets[position]
        return any(
            mark.kind in CODE_KINDS and mark.offset < at < mark.end
            for mark in (*self._open, *self._marks[self._next : bisect_left(self._starts, at)])
        )

    def _clipped(self, first: int, last: int) -> Iterable[TextMark]:
        upto = bisect_left(self._starts, last)
        self._open += self._marks[self._next : upto]
        self._next = max(self._next, upto)
        addresses = 0
        for mark in self._open:
            begin, stop = max(mark.offset, first), min(mark.end, last)
            if stop <= begin:
                continue
            addresses += len(mark.url)
            if not mark.url or addresses <= _MAX_LINK_CHARACTERS:
                yield replace(mark, offset=begin - first, length=stop - begin)


def _can_nest(mark: TextMark, around: list[TextMark]) -> bool:
    kinds = {outer.kind for outer in around}
    quoted_twice = mark.kind in _QUOTE_KINDS and kinds & _QUOTE_KINDS
    return not (
        mark.end > around[-1].end or kinds & CODE_KINDS or mark.kind in kinds or quoted_twice
    )


def _utf16_offsets(text: str) -> range | list[int]:
    """The UTF-16 offset of every character and of the end."""
    if text.isascii():
        return range(len(text) + 1)
    offsets = [0]
    for char in text:
        offsets.append(offsets[-1] + (2 if char > "\uffff" else 1))
    return offsets


MAX_TABLE_WIDTH = 56
"""Wider tables wrap on a phone and become unreadable."""

_EMPTY = "—"
_ZERO_WIDTH = frozenset("\u200b\u200c\u200d\ufe0e\ufe0f")


def align_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under their headers, for a fixed-width font. Cells must be single lines."""
    table = [list(columns), *(_pad_row(row, len(columns)) for row in rows)]
    widths = [max(display_width(row[i]) for row in table) for i in range(len(columns))]
    lines = [_table_line(row, widths) for row in table]
    lines.insert(1, "─" * min(sum(widths) + 3 * (len(widths) - 1), MAX_TABLE_WIDTH))
    return "\n".join(lines)


def table_fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the aligned table is narrow enough for a phone."""
    table = [list(columns), *(_pad_row(row, len(columns)) for row in rows)]
    widths = [max(display_width(row[i]) for row in table) for i in range(len(columns))]
    return sum(widths) + 3 * (len(widths) - 1) <= MAX_TABLE_WIDTH


def display_width(text: str) -> int:
    """Cells of a text in a fixed-width font: Chinese characters take two."""
    return sum(
        0 if combining(c) or c in _ZERO_WIDTH else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )


def _pad_row(row: Sequence[str], length: int) -> list[str]:
    return [cell or _EMPTY for cell in [*row, *[""] * length][:length]]


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)
    ]
    return " │ ".join(cells).rstrip()


_TABLE_RULE = re.compile(r"^[ \t]{0,3}\|?[ \t]{0,20}:?-+:?[ \t]*\|", re.MULTILINE)
_VALID_LINK = re.compile(
    r"(?:https?://(?:[^\s/?#@:\[\].]+\.)+[^\s/?#@:\[\].]+(?::\d{1,5})?(?:[/?#]\S*)?)"
)
_MAX_LINK_LENGTH = 1024
_CODE_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_FENCE = re.compile(rb"[ \t]{0,3}(?:```|~~~)|[ ]{4}|\t")
_LINE_TAG = re.compile(rb"[ \t>]*(<)")
_MARK_KINDS = frozenset(
    {"bold", "italic", "strikethrough", "code", "pre", "text_link"}
    | {"blockquote", "expandable_blockquote"}
)
# Each pass frees one layer of HTML; deeper nesting is an attack.
_MAX_ESCAPE_PASSES = 8


def markdown_to_rich(markdown: str) -> RichText:
    """Markdown as text and marks. Never fails: unparsable input is shown as written."""
    source = strip_unsupported(markdown)
    if not source.strip():
        return RichText()
    escaped = _escape(_tables_as_text(source))
    if escaped is None:
        return plain_text(source)
    text, marks = _convert(escaped)
    return _show_invalid_links(text, marks) if text.strip() else plain_text(source)


def _convert(source: str) -> tuple[str, list[TextMark]]:
    from telegramify_markdown import convert  # heavy; only channels that need it load it

    # LaTeX conversion would also rewrite code blocks.
    text, entities = convert(source, latex_escape=False, config=_converter_config())
    marks = [
        TextMark(
            kind=entity.type,
            offset=entity.offset,
            length=entity.length,
            url=entity.url or "",
            language=_valid_language(entity.language or ""),
        )
        for entity in entities
        if entity.type in _MARK_KINDS
    ]
    return _trim_end(text, marks)


def _trim_end(text: str, marks: Sequence[TextMark]) -> tuple[str, list[TextMark]]:
    """Drop the empty line that ends lists; the card decides on spacing."""
    body = text.rstrip("\n")
    end = utf16_length(body)
    new_marks = (replace(each, length=min(each.length, end - each.offset)) for each in marks)
    return body, [each for each in new_marks if each.length > 0]


@cache
def _converter_config() -> Any:
    from telegramify_markdown import RenderConfig  # see _convert

    config = RenderConfig.isolated()
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = ""
    symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.unordered_list_item = "•"
    symbols.task_uncompleted = "☐"
    symbols.horizontal_rule = "———"
    return config


def _valid_language(name: str) -> str:
    first = name.split(" ", 1)[0]
    return first if _CODE_LANGUAGE.fullmatch(first) else ""


def _show_invalid_links(text: str, marks: Sequence[TextMark]) -> RichText:
    """Drop invalid links, but show their addresses after the text."""
    result: list[TextMark] = []
    notes: list[tuple[int, str]] = []
    for mark in normalize_marks(marks):
        if not mark.url or (len(mark.url) <= _MAX_LINK_LENGTH and _VALID_LINK.fullmatch(mark.url)):
            result.append(mark)
        elif not mark.url.startswith("#"):
            notes.append((mark.end, f" ({strip_unsupported(mark.url)[:_MAX_LINK_LENGTH]})"))
    for at, note in sorted(notes, reverse=True):
        text, result = _insert_text(text, result, at, note)
    return RichText(text=text, marks=tuple(result))


def _insert_text(
    text: str, marks: Iterable[TextMark], at: int, note: str
) -> tuple[str, list[TextMark]]:
    raw = text.encode("utf-16-le")
    size = utf16_length(note)
    result = []
    for mark in marks:
        if mark.offset >= at:
            result.append(replace(mark, offset=mark.offset + size))
        elif mark.end > at:
            result.append(replace(mark, length=mark.length + size))
        else:
            result.append(mark)
    both = raw[: at * 2] + note.encode("utf-16-le") + raw[at * 2 :]
    return both.decode("utf-16-le"), result


def _escape(source: str) -> str | None:
    """Escape `<` and `||` outside code: the converter drops tags and hides spoilers.

    None if it fails.
    """
    data = source.encode()
    for _ in range(_MAX_ESCAPE_PASSES):
        tags = sorted(set(_tag_positions(data)))
        if not tags:
            return _escape_bars(data).decode()
        data = _with_backslashes(data, tags)
    return None


def _parse_events(data: bytes) -> Iterator[tuple[Any, dict[str, int]]]:
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
    """The start of each tag that the parser recognizes."""
    for payload, span in _parse_events(data):
        if isinstance(payload, dict) and "InlineHtml" in payload:
            yield span["start"]
        elif isinstance(payload, dict) and payload.get("Start") == "HtmlBlock":
            yield from _block_tags(data, span["start"], span["end"])


def _block_tags(data: bytes, start: int, end: int) -> Iterator[int]:
    """Tags at the start of an HTML block's lines, up to possible code."""
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
        for payload, span in _parse_events(data)
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
    """Replace top-level tables by aligned code, or by lists if they are too wide for a phone."""
    if not _TABLE_RULE.search(source):
        return source
    from markdown_it import MarkdownIt  # only texts with tables need it

    lines = source.split("\n")
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    tables = [t.map for t in tokens if t.type == "table_open" and t.level == 0 and t.map]
    rows = _table_cells(tokens)
    for (start, end), table in reversed(list(zip(tables, rows, strict=False))):
        lines[start:end] = ["", *_table_lines(table), ""]
    return "\n".join(lines)


def _table_cells(tokens: Sequence[Any]) -> list[list[list[str]]]:
    """The cells of every top-level table, as Markdown."""
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
    head, *body = [[_cell_text(cell) for cell in row] for row in table]
    if table_fits(head, body):
        return ["```", *align_table(head, body).replace("```", "'''").split("\n"), "```"]
    return [_row_as_list(table[0], row) for row in table[1:]]


def _row_as_list(head: Sequence[Any], row: Sequence[Any]) -> str:
    """One row of a wide table: the first cell, then `head: value` for the others."""
    first, *rest = [cell.content.strip() for cell in row]
    names = [cell.content.strip() for cell in head[1:]]
    pairs = [
        f"{name}: {value}" if name else value
        for name, value in zip(names, rest, strict=False)
        if value
    ]
    return f"- **{first}**" + (f" — {'; '.join(pairs)}" if pairs else "")


def _cell_text(cell: Any) -> str:
    """A cell without its markup."""
    children = cell.children or []
    return "".join(child.content for child in children if child.content).strip()
