"""Parses and renders Markdown pages of memories. Parsing accepts any input; rendering escapes text
so that reading returns every character."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class MarkdownLayout(StrEnum):
    """In a `list` each entry is one item; in a `book` it is everything below one heading."""

    LIST = "list"
    BOOK = "book"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLine:
    """An entry as shown in a file, at `revision`. A line without an id was written by hand.
    `conflict_id` is the entry with the conflicting version."""

    text: str
    id: str = ""
    revision: int = 0
    conflict_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """`title` is empty for the part before the first heading."""

    title: str
    lines: tuple[EntryLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownPage:
    """A parsed file.

    `write_number` counts Shiftboss's writes, 0 if the first mark is missing; `has_end_mark` says
    the last mark is present; `front_matter` is preserved verbatim; `left_out` counts entries that
    did not fit.
    """

    title: str
    sections: tuple[PageSection, ...] = ()
    write_number: int = 0
    has_end_mark: bool = True
    front_matter: str = ""
    left_out: int = field(default=0, compare=False)

    @property
    def lines(self) -> Iterator[EntryLine]:
        return (line for section in self.sections for line in section.lines)

    @property
    def visible_content(self) -> object:
        """The content people see: a page with equal content need not be written again."""
        return self.title, tuple(
            (each.title, tuple((line.id, line.text, line.conflict_id) for line in each.lines))
            for each in self.sections
        )


_REFERENCE = re.compile(r"&#([1-9]\d{0,6});")
_LITERAL = re.compile(r"&(?=#[1-9]\d{0,6};)")
_COMMENT = re.compile(r"<(?=!--)")
_EDGE_HEADING = re.compile(r"#(?=#?(?:\s|$))")
_HIGHEST = 0x10FFFF
_INVISIBLE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Parts of emoji and scripts, and the tab.
_ALLOWED_CHARACTERS = frozenset("\t\u200c\u200d")

NOTE_PREFIX = "> ⚠️ "
HINT_PREFIX = "> 💡 "
"""Starts a line that Shiftboss wrote for the file's reader."""


def escape_lines(text: str, *, at_edge: bool = False) -> list[str]:
    """The text as escaped lines, at least one. `at_edge`: they stand at the left margin, where
    headings and notes must be escaped too."""
    body = text.strip("\n")
    before = len(text) - len(text.lstrip("\n"))
    after = len(text) - len(body) - before
    if not body:
        return [_newlines(len(text))]
    lines = [_escape_line(each, at_edge=at_edge) for each in body.split("\n")]
    lines[0] = _newlines(before) + _escape_leading_space(lines[0])
    lines[-1] += _newlines(after)
    return lines


def escape_inline(text: str) -> str:
    """Escape a one-line text such as a heading."""
    return _newlines(1).join(_escape_leading_space(_escape_line(each)) for each in text.split("\n"))


def unescape(lines: Sequence[str]) -> str:
    """Reverses `escape_lines`; trailing spaces that a person typed are dropped."""
    return _REFERENCE.sub(_dereference, "\n".join(line.rstrip() for line in lines))


def _escape_line(line: str, *, at_edge: bool = False) -> str:
    line = _COMMENT.sub("&#60;", _LITERAL.sub("&#38;", line))
    line = "".join(_reference(each) if _is_invisible(each) else each for each in line)
    if line and line[-1].isspace():
        line = line[:-1] + _reference(line[-1])
    if at_edge and (
        _EDGE_HEADING.match(line) or line.startswith((NOTE_PREFIX.rstrip(), HINT_PREFIX.rstrip()))
    ):
        line = _reference(line[0]) + line[1:]
    return line


def _escape_leading_space(line: str) -> str:
    return _reference(line[0]) + line[1:] if line and line[0].isspace() else line


def _is_invisible(character: str) -> bool:
    return (
        character not in _ALLOWED_CHARACTERS
        and unicodedata.category(character) in _INVISIBLE_CATEGORIES
    )


def _reference(character: str) -> str:
    return f"&#{ord(character)};"


def _newlines(count: int) -> str:
    return "&#10;" * count


def _dereference(found: re.Match[str]) -> str:
    number = int(found[1])
    return chr(number) if number <= _HIGHEST else found[0]


END_MARK = "<!-- shiftboss: end -->"
_INDENT = "  "


