"""Search queries for the archive: words, safe regular expressions, and time limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from storage.memory.conversation_archive import TimeRange
from storage.search.lexicon import ENGLISH_STOP_WORDS, is_chinese_filler

SEARCH_SECONDS = 2.0


class SearchDeadline:
    """Time limit of one search, starting now. `was_cut` means that spans were skipped."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until = clock() + SEARCH_SECONDS
        self.was_cut = False

    @property
    def is_over(self) -> bool:
        return self._clock() > self._until

    def iterate(self, spans: Sequence[TimeRange]) -> Iterator[TimeRange]:
        """Yields the first span always and the others while time remains."""
        for n, each in enumerate(spans):
            if n and self.is_over:
                self.was_cut = True
                return
            yield each


MAX_PATTERN_CHARS = 500
_WINDOW_BY_REPEATS = {1: 2_000, 2: 200, 3: 60}
"""Characters searched at once, by number of unbounded repeats: each multiplies the time of a search
by this length. Longer matches are not found."""
_UNBOUNDED_FROM = 10
_MAX_PARSES = 1_000
"""Ways to match at one position: each `?` doubles them, each small repeat multiplies them."""
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|「([^」]+)」|(\S+)')
_REGEX_HINT = re.compile(r"\.[*+?]|\\[bdws]|\[[^\]]+\][*+?{]|\(\?|\w\|\w|^\^|\$$")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]")
_WORD_RUN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]+|[^\W_\u3040-\uffff]+"
)
_MAX_PIECES = 16
_COUNTED_REPEAT = re.compile(r"\{(\d*)(,?)(\d*)\}")


class InvalidSearchPattern(Exception):
    """The message explains the error and how to correct it."""


@dataclass
class _PatternGroup:
    repeats: bool = False
    branches: int = 0
    parses: float = 1
    """Ways to match everything read so far, except the group's own branches."""


def split_query(text: str) -> tuple[str, ...]:
    """Split at spaces, except inside quotes."""
    found = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text.strip())]
    return tuple(word.strip() for word in found if word.strip())


def split_pieces(words: Sequence[str]) -> tuple[str, ...]:
    """Words, and character pairs of Chinese, without stop words, for finding paraphrases."""
    found: dict[str, None] = {}
    for run in _WORD_RUN.findall(" ".join(words).casefold()):
        if _CJK.match(run):
            pairs = (run[at : at + 2] for at in range(max(1, len(run) - 1)))
            found |= dict.fromkeys(pair for pair in pairs if not is_chinese_filler(pair))
        elif len(run) > 1 and run not in ENGLISH_STOP_WORDS:
            found[run] = None
    return tuple(found)[:_MAX_PIECES]


def looks_like_regex(text: str) -> bool:
    return bool(_REGEX_HINT.search(text.strip()))


class SafePattern:
    """A case-insensitive regular expression that stops at its deadline. Raises InvalidSearchPattern
    if it could run too long."""

    def __init__(self, text: str, deadline: SearchDeadline | None = None) -> None:
        self._window = _WINDOW_BY_REPEATS.get(_validate(text), 0)
        self.deadline = deadline or SearchDeadline()
        try:
            self._pattern = re.compile(text, re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidSearchPattern(f"this is no regular expression: {error}") from None

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed; nothing is found after it."""
        return self.deadline.is_over

    def find(self, text: str) -> tuple[int, int] | None:
        """Span of the first match."""
        for start, piece in self._pieces(text):
            if self.is_over:
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


def _validate(text: str) -> int:
    """Number of unbounded repeats. Raises InvalidSearchPattern."""
    if len(text) > MAX_PATTERN_CHARS:
        raise InvalidSearchPattern(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    groups, last, at, wide = [_PatternGroup()], None, 0, 0
    while at < len(text):
        quantifier = _parse_quantifier(text, at)
        if quantifier is None:
            at, last = _skip_atom(text, at, groups)
            continue
        length, least, most = quantifier
        if most > _UNBOUNDED_FROM:
            _check_nesting(last)
            groups[-1].repeats = True
            wide += 1
        else:
            inner = _total_parses(last) if last is not None else 1
            groups[-1].parses *= inner ** max(0, most - 1) * max(1, most - least + 1)
        at, last = at + length, None
        _check_parses(groups[-1])
    _check_parses(groups[0])
    if wide > max(_WINDOW_BY_REPEATS):
        raise InvalidSearchPattern(
            f"more than {max(_WINDOW_BY_REPEATS)} repeats without an end: look for less at once"
        )
    return wide


def _skip_atom(text: str, at: int, groups: list[_PatternGroup]) -> tuple[int, _PatternGroup | None]:
    """Skip anything but a quantifier; returns its end and the group closed there."""
    match text[at]:
        case "\\":
            return _escape_end(text, at) + 1, None
        case "[":
            return _class_end(text, at) + 1, None
        case "(":
            return _open_group(text, at, groups) + 1, None
        case ")" if len(groups) > 1:
            group = groups.pop()
            groups[-1].repeats |= group.repeats
            groups[-1].parses *= _total_parses(group)
            _check_parses(groups[-1])
            return at + 1, group
        case "|":
            groups[-1].branches += 1
    return at + 1, None


def _escape_end(text: str, at: int) -> int:
    if text[at + 1 : at + 2].isdigit():
        raise InvalidSearchPattern("no references back to groups, please")
    return at + 1


def _class_end(text: str, at: int) -> int:
    at += 2 if text[at + 1 : at + 2] == "^" else 1
    at += text[at : at + 1] == "]"
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at


def _open_group(text: str, at: int, groups: list[_PatternGroup]) -> int:
    groups.append(_PatternGroup())
    if text[at + 1 : at + 2] != "?":
        return at
    if text[at + 2 : at + 3] != ":":
        raise InvalidSearchPattern("of groups that begin with (? only (?:…) is possible")
    return at + 2


def _parse_quantifier(text: str, at: int) -> tuple[int, int, int] | None:
    """Length, minimum and maximum of a quantifier."""
    if text[at] in "*+?":
        length, least, most = 1, 0, 1 if text[at] == "?" else _UNBOUNDED_FROM + 1
    else:
        counted = _COUNTED_REPEAT.match(text, at)
        if counted is None:
            return None
        low, comma, high = counted.groups()
        high = high or ("" if comma else low)
        length = len(counted.group())
        least, most = int(low[:6] or 0), int(high[:6] or _UNBOUNDED_FROM + 1)
    lazy = text[at + length : at + length + 1] in {"?", "+"}
    return length + lazy, least, most


def _total_parses(group: _PatternGroup) -> float:
    return group.parses * (group.branches + 1)


def _check_parses(group: _PatternGroup) -> None:
    if _total_parses(group) > _MAX_PARSES:
        raise InvalidSearchPattern("it can be read in too many ways: look for less at once")


def _check_nesting(last: _PatternGroup | None) -> None:
    if last is not None and (last.repeats or last.branches):
        raise InvalidSearchPattern("a repeated group may hold no other repeats and no alternatives")
