"""The files an answer made: found in the chat's workspace, and copied out for the Boss."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from bot.engine.agent.chat.sent import INBOX
from bot.engine.llm import workspace as folder

MOST_FILES = 5
MOST_BYTES = 20_000_000

_MOST_LOOKED_AT = 5_000
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
_NAME = re.compile(r"[^\s`'\"“”‘’<>()\[\]{}*|：，。；、（）《》]{1,200}\.\w{1,8}")

Snapshot: TypeAlias = Mapping[str, tuple[int, int]]
"""When each file was changed and how large it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """`files` are copies relative to the data directory, with `sizes`; `left_out` are too many
    or too large."""

    files: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


async def snapshot(workspace: Path) -> Snapshot:
    return await asyncio.to_thread(_snapshot, workspace)


async def made(before: Snapshot, workspace: Path, said: str, *, home: Path, into: str) -> Made:
    """What is new or changed since `before`, and what the answer `said` names, copied to `into`
    below `home`: what was sent stays as it was. Nothing from outside the workspace, nothing
    hidden, and nothing that people sent."""
    return await asyncio.to_thread(_made, before, workspace, said, home, into)


def _made(before: Snapshot, workspace: Path, said: str, home: Path, into: str) -> Made:
    now = _snapshot(workspace)
    changed = [name for name, seen in now.items() if before.get(name) != seen]
    named = [name for name in _named(said) if name in now]
    files: list[str] = []
    sizes: dict[str, int] = {}
    left_out: list[str] = []
    for name in dict.fromkeys([*named, *changed]):
        copy = f"{into}/{name}"
        fits = len(files) < MOST_FILES and now[name][1] <= MOST_BYTES
        size = _copied(workspace, name, home, copy) if fits else None
        if size is None:
            left_out.append(name)
        else:
            files.append(copy)
            sizes[copy] = size
    return Made(files=tuple(files), sizes=sizes, left_out=tuple(left_out))


def _snapshot(workspace: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    if not workspace.is_dir():
        return found
    with suppress(folder.PathRefused):
        for count, entry in enumerate(folder.walk(workspace, ".", skip=_SKIPPED)):
            if count >= _MOST_LOOKED_AT:
                break
            if not entry.is_folder and entry.size and _is_theirs(entry.name):
                with suppress(OSError):
                    stat = (workspace / entry.name).stat(follow_symlinks=False)
                    found[entry.name] = (stat.st_mtime_ns, stat.st_size)
    return found


def _is_theirs(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return parts[0] != INBOX and not any(part.startswith(".") for part in parts)


def _named(said: str) -> list[str]:
    return [found[0].removeprefix("./") for found in _NAME.finditer(said)]


def _copied(workspace: Path, name: str, home: Path, copy: str) -> int | None:
    """Its size; None if it is gone, has grown too large, or is no file that may be read."""
    try:
        data, size = folder.read_bytes(workspace, name, limit=MOST_BYTES)
        if size > MOST_BYTES:
            return None
        folder.write_bytes(home, copy, data, limit=MOST_BYTES)
    except (folder.PathRefused, OSError):
        return None
    return len(data)
