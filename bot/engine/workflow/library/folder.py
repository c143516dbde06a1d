"""The folder in which named workflows lie: safe names, no links, nothing too large, whole writes.

All functions block: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeAlias

SUFFIXES = (".yaml", ".yml", ".json", ".md")
MOST_BYTES = 1_000_000
MOST_FILES = 200

_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_NO_WORKFLOWS = {"readme"}

Stamp: TypeAlias = tuple[int, int, int]
"""Time, size and number of a file: another one as soon as it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    file: str
    stamp: Stamp


class NotReadable(Exception):
    """`key` is the fault's: link, not_a_file, large_file, not_utf8 or unreadable."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


def is_name(name: str) -> bool:
    """Letters of any language, digits, `-` and `_`: nothing that could lead elsewhere."""
    return bool(_NAME.fullmatch(name)) and name.casefold() not in _NO_WORKFLOWS


def entries(folder: Path) -> tuple[list[Entry], int]:
    """The files by name, and how many more there are. Nothing where there is no folder."""
    try:
        with os.scandir(folder) as each:
            found = list(filter(None, map(_entry, each)))
    except (FileNotFoundError, NotADirectoryError):
        return [], 0
    found.sort(key=lambda each: (each.name, SUFFIXES.index(Path(each.file).suffix.lower())))
    return found[:MOST_FILES], max(0, len(found) - MOST_FILES)


def read(path: Path) -> str:
    """Raises NotReadable. A link is not followed, wherever it leads; a pipe is not waited for."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise NotReadable("link") from error
        raise NotReadable("unreadable", why=error.strerror or "?") from error
    with os.fdopen(file, "rb") as opened:
        told = os.fstat(opened.fileno())
        if not stat.S_ISREG(told.st_mode):
            raise NotReadable("not_a_file")
        try:
            data = opened.read(MOST_BYTES + 1)
        except OSError as error:
            raise NotReadable("unreadable", why=error.strerror or "?") from error
    return decoded(data)


def decoded(data: bytes) -> str:
    """Raises NotReadable."""
    if len(data) > MOST_BYTES:
        raise NotReadable("large_file", most=MOST_BYTES // 1_000)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotReadable("not_utf8", at=error.start) from error


def write(folder: Path, name: str, text: str, *, replace: bool) -> str:
    """The file's name. Written under another name first and put in place whole; FileExistsError
    where one is there already, other than this one, and is not to be replaced. Other files of
    that name go once the new one is in place."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
    file = f"{name}{suffix_of(text)}"
    others = [each for each in _of_name(folder, name) if each != file]
    if others and not replace:
        raise FileExistsError(others[0])
    data = f"{text.rstrip()}\n".encode()
    with NamedTemporaryFile(dir=folder, prefix=f".{name}.", suffix=".new", delete=False) as opened:
        new = Path(opened.name)
        try:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
            _put(new, folder / file, data, replace=replace)
        finally:
            new.unlink(missing_ok=True)
    for other in others:
        (folder / other).unlink(missing_ok=True)
    return file


def _put(new: Path, place: Path, data: bytes, *, replace: bool) -> None:
    if replace:
        new.replace(place)
        return
    try:
        # Fails where somebody was quicker, which a rename would not.
        os.link(new, place)
    except FileExistsError:
        # The same order carried out again has been carried out.
        if place.is_symlink() or not place.is_file() or place.read_bytes() != data:
            raise


def delete(folder: Path, name: str) -> bool:
    """False if there was none."""
    files = _of_name(folder, name)
    for file in files:
        (folder / file).unlink(missing_ok=True)
    return bool(files)


def suffix_of(text: str) -> str:
    """By what it looks like."""
    first = text.lstrip("\ufeff \t\r\n")
    if first.startswith("{"):
        return ".json"
    return ".md" if first.startswith(("#", "```")) or "\n```" in first else ".yaml"


def by_name(found: list[Entry]) -> Mapping[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in found:
        groups.setdefault(entry.name, []).append(entry)
    return groups


def _of_name(folder: Path, name: str) -> list[str]:
    return [f"{name}{suffix}" for suffix in SUFFIXES if os.path.lexists(folder / f"{name}{suffix}")]


def _entry(one: os.DirEntry[str]) -> Entry | None:
    path = Path(one.name)
    if one.name.startswith(".") or path.suffix.lower() not in SUFFIXES:
        return None
    if path.stem.casefold() in _NO_WORKFLOWS or not one.name.isprintable():
        return None
    try:
        told = one.stat(follow_symlinks=False)
    except OSError:
        return None
    return Entry(name=path.stem, file=one.name, stamp=(told.st_mtime_ns, told.st_size, told.st_ino))
