"""Parses and renders Markdown pages of memories, and merges a person's edits of them. Parsing
accepts any input; rendering escapes text so that reading returns every character."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

# --- pages
# Parsing accepts any input; rendering escapes text so that reading returns every character.


class MarkdownLayout(StrEnum):
    """In a `list` each entry is one item; in a `book` it is everything below one heading."""

    LIST = "list"
    BOOK = "book"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLine:
    """An entry as shown in a file, at `revision`. A line without an id was written by hand.
    `conflict_id` is the entry with the conflicting version. `times` says since and until when it is
    so, for the reader: it is not read back."""

    text: str
    id: str = ""
    revision: int = 0
    conflict_id: str = ""
    times: str = field(default="", compare=False)


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
    times = f" {line.times}" if line.times else ""
    return f" <!-- m:{line.id} r{line.revision}{rival}{times} -->"


MAX_LINES = 50_000

_ENTRY_MARK = re.compile(
    # The lookbehind prevents quadratic backtracking on long runs of blanks.
    r"(?:(?<![ \t])[ \t]+)?<!--[ \t]*m:([0-9a-z]{1,16})(?:[ \t]+r(\d{1,9}))?"
    r"(?:[ \t]+or[ \t]+([0-9a-z]{1,16}))?"
    r"(?:[ \t]+(?:since|from|until)[ \t]+\d{4}-\d{2}-\d{2}){0,2}[ \t]*-->"
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


# --- merging a person's edits with changes in the store

_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDigest:
    """The page as last written, as digests only, so no forgotten text is retained.

    `lines` has the digest of each entry's text and `titles` that of its heading, by entry id.
    `removed` lists entries no longer shown because a person removed their lines.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()

    @classmethod
    def of_page(cls, page: MarkdownPage, *, with_titles: bool) -> PageDigest:
        """`with_titles`: headings count, as in a book layout."""
        lines = {line.id: text_digest(line.text) for line in page.lines if line.id}
        titles = {line.id: each.title for each in page.sections for line in each.lines if line.id}
        return cls(lines=lines, titles=titles if with_titles else {})

    @classmethod
    def from_json(cls, text: str) -> PageDigest:
        """Parses the result of `to_json`."""
        known = json.loads(text)
        return cls(lines=known["lines"], titles=known["titles"], removed=known.get("gone", ()))

    def to_json(self) -> str:
        known: dict[str, object] = {"lines": self.lines, "titles": self.titles}
        known |= {"gone": list(self.removed)} if self.removed else {}
        return json.dumps(known, ensure_ascii=False)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]


FREE_REMOVALS = 5
"""This many lines may always be removed at once."""

_MAX_REMOVED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedLine:
    """A line without a mark, or with the mark `id` of another file; `section` is its heading."""

    text: str
    section: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEdit:
    """`before` is the digest of the entry's text when the person started editing."""

    id: str
    text: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """`conflicts` were changed differently on both sides, and neither may be lost. `removed` were
    deleted by the person and are unchanged in the store; those `changed_in_store` must stay.
    `unconfirmed` lines are missing, perhaps unintentionally."""

    edits: tuple[LineEdit, ...] = ()
    conflicts: tuple[LineEdit, ...] = ()
    added: tuple[AddedLine, ...] = ()
    removed: tuple[str, ...] = ()
    changed_in_store: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()


