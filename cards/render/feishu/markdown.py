"""Converts CommonMark to card Markdown: demotes headings, escapes tags, counts tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A Markdown element is reportedly truncated without notice near 10,000 characters.
MAX_MARKDOWN_ELEMENT = 6000
_MIN_CUT_RATIO = 0.3

# Any indent, because fences may be nested in lists. Backticks after the fence make it a code span.
_FENCE = re.compile(r"^\s*(`{3,}(?=[^`]*$)|~{3,})\s*([\w+#.-]*)")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-{3,})[ \t]*$")
# Possessive, so that a long line of blanks is scanned once.
_TABLE_RULE = re.compile(r"\s*+\|?+\s*+:?+-++:?+\s*+(?:\|\s*+:?+-++:?+\s*+)*+\|?+\s*+$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_TICKS = re.compile(r"`{3,}")
_IMAGE = re.compile(r"!\[([^\[\]]*)\]\(\s*<?([^)\s>]*)>?[^)]*\)")
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(\s*<?([^)\s>]*)>?[^)]*\)")
# Links that the patterns above do not read: brackets or a line end in the label, or by reference.
_OPEN_LINK = re.compile(r"\]\((?!(?:https?://|mailto:)[^)\s]+\))", re.IGNORECASE)
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^>\s]+)>")
_FONT = re.compile(r"</?font\b[^>]*>", re.IGNORECASE)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_MENTION_TAG = re.compile(r"<(?=/?(?:at|person)\b)", re.IGNORECASE)
_WEB = re.compile(r"^(?:https?://|mailto:)", re.IGNORECASE)
_SPECIAL = re.compile(r"[*_~`\[\]<#|\\]")
_ZERO_WIDTH_SPACE = "\u200b"


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizedMarkdown:
    """Markdown valid for a card; `tables` is how many are drawn as tables, `notes` lists what was
    dropped."""

    text: str
    tables: int = 0
    notes: tuple[str, ...] = ()


def normalize_markdown(markdown: str, *, tables: int) -> NormalizedMarkdown:
    """Make any text safe for a Markdown element with at most `tables` tables."""
    writer = _MarkdownNormalizer(
        markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n"), tables
    )
    writer.run()
    text = "\n".join(writer.out).strip("\n")
    return NormalizedMarkdown(
        text=text, tables=writer.tables_used, notes=tuple(dict.fromkeys(writer.notes))
    )


def escape_text(text: str) -> str:
    """Plain text as one line of Markdown that shows exactly this text."""
    line = " ".join(text.split()).replace("&", "&amp;")
    return _SPECIAL.sub(lambda match: f"&#{ord(match.group())};", line)


def code_fence(code: str, language: str = "") -> str:
    """A code block. Fences inside are broken up, because only plain fences work reliably."""
    body = code.replace("\r\n", "\n").rstrip("\n").replace("```", f"``{_ZERO_WIDTH_SPACE}`")
    tag = re.sub(r"[^\w+#.-]", "", language)
    return f"```{tag}\n{defuse_mentions(body)}\n```"


def split_markdown(markdown: str, limit: int = MAX_MARKDOWN_ELEMENT) -> list[str]:
    """Split normalized Markdown at line ends, with balanced fences in each piece."""
    pieces: list[str] = []
    current: list[str] = []
    size = 0
    fence = ""
    for line in _short_lines(markdown, limit // 2):
        if current and size + len(line) > limit:
            pieces.append("\n".join([*current, "```"] if fence else current))
            current, size = ([fence], len(fence)) if fence else ([], 0)
        current.append(line)
        size += len(line) + 1
        if line.startswith("```"):
            fence = "" if fence else line
    pieces.append("\n".join([*current, "```"] if fence else current))
    return [piece for piece in pieces if piece.strip()]


class _MarkdownNormalizer:
    def __init__(self, lines: list[str], tables: int) -> None:
        self._lines = lines
        self._position = 0
        self._max_tables = tables
        self.tables_used = 0
        self.out: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        while self._position < len(self._lines):
            line = self._lines[self._position]
            if opening := _FENCE.match(line):
                self._fence(opening)
            elif self._starts_table():
                self._table()
            elif heading := _HEADING.match(line):
                self._heading(len(heading.group(1)), heading.group(2))
                self._position += 1
            elif line.strip() and (rule := _UNDERLINE.match(self._next_line())):
                self._heading(1 if rule.group(1)[0] == "=" else 2, line.strip())
                self._position += 2
            else:
                self.out.append(self._inline(line))
                self._position += 1

    def _next_line(self) -> str:
        return self._lines[self._position + 1] if self._position + 1 < len(self._lines) else ""

    def _heading(self, level: int, title: str) -> None:
        self.out.append(f"{'####' if level == 1 else '#####'} {self._inline(title)}")

    def _fence(self, opening: re.Match[str]) -> None:
        mark, language = opening.group(1), opening.group(2)
        body: list[str] = []
        self._position += 1
        while self._position < len(self._lines):
            line = self._lines[self._position]
            self._position += 1
            closing = line.strip()
            if len(closing) >= len(mark) and set(closing) == {mark[0]}:
                break
            body.append(line)
        self.out.extend(code_fence("\n".join(body), language).split("\n"))

    def _starts_table(self) -> bool:
        rule = self._next_line()
        return "|" in self._lines[self._position] and "|" in rule and bool(_TABLE_RULE.match(rule))

    def _table(self) -> None:
        rows: list[str] = []
        while self._position < len(self._lines) and "|" in self._lines[self._position]:
            rows.append(self._lines[self._position].strip())
            self._position += 1
        if self.tables_used >= self._max_tables:
            self.notes.append("table: shown as code, the card has too many")
            self.out.extend(code_fence("\n".join(rows)).split("\n"))
            return
        self.tables_used += 1
        if self.out and self.out[-1].strip():
            self.out.append("")
        head, rule, *body = rows
        self.out.extend((self._inline(head), rule, *map(self._inline, body)))
        self.out.append("")

    def _inline(self, line: str) -> str:
        parts: list[str] = []
        at = 0
        for span in _CODE_SPAN.finditer(line):
            parts.extend((self._prose(line[at : span.start()]), _code_span(span.group(2))))
            at = span.end()
        parts.append(self._prose(line[at:]))
        return "".join(parts)

    def _prose(self, text: str) -> str:
        if "![" in text:
            self.notes.append("image: linked, not shown")
        text = _IMAGE.sub(lambda match: _safe_link(match.group(1), match.group(2)), text)
        text = _LINK.sub(lambda match: _safe_link(match.group(1), match.group(2)), text)
        # Wherever a definition of a link may stand, and whatever its label, it needs this pair.
        text = _OPEN_LINK.sub("]&#40;", text).replace("]:", "]&#58;")
        text = _TICKS.sub(lambda match: "&#96;" * len(match.group()), text)
        text = _AUTOLINK.sub(lambda match: f"[{match.group(1)}]({match.group(1)})", text)
        pieces = _BREAK.split(_FONT.sub("", text))
        return "<br>".join(piece.replace("<", "&#60;").replace("![", "!&#91;") for piece in pieces)


def _safe_link(label: str, target: str) -> str:
    """A link for web addresses; other targets follow their label in parentheses."""
    if _WEB.match(target):
        return f"[{label or target}]({target})"
    return f"{label} ({target})" if target and target != label else label


def _code_span(code: str) -> str:
    """A code span with single marks: three at the start of a line would open a block."""
    inner = code.strip()
    if "`" in inner:
        return f"`` {defuse_mentions(inner.replace('```', f'``{_ZERO_WIDTH_SPACE}`'))} ``"
    return f"`{defuse_mentions(inner)}`"


def defuse_mentions(code: str) -> str:
    """Escape mentions, also where no Markdown is read, so that they notify nobody."""
    return _MENTION_TAG.sub(f"<{_ZERO_WIDTH_SPACE}", code)


def _short_lines(markdown: str, limit: int) -> Iterator[str]:
    for line in markdown.split("\n"):
        rest = line
        while len(rest) > limit:
            cut = rest.rfind(" ", int(limit * _MIN_CUT_RATIO), limit)
            cut = limit if cut < 0 else cut + 1
            yield rest[:cut]
            rest = rest[cut:]
        yield rest
