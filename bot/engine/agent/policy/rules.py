"""Rules as people write them: `tool` or `tool(glob over the argument)`, and what they match.

Denying and asking compare loosely, so that case, Unicode and holes do not help; allowing compares
exactly, and only where a pattern covers whatever may stand in a hole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

HOLE = "\ue000"
"""Stands in a text for what is known only when the command runs: anything at all."""

_TOOL = re.compile(r"[\w.*?\-]+")
_MOST = 500
_LARGEST = 100_000
"""Beyond so many comparisons it may as well be hit."""


class BadRule(ValueError):
    """Not of the form `tool` or `tool(glob)`."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:80]!r} is not of the form tool or tool(pattern)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`tool` is a glob of tool names; an empty `pattern` covers every call of them."""

    tool: str
    pattern: str = ""

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    def is_for(self, tool: str) -> bool:
        return bool(_glob(folded(self.tool)).fullmatch(folded(tool)))

    def covers(self, text: str) -> bool:
        """Exactly, for allowing: every filling of a hole is covered too."""
        return not self.pattern or bool(_strict_glob(self.pattern).fullmatch(text))

    def hits(self, text: str) -> bool:
        """Loosely, for denying and asking."""
        return not self.pattern or bool(_glob(folded(self.pattern)).fullmatch(folded(text)))

    def may_hit(self, text: str) -> bool:
        """Whether some filling of the holes would be hit."""
        if HOLE not in text:
            return self.hits(text)
        return not self.pattern or _meet(folded(self.pattern), folded(text).replace(HOLE, "*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Deny wins, then ask, then allow."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Separated by commas, semicolons or lines, where they stand outside brackets; raises
    BadRule."""
    return tuple(_rule(piece) for piece in _pieces(text) if piece)


@lru_cache(maxsize=2048)
def folded(text: str) -> str:
    """The same for texts that look or work alike: case, width and invisible characters apart."""
    plain = unicodedata.normalize("NFKC", text)
    seen = "".join(one for one in plain if unicodedata.category(one) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen.casefold()).split())


def first_hit(rules: Iterable[Rule], tool: str, texts: Iterable[str]) -> Rule | None:
    heard = tuple(texts)
    return next(
        (r for r in rules if r.is_for(tool) and (not r.pattern or any(map(r.hits, heard)))), None
    )


def first_possible(rules: Iterable[Rule], tool: str, texts: Iterable[str]) -> Rule | None:
    heard = tuple(texts)
    return next((r for r in rules if r.is_for(tool) and any(map(r.may_hit, heard))), None)


def _rule(piece: str) -> Rule:
    name = _TOOL.match(piece)
    if name is None or len(piece) > _MOST:
        raise BadRule(piece)
    rest = piece[name.end() :].strip()
    if not rest:
        return Rule(tool=name[0])
    if not (rest.startswith("(") and rest.endswith(")")) or not rest[1:-1].strip():
        raise BadRule(piece)
    return Rule(tool=name[0], pattern=rest[1:-1].strip())


def _pieces(text: str) -> list[str]:
    pieces, depth = [""], 0
    for one in text:
        depth += (one == "(") - (one == ")" and depth > 0)
        if depth == 0 and one in ",;\n":
            pieces.append("")
        else:
            pieces[-1] += one
    return [piece.strip() for piece in pieces]


@lru_cache(maxsize=512)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


@lru_cache(maxsize=512)
def _strict_glob(pattern: str) -> re.Pattern[str]:
    """Only a star reaches over a hole: one character or a set of them is not anything at all.
    Each star takes the first that fits and never tries again, so that no text takes for ever."""
    first, *rest = (_fixed(part) for part in re.split(r"\*+", pattern))
    if not rest:
        return re.compile(first, re.DOTALL)
    between = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(f"{first}{between}.*{rest[-1]}", re.DOTALL)


def _fixed(part: str) -> str:
    return re.escape(part).replace(r"\?", f"[^{HOLE}]")


def _meet(one: str, other: str) -> bool:
    """Whether two globs have a text in common. A set in brackets counts as any character."""
    left, right = _units(one), _units(other)
    if len(left) * len(right) > _LARGEST:
        return True
    reach = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        at, to = todo.pop()
        for step in _steps(left, right, at, to) - reach:
            reach.add(step)
            todo.append(step)
    return (len(left), len(right)) in reach


def _steps(left: list[str], right: list[str], at: int, to: int) -> set[tuple[int, int]]:
    steps: set[tuple[int, int]] = set()
    mine = left[at] if at < len(left) else ""
    theirs = right[to] if to < len(right) else ""
    if mine == "*":
        steps |= {(at + 1, to)} | ({(at, to + 1)} if theirs else set())
    if theirs == "*":
        steps |= {(at, to + 1)} | ({(at + 1, to)} if mine else set())
    if mine and theirs and "*" not in (mine, theirs) and (mine == theirs or "?" in (mine, theirs)):
        steps.add((at + 1, to + 1))
    return steps


def _units(glob: str) -> list[str]:
    return re.findall(r".", re.sub(r"\[[^\]]*\]", "?", glob), re.DOTALL)
