"""A skill's folder, read whole and without following a link: names, bytes and one hash of all.

All functions block: call them in a thread.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from storage.records.workers.skills import SkillFile, SkillNote

NAMES = ("SKILL.md", "skill.md")
MAX_FILE = 2_000_000
MAX_TOTAL = 8_000_000
MAX_FILES = 200
MAX_DEPTH = 8
MAX_FAULTS = 20
MAX_SKILL_MD = 64 * 1024

_NOT_READ = {".git", "__pycache__", ".DS_Store", "Thumbs.db"}
_SCRIPTS = {".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl"} | {
    ".ps1", ".bat", ".cmd", ".lua", ".php", ".exe", ".so", ".jar", ".awk", ".applescript"
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What lies in the folder. `skill_md` is the name of its SKILL.md, empty without one; where
    there are `faults`, not everything was read and the hash means nothing."""

    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    files: tuple[SkillFile, ...] = ()
    hash: str = ""
    skill_md: str = ""
    faults: tuple[SkillNote, ...] = ()


Trace = tuple[tuple[str, int, int, int], ...]
"""Names, times, sizes and numbers of all entries: what changes when a file does."""


def read_folder(folder: Path) -> Contents:
    """All of it, with all that is wrong with it."""
    data: dict[str, bytes] = {}
    files: list[SkillFile] = []
    faults: list[SkillNote] = []
    total = 0
    try:
        for name, content in _walk(folder):
            if len(faults) == MAX_FAULTS:
                break
            if isinstance(content, SkillNote):
                faults.append(content)
                continue
            total += len(content.data)
            if len(files) == MAX_FILES or total > MAX_TOTAL:
                key, most = ("many_files", MAX_FILES), ("too_large", MAX_TOTAL // 1_000_000)
                told = key if len(files) == MAX_FILES else most
                faults.append(SkillNote(key=told[0], detail=str(told[1])))
                break
            data[name] = content.data
            files.append(_file(name, content))
    except OSError as error:
        faults.append(SkillNote(key="unreadable", detail=error.strerror or "?"))
    files.sort(key=lambda each: each.name)
    skill_md = next((name for name in NAMES if name in data), "")
    return Contents(
        data=data,
        files=tuple(files),
        hash=_hash(files),
        skill_md=skill_md,
        faults=(*faults, *_text_faults(data.get(skill_md), there=bool(skill_md))),
    )


def trace(folder: Path) -> Trace:
    """Cheap to take, and another one as soon as anything in the folder changes."""
    found: list[tuple[str, int, int, int]] = []
    for path, folders, names, at in os.fwalk(folder):
        folders[:] = sorted(set(folders) - _NOT_READ)
        for name in sorted({*names, *folders})[: MAX_FILES * 4]:
            seen = os.stat(name, dir_fd=at, follow_symlinks=False)
            found.append((f"{path}/{name}", seen.st_mtime_ns, seen.st_size, seen.st_ino))
        if len(found) > MAX_FILES * 4:
            break
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    data: bytes
    runnable: bool


def _walk(folder: Path) -> Iterator[tuple[str, _Read | SkillNote]]:
    for path, folders, names, at in os.fwalk(folder):
        place = PurePosixPath(Path(path).relative_to(folder).as_posix())
        folders[:] = sorted(set(folders) - _NOT_READ)
        if len(place.parts) >= MAX_DEPTH and folders:
            yield str(place), SkillNote(key="too_deep", detail=_shown(str(place)))
            folders.clear()
        for name in [each for each in folders if _is_link(each, at)]:
            # Never walked into; one that leads nowhere else is refused as well, to keep it simple.
            folders.remove(name)
            yield str(place / name), SkillNote(key="link", detail=_shown(str(place / name)))
        # Halves of characters, and line ends that would write lines of their own.
        for name in sorted(each for each in {*names, *folders} if not each.isprintable()):
            yield name, SkillNote(key="unreadable_file", detail=_shown(str(place / name)))
        folders[:] = [each for each in folders if each.isprintable()]
        for name in sorted(each for each in set(names) - _NOT_READ if each.isprintable()):
            yield str(place / name), _read(name, at, _shown(str(place / name)))


def _read(name: str, at: int, shown: str) -> _Read | SkillNote:
    if _is_link(name, at):
        return SkillNote(key="link", detail=shown)
    try:
        # A pipe without a writer would block the open; a regular file does not care.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except OSError:
        return SkillNote(key="unreadable_file", detail=shown)
    with os.fdopen(file, "rb") as opened:
        told = os.fstat(opened.fileno())
        if not stat.S_ISREG(told.st_mode):
            return SkillNote(key="not_a_file", detail=shown)
        if told.st_size > MAX_FILE:
            return SkillNote(key="large_file", detail=shown)
        data = opened.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        return SkillNote(key="large_file", detail=shown)
    return _Read(data=data, runnable=bool(told.st_mode & 0o111))


def _file(name: str, read: _Read) -> SkillFile:
    runs = read.runnable or read.data.startswith(b"#!")
    in_scripts = PurePosixPath(name).parts[0] == "scripts" and len(PurePosixPath(name).parts) > 1
    return SkillFile(
        name=name,
        size=len(read.data),
        digest=hashlib.sha256(read.data).hexdigest(),
        script=runs or in_scripts or PurePosixPath(name).suffix.lower() in _SCRIPTS,
    )


def _hash(files: list[SkillFile]) -> str:
    whole = hashlib.sha256()
    for each in files:
        whole.update(f"{each.name}\0{each.size}\0{each.digest}\0{each.script:d}\n".encode())
    return whole.hexdigest()


def _text_faults(text: bytes | None, *, there: bool) -> tuple[SkillNote, ...]:
    if not there or text is None:
        return (SkillNote(key="no_skill_md"),)
    if len(text) > MAX_SKILL_MD:
        return (SkillNote(key="large_skill_md", detail=str(MAX_SKILL_MD // 1024)),)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return (SkillNote(key="not_utf8", detail=str(error.start)),)
    return (SkillNote(key="not_utf8", detail="0"),) if b"\0" in text else ()


def _is_link(name: str, at: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)


def _shown(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)[:120]