def merge_page(
    base: PageDigest | None,
    disk: MarkdownPage,
    stored: Mapping[str, EntryLine],
    *,
    confirmed: frozenset[str] = frozenset(),
) -> MergeResult:
    """Compare the file with its base and the store.

    `base` is the page as last written, or None if unknown: missing lines are then ignored. `stored`
    has the entries this file may show, by id. `confirmed` are the ids last reported as unconfirmed:
    if they are still missing, they count as removed.
    """
    known = base.lines if base is not None else {}
    own, added = _split_own_and_added(disk, known)
    under = {line.id: each.title for each in disk.sections for line in each.lines}
    edits: list[LineEdit] = []
    clashes: list[LineEdit] = []
    for entry_id, line in own.items():
        found = _line_change(line, known.get(entry_id), stored.get(entry_id))
        if isinstance(found, AddedLine):
            added.append(replace(found, section=under.get(entry_id, "")))
        elif found is not None:
            to = clashes if _is_conflict(found, stored[entry_id]) else edits
            to.append(found)
    missing = [each for each in known if each in stored and each not in own]
    gone = tuple(each for each in missing if text_digest(stored[each].text) == known[each])
    sure = _is_removal_intended(disk, gone, known, confirmed)
    return MergeResult(
        edits=tuple(edits),
        conflicts=tuple(clashes),
        added=tuple(added),
        removed=gone if sure else (),
        changed_in_store=tuple(each for each in missing if each not in gone) if sure else (),
        unconfirmed=() if sure else gone,
    )


def restore_marks(base: PageDigest, disk: MarkdownPage, layout: MarkdownLayout) -> MarkdownPage:
    """The page with accidentally removed marks restored, for lines whose text, or chapters whose
    heading, is unchanged."""
    there = {line.id for line in disk.lines}
    lost = {
        base.titles.get(each, "") if layout is MarkdownLayout.BOOK else said: each
        for each, said in base.lines.items()
        if each not in there
    }
    if not lost:
        return disk
    sections = []
    for section in disk.sections:
        lines = []
        for line in section.lines:
            name = section.title if layout is MarkdownLayout.BOOK else text_digest(line.text)
            unmarked = not line.id and bool(line.text.strip())
            known = lost.pop(name, "") if unmarked else ""
            lines.append(replace(line, id=known) if known else line)
        sections.append(replace(section, lines=tuple(lines)))
    return replace(disk, sections=tuple(sections))


def _split_own_and_added(
    disk: MarkdownPage, known: Mapping[str, str]
) -> tuple[dict[str, EntryLine], list[AddedLine]]:
    """Lines by mark, and new lines. If two lines share a mark, the changed one is new: it was
    copied."""
    own: dict[str, EntryLine] = {}
    added: list[AddedLine] = []
    for section in disk.sections:
        for line in section.lines:
            if not line.text.strip():
                continue
            twin = own.get(line.id) if line.id else None
            if line.id and twin is None:
                own[line.id] = line
                continue
            new = line
            if twin is not None and known.get(line.id) == text_digest(line.text) != text_digest(
                twin.text
            ):
                own[line.id], new = line, twin
            if twin is None or new.text != own[line.id].text:
                added.append(AddedLine(text=new.text, section=section.title))
    return own, added


def _line_change(
    line: EntryLine, before: str | None, now: EntryLine | None
) -> LineEdit | AddedLine | None:
    if now is None:
        # Gone from the store: an unchanged line is removed from the file too; anything a person
        # wrote since, or moved here from another file, stays.
        return None if text_digest(line.text) == before else AddedLine(text=line.text, id=line.id)
    if line.text == now.text or text_digest(line.text) == before:
        return None
    if before is None:
        # Its text is unknown; if the revision is the one shown, it is the stored text.
        before = text_digest(now.text) if line.revision == now.revision else ""
    return LineEdit(id=line.id, text=line.text, before=before)


def _is_conflict(edit: LineEdit, now: EntryLine) -> bool:
    return edit.before != text_digest(now.text)


def _is_removal_intended(
    disk: MarkdownPage,
    missing_ids: Iterable[str],
    known: Mapping[str, str],
    confirmed: frozenset[str],
) -> bool:
    """Whether missing lines were removed on purpose: not if the first or last mark of the file is
    gone, and not if most lines are missing, unless the same ones were missing before."""
    missing = frozenset(missing_ids)
    if not missing:
        return True
    if not disk.has_end_mark or not disk.write_number:
        return False
    return (
        len(missing) <= max(FREE_REMOVALS, len(known) * _MAX_REMOVED_SHARE) or missing == confirmed
    )