def render_page(
    page: MarkdownPage, layout: MarkdownLayout, *, hint: str = "", conflict_note: str = ""
) -> str:
    """Render a page. `hint` tells people how to edit the file and `conflict_note` explains two
    versions of one entry; neither is read back."""
    return "\n".join((*_render_lines(page, layout, hint, conflict_note), ""))


def _render_lines(
    page: MarkdownPage, layout: MarkdownLayout, hint: str, conflict_note: str
) -> Iterator[str]:
    if page.front_matter:
        yield page.front_matter
    yield f"# {escape_inline(page.title)}".rstrip()
    yield f"<!-- shiftboss: {page.write_number} -->"
    if hint:
        yield ""
        yield from (f"{HINT_PREFIX}{line}" for line in hint.split("\n"))
    for section in page.sections:
        yield ""
        yield from (
            _render_book_section if layout is MarkdownLayout.BOOK else _render_list_section
        )(section, conflict_note)
    if page.has_end_mark:
        yield ""
        yield END_MARK


def _render_list_section(section: PageSection, conflict_note: str) -> Iterator[str]:
    if section.title:
        yield f"## {escape_inline(section.title)}"
        yield ""
    for line in section.lines:
        if line.conflict_id and conflict_note:
            yield f"{NOTE_PREFIX}{conflict_note}"
        first, *rest = escape_lines(line.text)
        yield f"- {first}{_render_mark(line)}"
        yield from (f"{_INDENT}{each}" if each else "" for each in rest)


def _render_book_section(section: PageSection, conflict_note: str) -> Iterator[str]:
    """Each entry gets its own heading with the section's title."""
    for number, line in enumerate(section.lines or (EntryLine(text=""),)):
        if number:
            yield ""
        yield f"## {escape_inline(section.title)}{_render_mark(line)}"
        if line.conflict_id and conflict_note:
            yield f"{NOTE_PREFIX}{conflict_note}"
        if line.text:
            yield ""
            yield from escape_lines(line.text, at_edge=True)


def _render_mark(line: EntryLine) -> str:
    if not line.id:
        return ""
    rival = f" or {line.conflict_id}" if line.conflict_id else ""
    return f" <!-- m:{line.id} r{line.revision}{rival} -->"


MAX_LINES = 50_000

