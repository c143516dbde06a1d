"""What to look for in the archive: words, or a regular expression that cannot run away."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.engine.memory.archive.finding.watch import Watch
from storage.memory.lexicon.chinese import is_filler
from storage.memory.lexicon.english import STOP

MOST_PATTERN = 500
_WINDOWS = {1: 2_000, 2: 200, 3: 60}
"""Characters that are looked at together, by the repeats without an end: each such repeat makes a
search slower by that length. What fits is no longer than that."""
_WIDE = 10
_MOST_WAYS = 1_000
"""In which one place may be read: each `?` doubles them, each small repeat multiplies them."""
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|「([^」]+)」|(\S+)')
_LOOKS_LIKE_REGEX = re.compile(r"\.[*+?]|\\[bdws]|\[[^\]]+\][*+?{]|\(\?|\w\|\w|^\^|\$$")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]+|[^\W_\u3040-\uffff]+")
_MOST_PIECES = 16
_COUNTED = re.compile(r"\{(\d*)(,?)(\d*)\}")


class BadPattern(Exception):
    """It says what is wrong and what to do."""


@dataclass
class _Group:
    repeats: bool = False
    branches: int = 0
    ways: float = 1
    """Of all that was read in it so far, its own branches aside."""


def words_of(text: str) -> tuple[str, ...]:
    """What stands between spaces, and what is quoted as one."""
    found = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text.strip())]
    return tuple(word.strip() for word in found if word.strip())


def pieces_of(words: Sequence[str]) -> tuple[str, ...]:
    """Words of letters as they are, of Chinese every two characters, without what stands in every
    other sentence: what says the same in other words has some of them."""
    found: dict[str, None] = {}
    for run in _RUN.findall(" ".join(words).casefold()):
        if _HAN.match(run):
            pairs = (run[at : at + 2] for at in range(max(1, len(run) - 1)))
            found |= dict.fromkeys(pair for pair in pairs if not is_filler(pair))
        elif len(run) > 1 and run not in STOP:
            found[run] = None
    return tuple(found)[:_MOST_PIECES]


def looks_like_regex(text: str) -> bool:
    return bool(_LOOKS_LIKE_REGEX.search(text.strip()))


class Pattern:
    """For one search, as long as its `watch` lets it. Case is not told apart. Raises BadPattern
    where it could take for ever."""

    def __init__(self, text: str, watch: Watch | None = None) -> None:
        self._window = _WINDOWS.get(_checked(text), 0)
        self.watch = watch or Watch()
        try:
            self._pattern = re.compile(text, re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as error:
            raise BadPattern(f"this is no regular expression: {error}") from None

    @property
    def is_late(self) -> bool:
        """It has taken its time: nothing is found any more."""
        return self.watch.is_late

    def find(self, text: str) -> tuple[int, int] | None:
        """Where it is, first of all."""
        for start, piece in self._pieces(text):
            if self.is_late:
                return None
            if found := self._pattern.search(piece):
                return start + found.start(), start + found.end()
        return None

    def _pieces(self, text: str) -> Iterator[tuple[int, str]]:
        if not self._window:
            yield 0, text
            return
        start = 0
        for line in text.splitlines(keepends=True):
            plain = line.rstrip("\r\n")
            for at in range(0, max(len(plain), 1), self._window * 3 // 4):
                yield start + at, plain[at : at + self._window]
            start += len(line)


def _checked(text: str) -> int:
    """How many repeats in it have no end. Raises BadPattern."""
    if len(text) > MOST_PATTERN:
        raise BadPattern(f"the pattern is longer than {MOST_PATTERN} characters")
    groups, last, at, wide = [_Group()], None, 0, 0
    while at < len(text):
        quantifier = _quantifier(text, at)
        if quantifier is None:
            at, last = _piece(text, at, groups)
            continue
        length, least, most = quantifier
        if most > _WIDE:
            _refuse_nested(last)
            groups[-1].repeats = True
            wide += 1
        else:
            inner = _ways(last) if last is not None else 1
            groups[-1].ways *= inner ** max(0, most - 1) * max(1, most - least + 1)
        at, last = at + length, None
        _refuse_many(groups[-1])
    _refuse_many(groups[0])
    if wide > max(_WINDOWS):
        raise BadPattern(f"more than {max(_WINDOWS)} repeats without an end: look for less at once")
    return wide


def _piece(text: str, at: int, groups: list[_Group]) -> tuple[int, _Group | None]:
    """Past whatever is no quantifier: where it ends, and the group that ends there."""
    match text[at]:
        case "\\":
            return _escape(text, at) + 1, None
        case "[":
            return _class_end(text, at) + 1, None
        case "(":
            return _opened(text, at, groups) + 1, None
        case ")" if len(groups) > 1:
            group = groups.pop()
            groups[-1].repeats |= group.repeats
            groups[-1].ways *= _ways(group)
            _refuse_many(groups[-1])
            return at + 1, group
        case "|":
            groups[-1].branches += 1
    return at + 1, None


def _escape(text: str, at: int) -> int:
    if text[at + 1 : at + 2].isdigit():
        raise BadPattern("no references back to groups, please")
    return at + 1


def _class_end(text: str, at: int) -> int:
    at += 2 if text[at + 1 : at + 2] == "^" else 1
    at += text[at : at + 1] == "]"
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at


def _opened(text: str, at: int, groups: list[_Group]) -> int:
    groups.append(_Group())
    if text[at + 1 : at + 2] != "?":
        return at
    if text[at + 2 : at + 3] != ":":
        raise BadPattern("of groups that begin with (? only (?:…) is possible")
    return at + 2


def _quantifier(text: str, at: int) -> tuple[int, int, int] | None:
    """How long it is, and how often it repeats at least and at most."""
    if text[at] in "*+?":
        length, least, most = 1, 0, 1 if text[at] == "?" else _WIDE + 1
    else:
        counted = _COUNTED.match(text, at)
        if counted is None:
            return None
        low, comma, high = counted.groups()
        high = high or ("" if comma else low)
        length = len(counted.group())
        least, most = int(low[:6] or 0), int(high[:6] or _WIDE + 1)
    lazy = text[at + length : at + length + 1] in {"?", "+"}
    return length + lazy, least, most


def _ways(group: _Group) -> float:
    return group.ways * (group.branches + 1)


def _refuse_many(group: _Group) -> None:
    if _ways(group) > _MOST_WAYS:
        raise BadPattern("it can be read in too many ways: look for less at once")


def _refuse_nested(last: _Group | None) -> None:
    if last is not None and (last.repeats or last.branches):
        raise BadPattern("a repeated group may hold no other repeats and no alternatives")
