"""The text of a file as a page, whatever a person has made of it: nothing is ever refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from storage.memory.markdown.escape import HINT, NOTE, restored
from storage.memory.markdown.page import Layout, Line, Page, Section

MOST_LINES = 50_000

_MARK = re.compile(
    # Begun anew at each of many blanks it would take for ever.
    r"(?:(?<![ \t])[ \t]+)?<!--[ \t]*m:([0-9a-z]{1,16})(?:[ \t]+r(\d{1,9}))?"
    r"(?:[ \t]+or[ \t]+([0-9a-z]{1,16}))?[ \t]*-->"
)
_OWN = re.compile(r"^<!--[ \t]*shiftboss:[ \t]*(end|\d{1,9})[ \t]*-->[ \t]*$")
_HEADING = re.compile(r"^#{1,6}(?:[ \t]+(.*))?$")
_TITLE = re.compile(r"^#(?:[ \t]+(.*))?$")
_CHAPTER = re.compile(r"^##?(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"^[-*+](?:[ \t]+(.*))?$")
_RULE = re.compile(r"^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_NOTES = (NOTE.rstrip(), HINT.rstrip())
_FRONT = "---"
_LONGEST_FRONT = 200


def parse(body: str, layout: Layout) -> Page:
    lines = body.replace("\r\n", "\n").removeprefix("\ufeff").split("\n", MOST_LINES)
    front, lines = _front(lines)
    number, complete, kept = _marks(lines)
    title, kept = _title(kept)
    reader = _Book() if layout is Layout.BOOK else _List()
    for line in kept:
        reader.take(line)
    return Page(
        title=title, sections=reader.sections(), number=number, complete=complete, front=front
    )


def _front(lines: list[str]) -> tuple[str, list[str]]:
    """What some editors put before all: carried along, never looked into."""
    if lines[0].rstrip() == _FRONT:
        for at, line in enumerate(lines[1:_LONGEST_FRONT], start=1):
            if line.rstrip() == _FRONT:
                return "\n".join(lines[: at + 1]), lines[at + 1 :]
            if _MARK.search(line) or _OWN.match(line):
                break
    return "", lines


def _marks(lines: Iterable[str]) -> tuple[int, bool, list[str]]:
    number, complete, kept = 0, False, []
    for line in lines:
        own = _OWN.match(line)
        if own is None:
            if not line.startswith(_NOTES):
                kept.append(line)
        elif own[1] == "end":
            complete = True
        else:
            number = number or int(own[1])
    return number, complete, kept


def _title(lines: list[str]) -> tuple[str, list[str]]:
    for at, line in enumerate(lines):
        found = _TITLE.match(line)
        if found is not None and not _MARK.search(line):
            return restored([(found[1] or "").strip()]), lines[at + 1 :]
        if line.strip():
            break
    return "", lines


@dataclass(slots=True)
class _Open:
    """A section that is being read."""

    title: str
    lines: list[Line] = field(default_factory=list)


class _Reader:
    def __init__(self) -> None:
        self._done: list[_Open] = [_Open("")]
        self._text: list[str] = []

    def sections(self) -> tuple[Section, ...]:
        self.end()
        first, *rest = self._done
        kept = [first] if first.lines else []
        return tuple(Section(title=each.title, lines=tuple(each.lines)) for each in (*kept, *rest))

    def end(self) -> None:
        """Nothing more comes to the entry that is being read."""


class _List(_Reader):
    """Items, and paragraphs as if they were items."""

    def __init__(self) -> None:
        super().__init__()
        self._item = False
        self._fence = ""

    def take(self, line: str) -> None:
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if self._text and (not line.strip() or line.startswith(("  ", "\t"))):
            self._go_on(line)
        elif not line.strip() or _RULE.match(line):
            self.end()
        elif heading is not None:
            self.end()
            self._done.append(_Open(restored([(heading[1] or "").strip()])))
        elif item is not None:
            self.end()
            self._text, self._item = [item[1] or ""], True
        elif self._text and not self._item and self._text[-1].strip():
            self._text.append(line)
        else:
            self.end()
            self._text, self._item = [line], False

    def _go_on(self, line: str) -> None:
        self._text.append(line[1:] if line.startswith("\t") else line[2:])

    def end(self) -> None:
        if self._text:
            line = _line(self._text)
            if line.id or line.text.strip():
                self._done[-1].lines.append(line)
        self._text = []


class _Book(_Reader):
    """Chapters: everything up to the next heading is one entry."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = Line(text="")

    def take(self, line: str) -> None:
        heading = _CHAPTER.match(line)
        if heading is None:
            self._text.append(line)
            return
        self.end()
        mark = _line([heading[1] or ""])
        if mark.text != self._done[-1].title or len(self._done) == 1:
            self._done.append(_Open(mark.text))
        self._mark = replace(mark, text="")

    def end(self) -> None:
        found = _line(self._text)
        mark = self._mark
        if mark.id or found.id or found.text:
            known = mark if mark.id else found
            self._done[-1].lines.append(replace(known, text=found.text))
        self._text, self._mark = [], Line(text="")


def _line(raw: Sequence[str]) -> Line:
    """What an entry says, and the first mark that stands anywhere in it."""
    text = "\n".join(raw)
    found = _MARK.search(text)
    if found is not None:
        text = _MARK.sub("", text)
    words = restored(_trimmed(text.split("\n")))
    if found is None:
        return Line(text=words)
    return Line(text=words, id=found[1], revision=int(found[2] or 0), rival=found[3] or "")


def _trimmed(lines: Sequence[str]) -> Sequence[str]:
    told = [at for at, line in enumerate(lines) if line.strip()]
    return lines[told[0] : told[-1] + 1] if told else ()