_ENTRY_MARK = re.compile(
    # The lookbehind prevents quadratic backtracking on long runs of blanks.
    r"(?:(?<![ \t])[ \t]+)?<!--[ \t]*m:([0-9a-z]{1,16})(?:[ \t]+r(\d{1,9}))?"
    r"(?:[ \t]+or[ \t]+([0-9a-z]{1,16}))?[ \t]*-->"
)
_PAGE_MARK = re.compile(r"^<!--[ \t]*shiftboss:[ \t]*(end|\d{1,9})[ \t]*-->[ \t]*$")
_HEADING = re.compile(r"^#{1,6}(?:[ \t]+(.*))?$")
_TITLE = re.compile(r"^#(?:[ \t]+(.*))?$")
_CHAPTER = re.compile(r"^##?(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"^[-*+](?:[ \t]+(.*))?$")
_RULE = re.compile(r"^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_NOTE_PREFIXES = (NOTE_PREFIX.rstrip(), HINT_PREFIX.rstrip())
_FRONT_MATTER_FENCE = "---"
_MAX_FRONT_MATTER_LINES = 200


def parse_page(body: str, layout: MarkdownLayout) -> MarkdownPage:
    lines = body.replace("\r\n", "\n").removeprefix("\ufeff").split("\n", MAX_LINES)
    front, lines = _split_front_matter(lines)
    number, complete, kept = _split_page_marks(lines)
    title, kept = _split_title(kept)
    reader = _BookReader() if layout is MarkdownLayout.BOOK else _ListReader()
    for line in kept:
        reader.read_line(line)
    return MarkdownPage(
        title=title,
        sections=reader.sections(),
        write_number=number,
        has_end_mark=complete,
        front_matter=front,
    )


def _split_front_matter(lines: list[str]) -> tuple[str, list[str]]:
    """Split off front matter written by an editor; it is preserved unread."""
    if lines[0].rstrip() == _FRONT_MATTER_FENCE:
        for at, line in enumerate(lines[1:_MAX_FRONT_MATTER_LINES], start=1):
            if line.rstrip() == _FRONT_MATTER_FENCE:
                return "\n".join(lines[: at + 1]), lines[at + 1 :]
            if _ENTRY_MARK.search(line) or _PAGE_MARK.match(line):
                break
    return "", lines


def _split_page_marks(lines: Iterable[str]) -> tuple[int, bool, list[str]]:
    number, complete, kept = 0, False, []
    for line in lines:
        own = _PAGE_MARK.match(line)
        if own is None:
            if not line.startswith(_NOTE_PREFIXES):
                kept.append(line)
        elif own[1] == "end":
            complete = True
        else:
            number = number or int(own[1])
    return number, complete, kept


def _split_title(lines: list[str]) -> tuple[str, list[str]]:
    for at, line in enumerate(lines):
        found = _TITLE.match(line)
        if found is not None and not _ENTRY_MARK.search(line):
            return unescape([(found[1] or "").strip()]), lines[at + 1 :]
        if line.strip():
            break
    return "", lines


@dataclass(slots=True)
class _OpenSection:
    """A section being parsed."""

    title: str
    lines: list[EntryLine] = field(default_factory=list)


class _PageReader:
    def __init__(self) -> None:
        self._sections: list[_OpenSection] = [_OpenSection("")]
        self._text: list[str] = []

    def sections(self) -> tuple[PageSection, ...]:
        self.end()
        first, *rest = self._sections
        kept = [first] if first.lines else []
        return tuple(
            PageSection(title=each.title, lines=tuple(each.lines)) for each in (*kept, *rest)
        )

    def end(self) -> None:
        """Finish the current entry."""


class _ListReader(_PageReader):
    """Parses items, and paragraphs as if they were items."""

    def __init__(self) -> None:
        super().__init__()
        self._in_item = False
        self._fence = ""

    def read_line(self, line: str) -> None:
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if self._text and (not line.strip() or line.startswith(("  ", "\t"))):
            self._continue_item(line)
        elif not line.strip() or _RULE.match(line):
            self.end()
        elif heading is not None:
            self.end()
            self._sections.append(_OpenSection(unescape([(heading[1] or "").strip()])))
        elif item is not None:
            self.end()
            self._text, self._in_item = [item[1] or ""], True
        elif self._text and not self._in_item and self._text[-1].strip():
            self._text.append(line)
        else:
            self.end()
            self._text, self._in_item = [line], False

    def _continue_item(self, line: str) -> None:
        self._text.append(line[1:] if line.startswith("\t") else line[2:])

    def end(self) -> None:
        if self._text:
            line = _parse_entry(self._text)
            if line.id or line.text.strip():
                self._sections[-1].lines.append(line)
        self._text = []


class _BookReader(_PageReader):
    """Parses chapters: everything up to the next heading is one entry."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = EntryLine(text="")

    def read_line(self, line: str) -> None:
        heading = _CHAPTER.match(line)
        if heading is None:
            self._text.append(line)
            return
        self.end()
        mark = _parse_entry([heading[1] or ""])
        if mark.text != self._sections[-1].title or len(self._sections) == 1:
            self._sections.append(_OpenSection(mark.text))
        self._mark = replace(mark, text="")

    def end(self) -> None:
        found = _parse_entry(self._text)
        mark = self._mark
        if mark.id or found.id or found.text:
            known = mark if mark.id else found
            self._sections[-1].lines.append(replace(known, text=found.text))
        self._text, self._mark = [], EntryLine(text="")


def _parse_entry(raw: Sequence[str]) -> EntryLine:
    """An entry's text, and the first mark anywhere in it."""
    text = "\n".join(raw)
    found = _ENTRY_MARK.search(text)
    if found is not None:
        text = _ENTRY_MARK.sub("", text)
    words = unescape(_trim_blank_lines(text.split("\n")))
    if found is None:
        return EntryLine(text=words)
    return EntryLine(
        text=words, id=found[1], revision=int(found[2] or 0), conflict_id=found[3] or ""
    )


def _trim_blank_lines(lines: Sequence[str]) -> Sequence[str]:
    told = [at for at, line in enumerate(lines) if line.strip()]
    return lines[told[0] : told[-1] + 1] if told else ()
