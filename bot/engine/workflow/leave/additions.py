"""What people have said since a step was allowed: is it talk, or would it be another step?"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace

from bot.engine.workflow.graph import Node

SAID = "💬"
_LONGEST = 300
_BEGINS = re.compile(rf"(?:^|\n){SAID} ")
_MARKS = frozenset(",.!?;:'\"()-，。！？、；：“”‘’（）…—~～")
_COMMAND = re.compile(r"(?<!\S)-|\w[.:]\w|(?<!\w)[.~]\w")
"""A flag, the name of a file or a host, a port."""


def added(node: Node, allowed: str, hash_of: Callable[[Node], str]) -> str | None:
    """What was said to this step after exactly that was allowed of which this is the hash; None
    if the step has changed in any other way."""
    for begin in _BEGINS.finditer(node.detail):
        before = replace(node, detail=node.detail[: begin.start()])
        if hash_of(before) == allowed:
            return node.detail[begin.start() :].replace(SAID, " ").strip()
    return None


def is_talk(text: str) -> bool:
    """Nothing in it could be a part of a command: words and the marks of a sentence only."""
    return len(text) <= _LONGEST and not _COMMAND.search(text) and all(_fits(text))


def _fits(text: str) -> Iterator[bool]:
    for each in text:
        kind = unicodedata.category(each)
        yield kind[0] in "LMN" or kind in {"Zs", "So"} or each == "\n" or each in _MARKS
