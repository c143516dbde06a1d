"""The files in which the Boss has written down how workers are to be: `context/` in the home."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bot.engine.agent.context.files import BUDGET, Reading, clipped, read_within
from storage.records.context import ContextPart, PartState

FOLDER = "context"
MEMORY = "MEMORY.md"
NAMES = (
    "AGENTS.md",
    "SOUL.md",
    "TOOLS.md",
    "IDENTITY.md",
    "USER.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    MEMORY,
)
"""In the order in which they are told."""

FOR_HELPERS = ("AGENTS.md", "TOOLS.md")
TOTAL = 60_000
_LEAST = 500
"""Characters; less of a file says nothing."""

_INTRO = """\
Your Boss has written this for those who work here. SOUL.md is how you are, IDENTITY.md who you are,
USER.md whom you work for. Follow it, without speaking of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The files' block, and what became of each."""

    text: str
    parts: tuple[ContextPart, ...]


def bootstrap(home: Path, *, helper: bool, private: bool) -> Told:
    """`private` says that nobody but the Boss hears it: only then their memory is told. Files that
    are missing are left out. Blocking."""
    left, blocks, parts = TOTAL, [], []
    for name in NAMES:
        if (helper and name not in FOR_HELPERS) or (name == MEMORY and not private):
            parts.append(ContextPart(name=name, state=PartState.KEPT_BACK))
            continue
        part, text = _fitted(name, _reading(home / FOLDER, name), left)
        parts.append(part)
        if text:
            blocks.append(f"## {name}\n{text}")
            left -= len(text)
    whole = "\n\n".join([_INTRO, *blocks]) if blocks else ""
    return Told(text=whole, parts=tuple(parts))


def _fitted(name: str, read: Reading, left: int) -> tuple[ContextPart, str]:
    """As much of it as there is room for."""
    text, state = read.text, read.state
    if text and len(text) > left:
        crowded = left < _LEAST
        text = "" if crowded else clipped(text, left - _LEAST // 5)
        state = PartState.CROWDED if crowded else PartState.CUT
    return ContextPart(name=name, state=state, size=read.size, used=len(text)), text


def _reading(folder: Path, name: str) -> Reading:
    found = Reading(state=PartState.MISSING)
    for each in _spellings(name):
        found = read_within(folder / each, None, BUDGET)
        if found.state is not PartState.MISSING:
            return found
    return found


def _spellings(name: str) -> Iterator[str]:
    """Memory is also found in small letters; where both are there, the first is told."""
    yield name
    if name == MEMORY:
        yield name.lower()
