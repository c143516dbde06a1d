"""Text with marks over stretches of it, counted in UTF-16 units as chat platforms do."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from unicodedata import category

_OUTER_SPACE = " \t\n"
# Below this share of a piece a line break is no place to split: it would waste the message.
_EARLIEST_BREAK = 0.3
_MOST_LINK_CHARACTERS = 6000
# Letters and symbols by their class, but drawn as nothing.
_FILLERS = "\u115f\u1160\u2800\u3164\uffa0"
_CODE = frozenset({"code", "pre"})
_QUOTES = frozenset({"blockquote", "expandable_blockquote"})
# Control characters, line separators and marks that turn the reading direction around:
# servers drop them, and every offset behind them would be wrong.
_DROPPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
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
class Rich:
    text: str = ""
    marks: tuple[Mark, ...] = ()


def clean(text: str) -> str:
    """Text without what a platform would refuse or silently drop."""
    return _DROPPED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def is_blank(text: str) -> bool:
    """Whether nothing of it can be seen."""
    return all(category(char)[0] in "ZC" or char in _FILLERS for char in text)


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def plain(text: str) -> Rich:
    return Rich(text=clean(text))


def styled(text: str, kind: str, *, language: str = "") -> Rich:
    """Cleaned text under one mark."""
    return wrapped(plain(text), kind, language=language)


def wrapped(rich: Rich, kind: str, *, language: str = "") -> Rich:
    """The same text under one more mark."""
    length = utf16_length(rich.text)
    if not length:
        return rich
    outer = Mark(kind=kind, offset=0, length=length, language=language)
    return Rich(text=rich.text, marks=(outer, *rich.marks))


def joined(pieces: Iterable[Rich], glue: str = "") -> Rich:
    """Pieces in a row; empty ones leave no glue."""
    texts: list[str] = []
    marks: list[Mark] = []
    at = 0
    for piece in pieces:
        if not piece.text:
            continue
        if texts:
            texts.append(glue)
            at += utf16_length(glue)
        texts.append(piece.text)
        marks.extend(replace(mark, offset=mark.offset + at) for mark in piece.marks)
        at += utf16_length(piece.text)
    return Rich(text="".join(texts), marks=tuple(marks))


def tidied(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Marks in order, without what must not be: crossing, styled code, quotes in quotes."""
    kept: list[Mark] = []
    around: list[Mark] = []
    for mark in sorted(set(marks), key=lambda m: (m.offset, -m.length, m.kind)):
        while around and around[-1].end <= mark.offset:
            around.pop()
        if mark.length <= 0 or (around and not _fits(mark, around)):
            continue
        around.append(mark)
        kept.append(mark)
    return tuple(kept)


def split(rich: Rich, limit: int, most_marks: int) -> tuple[Rich, ...]:
    """Cut into pieces of at most `limit` UTF-16 units and `most_marks` marks.

    Cuts at the last line break beyond 30 % of a piece, else hard; marks go on in the next
    piece, so code stays code. White space around a cut is dropped, and so are empty pieces.
    """
    ruler = _Ruler(rich)
    pieces: list[Rich] = []
    start = 0
    while start < len(rich.text):
        end = ruler.cut(start, limit, most_marks)
        piece = ruler.piece(start, end)
        if not is_blank(piece.text):
            pieces.append(replace(piece, marks=piece.marks[:most_marks]))
        start = end
    return tuple(pieces)


class _Ruler:
    """Knows the UTF-16 offset of every character of one text."""

    def __init__(self, rich: Rich) -> None:
        self._text = rich.text
        self._marks = tidied(rich.marks)
        self._starts = [mark.offset for mark in self._marks]
        self._offsets = _offsets(rich.text)
        self._open: list[Mark] = []
        self._next = 0

    def cut(self, start: int, limit: int, most_marks: int) -> int:
        """Where the piece that begins at `start` ends. Pieces must be cut in order."""
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
        return line if line - start > _EARLIEST_BREAK * (hard - start) else hard

    def piece(self, start: int, end: int) -> Rich:
        """The text between two characters without its outer white space, and its marks."""
        raw = self._text[start:end]
        body = raw.strip(_OUTER_SPACE)
        if not body:
            return Rich()
        start += len(raw) - len(raw.lstrip(_OUTER_SPACE))
        first, last = self._offsets[start], self._offsets[start + len(body)]
        return Rich(text=body, marks=tuple(self._clipped(first, last)))

    def _clipped(self, first: int, last: int) -> Iterable[Mark]:
        upto = bisect_left(self._starts, last)
        self._open += self._marks[self._next : upto]
        self._next = max(self._next, upto)
        addresses = 0
        for mark in self._open:
            begin, stop = max(mark.offset, first), min(mark.end, last)
            if stop <= begin:
                continue
            addresses += len(mark.url)
            if not mark.url or addresses <= _MOST_LINK_CHARACTERS:
                yield replace(mark, offset=begin - first, length=stop - begin)


def _fits(mark: Mark, around: list[Mark]) -> bool:
    kinds = {outer.kind for outer in around}
    quoted_twice = mark.kind in _QUOTES and kinds & _QUOTES
    return not (mark.end > around[-1].end or kinds & _CODE or mark.kind in kinds or quoted_twice)


def _offsets(text: str) -> range | list[int]:
    """The UTF-16 offset of every character, and of the end."""
    if text.isascii():
        return range(len(text) + 1)
    offsets = [0]
    for char in text:
        offsets.append(offsets[-1] + (2 if char > "\uffff" else 1))
    return offsets
