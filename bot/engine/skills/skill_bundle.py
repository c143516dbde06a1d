"""Reads a skill's folder without following links, and writes all its files into one for review.
Blocking."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cards.model import FileBlock
from storage.file_trees import walk_folders
from storage.records.skills import Skill, SkillFile, SkillNote

SKILL_FILE_NAMES = ("SKILL.md", "skill.md")
MAX_FILE = 2_000_000
MAX_TOTAL = 8_000_000
MAX_FILES = 200
MAX_DEPTH = 8
MAX_FAULTS = 20
MAX_SKILL_MD = 64 * 1024

_IGNORED_NAMES = {".git", "__pycache__", ".DS_Store", "Thumbs.db"}
_SCRIPT_SUFFIXES = {
    ".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1",
    ".bat", ".cmd", ".lua", ".php", ".exe", ".so", ".jar", ".awk", ".applescript",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillContents:
    """The files of a skill.

    `skill_md` is the name of its SKILL.md, empty if missing. With `faults`, reading is incomplete
    and the hash is meaningless."""

    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    files: tuple[SkillFile, ...] = ()
    hash: str = ""
    skill_md: str = ""
    faults: tuple[SkillNote, ...] = ()


FolderSignature = tuple[tuple[str, int, int, int], ...]
"""Names, times, sizes and inodes of all entries."""


def read_folder(folder: Path) -> SkillContents:
    """Read all files and collect all errors."""
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
                faults.append(
                    SkillNote(key="many_files", detail=str(MAX_FILES))
                    if len(files) == MAX_FILES
                    else SkillNote(key="too_large", detail=str(MAX_TOTAL // 1_000_000))
                )
                break
            data[name] = content.data
            files.append(_file_record(name, content))
    except OSError as error:
        faults.append(SkillNote(key="unreadable", detail=error.strerror or "?"))
    files.sort(key=lambda each: each.name)
    skill_md = next((name for name in SKILL_FILE_NAMES if name in data), "")
    return SkillContents(
        data=data,
        files=tuple(files),
        hash=_hash(files),
        skill_md=skill_md,
        faults=(*faults, *_text_faults(data.get(skill_md), there=bool(skill_md))),
    )


def folder_signature(folder: Path) -> FolderSignature:
    """Return a signature that changes with any file; cheap to compute."""
    found: list[tuple[str, int, int, int]] = []
    for path, folders, names, at in walk_folders(folder):
        folders[:] = sorted(set(folders) - _IGNORED_NAMES)
        for name in sorted({*names, *folders})[: MAX_FILES * 4]:
            seen = os.stat(name, dir_fd=at, follow_symlinks=False)
            found.append((f"{path}/{name}", seen.st_mtime_ns, seen.st_size, seen.st_ino))
        if len(found) > MAX_FILES * 4:
            break
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileContent:
    data: bytes
    executable: bool


def _walk(folder: Path) -> Iterator[tuple[str, _FileContent | SkillNote]]:
    for place, folders, names, at in walk_folders(folder):
        folders[:] = sorted(set(folders) - _IGNORED_NAMES)
        if len(place.parts) >= MAX_DEPTH and folders:
            yield str(place), SkillNote(key="too_deep", detail=_printable(str(place)))
            folders.clear()
        for name in [each for each in folders if _is_link(each, at)]:
            # Links are rejected even if they stay within the folder, to keep it simple.
            folders.remove(name)
            yield str(place / name), SkillNote(key="link", detail=_printable(str(place / name)))
        # Lone surrogates, and newlines that would add lines to lists.
        for name in sorted(each for each in {*names, *folders} if not each.isprintable()):
            yield name, SkillNote(key="unreadable_file", detail=_printable(str(place / name)))
        folders[:] = [each for each in folders if each.isprintable()]
        for name in sorted(each for each in set(names) - _IGNORED_NAMES if each.isprintable()):
            yield str(place / name), _read_file(name, at, _printable(str(place / name)))


def _read_file(name: str, at: int, shown: str) -> _FileContent | SkillNote:
    if _is_link(name, at):
        return SkillNote(key="link", detail=shown)
    try:
        # Non-blocking, because opening a pipe without a writer would block.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except OSError:
        return SkillNote(key="unreadable_file", detail=shown)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            return SkillNote(key="not_a_file", detail=shown)
        if status.st_size > MAX_FILE:
            return SkillNote(key="large_file", detail=shown)
        data = opened.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        return SkillNote(key="large_file", detail=shown)
    return _FileContent(data=data, executable=bool(status.st_mode & 0o111))


def _file_record(name: str, read: _FileContent) -> SkillFile:
    runs = read.executable or read.data.startswith(b"#!")
    in_scripts = PurePosixPath(name).parts[0] == "scripts" and len(PurePosixPath(name).parts) > 1
    return SkillFile(
        name=name,
        size=len(read.data),
        digest=hashlib.sha256(read.data).hexdigest(),
        script=runs or in_scripts or PurePosixPath(name).suffix.lower() in _SCRIPT_SUFFIXES,
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


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)[:120]


BUNDLE_FOLDER = "files/skills"
"""Relative to the data directory; holds one file per reviewed hash."""


def write_bundle(home: Path, skill: Skill, contents: SkillContents) -> FileBlock:
    """Write the bundle atomically. Raises OSError."""
    name = f"{skill.name}.md"
    path = f"{BUNDLE_FOLDER}/{contents.hash[:32]}/{name}"
    data = b"".join(_bundle_parts(contents))
    target = home / path
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{os.urandom(4).hex()}.part")
    temporary.write_bytes(data)
    temporary.replace(target)
    return FileBlock(path=path, name=name, size=len(data))


def _bundle_parts(contents: SkillContents) -> list[bytes]:
    """SKILL.md comes first, then every other file under its name."""
    parts = [contents.data[contents.skill_md]]
    for file in contents.files:
        if file.name != contents.skill_md:
            head = f"\n\n===== {file.name} · {file.size} bytes · sha256 {file.digest} =====\n\n"
            parts += [head.encode("utf-8", "replace"), _readable(contents.data[file.name])]
    return parts


def _readable(data: bytes) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        return b"[not text]"
    return data
