"""Finds skills in their folders, reads them without following links, and checks their requirements;
blocking."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from bot.engine.skills.skill_parser import ParsedSkill, SkillRequirements, parse_skill
from cards.model import FileBlock
from storage.data_directory import write_private_file
from storage.file_trees import walk_folders
from storage.records.skills import (
    InvalidSkill,
    MissingRequirement,
    Skill,
    SkillFile,
    SkillNote,
    SkillSource,
)

# --- one skill's folder
# Read without following links. Blocking.

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
    write_private_file(target, data)
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


# --- where skills are, and what they need
# Blocking.

_PLATFORM_ALIASES = {
    **dict.fromkeys(("macos", "mac", "osx"), "darwin"),
    **dict.fromkeys(("windows", "win"), "win32"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnvironment:
    """The programs, variables and platform of this machine; nothing is ever installed."""

    which: Callable[[str], str | None] = shutil.which
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    platform: str = sys.platform

    def missing_requirements(
        self, requirements: SkillRequirements
    ) -> tuple[MissingRequirement, ...]:
        systems = {
            _PLATFORM_ALIASES.get(each.casefold(), each.casefold()) for each in requirements.os
        }
        missing = {
            "os": requirements.os if systems and self.platform not in systems else (),
            "bins": tuple(each for each in requirements.bins if not self._has(each)),
            "any_bins": () if any(map(self._has, requirements.any_bins)) else requirements.any_bins,
            "env": tuple(each for each in requirements.env if not self.env.get(each)),
            # Settings of another program, which can't exist here.
            "config": requirements.config,
        }
        return tuple(
            MissingRequirement(key=key, names=names) for key, names in missing.items() if names
        )

    def _has(self, name: str) -> bool:
        """Accept names only: a path could point anywhere."""
        return "/" not in name and "\0" not in name and self.which(name) is not None


log = logging.getLogger(__name__)

BUILTIN_FOLDER = Path(__file__).parent / "builtin"
PROJECT_FOLDERS = ("skills", ".agents/skills", ".claude/skills")
MAX_SKILLS = 200
_MAX_ENTRIES = 10 * MAX_SKILLS
_MAX_CACHED = 2 * MAX_SKILLS


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRoot:
    """A folder of skills; `confined_to` must contain its resolved contents, if set."""

    path: Path
    source: SkillSource
    confined_to: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillScan:
    """Skills of all folders by precedence; `left_out` counts those beyond the limit."""

    skills: tuple[Skill, ...]
    bad: tuple[InvalidSkill, ...]
    left_out: int = 0


class SkillPaths:
    """Scans the folders on every call and reads only changed skills again."""

    def __init__(
        self,
        *,
        home: Path,
        user_home: Path | None = None,
        builtin: Path = BUILTIN_FOLDER,
        host: HostEnvironment | None = None,
    ) -> None:
        """`home` is the data directory, `user_home` the person's home."""
        self._home = home
        self._user_home = user_home
        self._builtin = builtin
        self._host = host or HostEnvironment()
        self._cache: OrderedDict[Path, tuple[FolderSignature, _CachedSkill]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def home(self) -> Path:
        return self._home

    @property
    def user_folder(self) -> Path:
        """The folder for skills created here."""
        return self._home / "skills"

    def scan(self, project: Path | None = None) -> SkillScan:
        folders = [(root, each) for root in self._roots(project) for each in _skill_folders(root)]
        # Built-in skills must not be crowded out.
        kept = folders[:MAX_SKILLS] + [
            each for each in folders[MAX_SKILLS:] if each[0].source is SkillSource.BUILTIN
        ]
        with self._lock:
            found = [self._read(root, folder) for root, folder in kept]
        return SkillScan(
            skills=tuple(each for each in found if isinstance(each, Skill)),
            bad=tuple(each for each in found if isinstance(each, InvalidSkill)),
            left_out=len(folders) - len(kept),
        )

    def has_own(self) -> bool:
        """Whether there is any skill but those that are built in."""
        own = (root for root in self._roots(None) if root.source is not SkillSource.BUILTIN)
        return any(_skill_folders(root) for root in own)

    def read_contents(self, folder: Path) -> SkillContents:
        """Return the current files, without cache."""
        return read_folder(folder.resolve())

    def clear_cache(self) -> None:
        with self._lock:
            self._cache.clear()

    def _roots(self, project: Path | None) -> Iterator[SkillRoot]:
        if project is not None:
            for name in PROJECT_FOLDERS:
                within = project.resolve()
                yield SkillRoot(
                    path=project / name, source=SkillSource.WORKSPACE, confined_to=within
                )
        yield SkillRoot(path=self.user_folder, source=SkillSource.USER)
        if self._user_home is not None:
            yield SkillRoot(path=self._user_home / ".agents" / "skills", source=SkillSource.USER)
        yield SkillRoot(path=self._builtin, source=SkillSource.BUILTIN)

    def _read(self, root: SkillRoot, folder: Path) -> Skill | InvalidSkill:
        place = folder.resolve()
        if root.confined_to is not None and not place.is_relative_to(root.confined_to):
            return _bad_skill(folder, root.source, SkillNote(key="link", detail=folder.name[:120]))
        try:
            seen = folder_signature(place)
        except OSError:
            seen = ()
        known = self._cache.get(place)
        is_current = known and seen and known[0] == seen and known[1].found.source is root.source
        if known is None or not is_current:
            self._cache[place] = known = (seen, _read_folder_as_skill(root, folder.name, place))
            if isinstance(found := known[1].found, InvalidSkill):
                errors = ", ".join(f"{each.key} {each.detail}".strip() for each in found.errors)
                log.warning("skill %s is not used: %s", found.path, errors)
        self._cache.move_to_end(place)
        while len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        # Not cached: requirements may have been installed since.
        return known[1].for_host(self._host)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedSkill:
    """A folder's skill, independent of the machine."""

    found: Skill | InvalidSkill
    requires: SkillRequirements = field(default_factory=SkillRequirements)

    def for_host(self, host: HostEnvironment) -> Skill | InvalidSkill:
        if isinstance(self.found, InvalidSkill):
            return self.found
        return replace(self.found, missing_requirements=host.missing_requirements(self.requires))


_UNREADABLE_KEYS = frozenset(("no_skill_md", "large_skill_md", "not_utf8"))


def load_skill(folder: Path) -> Skill | InvalidSkill:
    """Load a single folder, for authors of skills."""
    root = SkillRoot(path=folder.parent, source=SkillSource.USER)
    return _read_folder_as_skill(root, folder.name, folder).for_host(HostEnvironment())


def _skill_folders(root: SkillRoot) -> list[Path]:
    """Return the folders with a SKILL.md, by name; unreadable folders are skipped."""
    if root.confined_to is not None and not root.path.resolve().is_relative_to(root.confined_to):
        return []
    try:
        with os.scandir(root.path) as entries:
            first = islice(entries, _MAX_ENTRIES)
            names = sorted(each.name for each in first if _may_be_skill(each))
    except OSError:
        return []
    return [root.path / name for name in names]


def _may_be_skill(entry: os.DirEntry[str]) -> bool:
    try:
        entry.name.encode()
        if entry.name.startswith("."):
            return False
        return entry.is_dir() and any(
            os.path.lexists(f"{entry.path}/{name}") for name in SKILL_FILE_NAMES
        )
    except (OSError, UnicodeEncodeError):
        return False


def _bad_skill(place: Path, source: SkillSource, *faults: SkillNote) -> InvalidSkill:
    return InvalidSkill(name=place.name, source=source, path=str(place), errors=faults)


def _read_folder_as_skill(root: SkillRoot, name: str, place: Path) -> _CachedSkill:
    contents = read_folder(place)
    written = parse_skill(_skill_text(contents), name)
    # Errors of an unread text are not meaningful.
    unread = any(each.key in _UNREADABLE_KEYS for each in contents.faults)
    faults = (*contents.faults, *(() if unread else written.faults))
    if faults:
        return _CachedSkill(found=_bad_skill(place, root.source, *faults))
    return _CachedSkill(found=_skill(root, place, contents, written), requires=written.requires)


def _skill(root: SkillRoot, place: Path, contents: SkillContents, written: ParsedSkill) -> Skill:
    return Skill(
        name=written.name,
        description=written.description,
        source=root.source,
        path=str(place),
        hash=contents.hash,
        files=contents.files,
        text=_skill_text(contents),
        body=written.body,
        triggers=written.triggers,
        argument_hint=written.argument_hint,
        emoji=written.emoji,
        license=written.license,
        compatibility=written.compatibility,
        model_may_load=written.by_model,
        person_may_load=written.by_person,
        ignored=written.ignored,
        notes=written.notes,
    )


def _skill_text(contents: SkillContents) -> str:
    return contents.data.get(contents.skill_md, b"").decode("utf-8", "replace")
