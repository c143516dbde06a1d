"""What the well-known kinds of secrets look like.

Each shape is found by a literal that it holds, and then looked at closer with a bounded or a
possessive-like pattern: no shape can be made to take more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

Span = tuple[int, int]

_PEM_LONGEST = 16_384
_NO_ONE = "${<%*•"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """`mark` is found first; `rest` must match from there, and no letter, digit, underscore or
    any of `apart` may stand before it. `digit`, `upper`: words can look like it, so one of these
    must be in it."""

    mark: str
    rest: re.Pattern[str]
    apart: str = ""
    digit: bool = False
    upper: bool = False

    def fits(self, secret: str) -> bool:
        return not (
            (self.digit and not any(each.isdigit() for each in secret))
            or (self.upper and not any(each.isupper() for each in secret))
        )


def shaped(text: str) -> Iterator[Span]:
    """Where secrets of a known shape are, in no order; they may overlap."""
    return chain(
        chain.from_iterable(_of_shape(text, shape) for shape in _SHAPES),
        *(find(text) for find in _FINDERS),
    )


def _of_shape(text: str, shape: _Shape) -> Iterator[Span]:
    at = text.find(shape.mark)
    while at >= 0:
        end = at + len(shape.mark)
        before = text[at - 1 : at]
        if not (before.isalnum() or (before and before in "_" + shape.apart)):
            found = shape.rest.match(text, at)
            if found is not None:
                end = found.end()
                if shape.fits(found.group()):
                    yield found.span()
        at = text.find(shape.mark, end)


def _telegram(text: str) -> Iterator[Span]:
    """A bot's number, a colon, its key."""
    for found in _TELEGRAM_KEY.finditer(text):
        start = found.start()
        while start and found.start() - start <= _LONGEST_NUMBER and text[start - 1] in _DIGITS:
            start -= 1
        if _SHORTEST_NUMBER <= found.start() - start <= _LONGEST_NUMBER:
            yield start, found.end()


def _headers(text: str) -> Iterator[Span]:
    """What follows `Bearer`, and `Basic` in an authorization header."""
    for pattern in (_BEARER, _BASIC):
        for found in pattern.finditer(text):
            if any(each.isdigit() for each in found.group(1)):
                yield found.span(1)


def _urls(text: str) -> Iterator[Span]:
    """The password of `scheme://user:password@host`, unless a variable stands there."""
    for found in _PASSWORD_IN_URL.finditer(text):
        if found.group(1)[0] not in _NO_ONE:
            yield found.span(1)


def _app_secrets(text: str) -> Iterator[Span]:
    for found in _APP_SECRET.finditer(text):
        yield found.span(1)


def _private_keys(text: str) -> Iterator[Span]:
    """From BEGIN to END; where the END is cut off, the lines that look like a key."""
    ends = _PEM_END.finditer(text)
    end = next(ends, None)
    done = 0
    for begin in _PEM_BEGIN.finditer(text):
        if begin.start() < done:
            continue
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        if end is not None and end.start() - begin.end() <= _PEM_LONGEST:
            done = end.end()
        else:
            lines = _PEM_LINES.match(text, begin.end())
            done = lines.end() if lines else begin.end()
        yield begin.start(), done


_DIGITS = frozenset("0123456789")
_SHORTEST_NUMBER, _LONGEST_NUMBER = 8, 10
_TELEGRAM_KEY = re.compile(r":[A-Za-z0-9_-]{35,64}")
_BEARER = re.compile(r"(?:[Bb]earer|BEARER)[ \t]{1,8}([\w.~+/=-]{16,4096})")
_BASIC = re.compile(r"(?:[Bb]asic|BASIC)[ \t]{1,8}([A-Za-z0-9+/]{12,4096}={0,2})")
_PASSWORD_IN_URL = re.compile(r"://[^\s/:@\"'<>]{0,256}:([^\s/@\"'<>]{1,512})@")
_APP_SECRET = re.compile(r"(?i:app_?secret)[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?([A-Za-z0-9]{32})\b")
_PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_LINES = re.compile(r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*")

_SHAPES = (
    _Shape(mark="sk-ant-", rest=re.compile(r"sk-ant-[\w-]{8,4096}")),
    _Shape(mark="sk-", rest=re.compile(r"sk-[\w-]{16,4096}"), digit=True),
    *(
        _Shape(mark=mark, rest=re.compile(mark + r"[A-Za-z0-9]{30,255}"))
        for mark in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
    ),
    _Shape(mark="github_pat_", rest=re.compile(r"github_pat_\w{22,255}")),
    _Shape(mark="glpat-", rest=re.compile(r"glpat-[\w-]{20,255}")),
    *(
        _Shape(mark=mark, rest=re.compile(mark + r"[A-Z0-9]{16}(?![A-Za-z0-9])"))
        for mark in ("AKIA", "ASIA")
    ),
    *(
        _Shape(mark=f"xox{kind}-", rest=re.compile(rf"xox{kind}-[\w-]{{10,512}}"))
        for kind in "abeoprs"
    ),
    _Shape(mark="AIza", rest=re.compile(r"AIza[\w-]{35}")),
    _Shape(
        mark="eyJ",
        rest=re.compile(r"eyJ[\w-]{6,8192}\.[\w-]{6,65536}(?:\.[\w-]{0,8192})?"),
        apart="-",
    ),
    # Feishu: of a tenant, of a user, to renew one, of an app.
    *(
        _Shape(mark=mark, rest=re.compile(mark + r"\w{20,512}"), apart="-", digit=True, upper=True)
        for mark in ("t-", "u-", "ur-", "a-")
    ),
)
_FINDERS: tuple[Callable[[str], Iterator[Span]], ...] = (
    _telegram,
    _headers,
    _urls,
    _app_secrets,
    _private_keys,
)
