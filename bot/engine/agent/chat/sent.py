"""What the Boss sent along: laid where tools can open it, and told to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bot.engine.agent.pictures import picture_kind
from bot.engine.agent.web.framing import framed
from bot.engine.llm import workspace as folder
from bot.engine.llm.base import Picture

INBOX = "inbox"
"""The folder in a chat's workspace for what people sent."""

MOST_OF_ONE = 20_000
MOST_OF_ALL = 40_000
"""Characters of text files that a model is shown; the rest it can read from the file."""

_LARGEST = 50_000_000
_READ = 4 * MOST_OF_ONE
_MOST_NAMES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`told` is for the prompt: the texts as data, the other files by where they lie."""

    pictures: tuple[Picture, ...] = ()
    told: str = ""


async def unpacked(home: Path, files: Sequence[str], workspace: Path, *, mark: str) -> Sent:
    """`files` are relative to `home`; `mark` sets their contents apart (see `framed`). Done again
    it changes nothing. What is missing is said, never raised."""
    if not files:
        return Sent()
    return await asyncio.to_thread(_unpacked, home, files, workspace, mark)


def _unpacked(home: Path, files: Sequence[str], workspace: Path, mark: str) -> Sent:
    pictures: list[Picture] = []
    told: list[str] = []
    left = MOST_OF_ALL
    for name in files:
        source = home / name
        place = _laid(source, workspace)
        lies = workspace / place if place else source
        if kind := picture_kind(lies):
            pictures.append(Picture(path=lies, mime=kind))
            continue
        shown = _text(lies, min(left, MOST_OF_ONE))
        left -= len(shown)
        told.append(_line(lies, place or source.name, shown, mark))
    return Sent(pictures=tuple(pictures), told="".join(f"\n\n{each}" for each in told))


def _line(path: Path, place: str, shown: str, mark: str) -> str:
    size = path.stat().st_size if path.is_file() else 0
    about = f"The Boss sent the file {place} ({size:,} bytes)"
    if not size:
        return f"[{about}: it is empty or could not be kept]"
    if not shown:
        return f"[{about}; it is not shown here: open it with your tools by that path]"
    return framed(shown, source=about, mark=mark)


def _text(path: Path, most: int) -> str:
    """Beginning and end of a text file; empty for any other."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            data = file.read(_READ)
    except OSError:
        return ""
    if most <= 0 or not data or folder.is_binary(data):
        return ""
    text = data.decode("utf-8", "ignore")
    if len(text) <= most and size <= _READ:
        return text
    return f"{text[:most]}\n[… cut here: the rest is in the file]"


def _laid(source: Path, workspace: Path) -> str:
    """Where it lies in the workspace now; empty if it cannot be put there. A file of the same
    name with something else in it keeps its place."""
    try:
        if source.stat().st_size > _LARGEST:
            return ""
        data = source.read_bytes()
        for number in range(1, _MOST_NAMES):
            place = f"{INBOX}/{_numbered(source.name, number)}"
            there = _there(workspace, place)
            if there is None:
                return folder.write_bytes(workspace, place, data, limit=_LARGEST)
            if there == data:
                return place
    except (OSError, folder.PathRefused):
        # It is told by its name then: an answer without the file beats none.
        return ""
    return ""


def _there(workspace: Path, place: str) -> bytes | None:
    if not (workspace / place).exists():
        return None
    return folder.read_bytes(workspace, place, limit=_LARGEST)[0]


def _numbered(name: str, number: int) -> str:
    path = PurePosixPath(name)
    return name if number == 1 else f"{path.stem}-{number}{path.suffix}"
