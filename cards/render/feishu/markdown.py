"""CommonMark to what card markdown takes: headings demoted, tags escaped, tables counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# One markdown element is said to be cut silently near ten thousand characters.
CHUNK = 6000
_EARLIEST_CUT = 0.3

# Any indent: in a list a fence may stand deep. Backticks behind it make it a code span instead.
_FENCE = re.compile(r"^\s*(`{3,}(?=[^`]*$)|~{3,})\s*([\w+#.-]*)")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-{3,})[ \t]*$")
# Possessive: a long line of blanks is read once.
_TABLE_RULE = re.compile(r"\s*+\|?+\s*+:?+-++:?+\s*+(?:\|\s*+:?+-++:?+\s*+)*+\|?+\s*+$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_TICKS = re.compile(r"`{3,}")
_IMAGE = re.compile(r"!\[([^\[\]]*)\]\(\s*<?([^)\s>]*)>?[^)]*\)")
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(\s*<?([^)\s>]*)>?[^)]*\)")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^>\s]+)>")
_FONT = re.compile(r"</?font\b[^>]*>", re.IGNORECASE)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_AT = re.compile(r"<(?=/?(?:at|person)\b)", re.IGNORECASE)
_WEB = re.compile(r"^(?:https?://|mailto:)", re.IGNORECASE)
_SPECIAL = re.compile(r"[*_~`\[\]<#|\\]")
_JOINT = "\u200b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Markdown fit for a card; `tables` of it are drawn as tables, `notes` says what is not."""

    text: str
    tables: int = 0
    notes: tuple[str, ...] = ()


def normalise(markdown: str, *, tables: int) -> Normal:
    """Make any text safe for a markdown element, with at most so many tables in it."""
    writer = _Writer(markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n"), tables)
    writer.run()
    text = "\n".join(writer.out).strip("\n")
    return Normal(text=text, tables=writer.used, notes=tuple(dict.fromkeys(writer.notes)))


def escape(text: str) -> str:
    """Plain text as markdown on one line that shows exactly it."""
    line = " ".join(text.split()).replace("&", "&amp;")
    return _SPECIAL.sub(lambda match: f"&#{ord(match.group())};", line)


def fence(code: str, language: str = "") -> str:
    """A code block; fences inside are broken up, since only the plain one is known to work."""
    body = code.replace("\r\n", "\n").rstrip("\n").replace("```", f"``{_JOINT}`")
    tag = re.sub(r"[^\w+#.-]", "", language)
    return f"```{tag}\n{_guarded(body)}\n```"


def chunks(markdown: str, limit: int = CHUNK) -> list[str]:
    """Cut normalised markdown at line ends, each piece with its fences balanced."""
    pieces: list[str] = []
    current: list[str] = []
    size = 0
    opened = ""
    for line in _short_lines(markdown, limit // 2):
        if current and size + len(line) > limit:
            pieces.append("\n".join([*current, "```"] if opened else current))
            current, size = ([opened], len(opened)) if opened else ([], 0)
        current.append(line)
        size += len(line) + 1
        if line.startswith("```"):
            opened = "" if opened else line
    pieces.append("\n".join([*current, "```"] if opened else current))
    return [piece for piece in pieces if piece.strip()]


class _Writer:
    def __init__(self, lines: list[str], tables: int) -> None:
        self._lines = lines
        self._at = 0
        self._allowed = tables
        self.used = 0
        self.out: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if opened := _FENCE.match(line):
                self._fence(opened)
            elif self._starts_table():
                self._table()
            elif heading := _HEADING.match(line):
                self._heading(len(heading.group(1)), heading.group(2))
                self._at += 1
            elif line.strip() and (rule := _UNDERLINE.match(self._peek())):
                self._heading(1 if rule.group(1)[0] == "=" else 2, line.strip())
                self._at += 2
            else:
                self.out.append(self._inline(line))
                self._at += 1

    def _peek(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _heading(self, level: int, title: str) -> None:
        self.out.append(f"{'####' if level == 1 else '#####'} {self._inline(title)}")

    def _fence(self, opened: re.Match[str]) -> None:
        mark, language = opened.group(1), opened.group(2)
        body: list[str] = []
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            closing = line.strip()
            if len(closing) >= len(mark) and set(closing) == {mark[0]}:
                break
            body.append(line)
        self.out.extend(fence("\n".join(body), language).split("\n"))

    def _starts_table(self) -> bool:
        rule = self._peek()
        return "|" in self._lines[self._at] and "|" in rule and bool(_TABLE_RULE.match(rule))

    def _table(self) -> None:
        rows: list[str] = []
        while self._at < len(self._lines) and "|" in self._lines[self._at]:
            rows.append(self._lines[self._at].strip())
            self._at += 1
        if self.used >= self._allowed:
            self.notes.append("table: shown as code, the card has too many")
            self.out.extend(fence("\n".join(rows)).split("\n"))
            return
        self.used += 1
        if self.out and self.out[-1].strip():
            self.out.append("")
        head, rule, *body = rows
        self.out.extend((self._inline(head), rule, *map(self._inline, body)))
        self.out.append("")

    def _inline(self, line: str) -> str:
        done: list[str] = []
        at = 0
        for span in _CODE_SPAN.finditer(line):
            done.extend((self._prose(line[at : span.start()]), _span(span.group(2))))
            at = span.end()
        done.append(self._prose(line[at:]))
        return "".join(done)

    def _prose(self, text: str) -> str:
        if "![" in text:
            self.notes.append("image: linked, not shown")
        text = _IMAGE.sub(lambda match: _link(match.group(1), match.group(2)), text)
        text = _LINK.sub(lambda match: _link(match.group(1), match.group(2)), text)
        text = _TICKS.sub(lambda match: "&#96;" * len(match.group()), text)
        text = _AUTOLINK.sub(lambda match: f"[{match.group(1)}]({match.group(1)})", text)
        pieces = _BREAK.split(_FONT.sub("", text))
        return "<br>".join(piece.replace("<", "&#60;").replace("![", "!&#91;") for piece in pieces)


def _link(label: str, target: str) -> str:
    """Only web addresses may be links; others stand in brackets behind their label."""
    if _WEB.match(target):
        return f"[{label or target}]({target})"
    return f"{label} ({target})" if target and target != label else label


def _span(code: str) -> str:
    """A code span with single marks: three of them at a line's start would open a block."""
    inner = code.strip()
    if "`" in inner:
        return f"`` {_guarded(inner.replace('```', f'``{_JOINT}`'))} ``"
    return f"`{_guarded(inner)}`"


def _guarded(code: str) -> str:
    """Nobody is mentioned by code that only talks about mentions."""
    return _AT.sub(f"<{_JOINT}", code)


def _short_lines(markdown: str, limit: int) -> Iterator[str]:
    for line in markdown.split("\n"):
        rest = line
        while len(rest) > limit:
            cut = rest.rfind(" ", int(limit * _EARLIEST_CUT), limit)
            cut = limit if cut < 0 else cut + 1
            yield rest[:cut]
            rest = rest[cut:]
        yield rest
