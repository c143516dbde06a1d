"""What a plain word of somebody comes to, and how a text falls into clauses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storage.records.memory.entries import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """`key` names what it is about: what is said of it later takes its place. Without one it is
    kept beside all others. `value` is what a program reads: `zh`, `brief`, a name. `is_wish` says
    that they want it kept, whatever was forgotten before."""

    text: str
    category: Category
    key: str = ""
    value: str = ""
    confidence: float = 0.95
    is_wish: bool = True


def clauses(text: str) -> Iterator[tuple[str, bool]]:
    """Each with whether it is asked."""
    for found in _CLAUSE.finditer(text):
        clause = found.group(1).strip()
        if clause:
            asked = found.group(2).strip() in {"?", "？"} or clause.endswith(("吗", "嘛", "呢"))
            yield clause, asked


def sentences(text: str) -> Sequence[str]:
    return [each for each in re.split(r"(?<=[。.!！?？\n])", text) if each.strip()]


def is_han(text: str) -> bool:
    return re.search(r"[\u3400-\u9fff]", text) is not None


_CLAUSE = re.compile(r"([^，,。.!！?？；;\n]{1,200})([，,。.!！?？；;\n]|$)")
