"""Reads and writes files within a workspace and refuses any path outside.

A path is resolved first, then opened one component at a time without following links, so that a
link swapped in between is refused. All functions block."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from storage.data_directory import user_mask
from storage.file_trees import walk_folders, walk_open_folder

INTERNAL_FOLDER = ".shiftboss"
"""Workspace folder for full tool outputs; excluded from git and reports."""

MAX_PATH = 1_000
MAX_SHOWN = 100
MAX_WRITE = 1_000_000
MAX_ENTRIES = 500
UNSEARCHED = frozenset({".git", "node_modules", ".venv", INTERNAL_FOLDER})
"""Folders in which no worker's results are looked for."""

_MAX_SEARCHED = 20_000
_CLOCK_TICK = 0.02
"""Seconds by which the time of a file may be behind the clock."""

_TEMPORARY = ".shiftboss-{}.part"


class PathRefusal(StrEnum):
    """Why a path was refused; `text` is for the model."""

    BAD_NAME = "bad_name"
    OUTSIDE = "outside"
    MISSING = "missing"
    NOT_A_FILE = "not_a_file"
    NOT_A_FOLDER = "not_a_folder"
    BINARY = "binary"
    TOO_LARGE = "too_large"
    DISK = "disk"

    @property
    def text(self) -> str:
        return _REFUSAL_TEXTS[self]


class PathRefused(Exception):
    """The path can't be used; `path` is shortened."""

    def __init__(self, refusal: PathRefusal, path: str) -> None:
        self.refusal = refusal
        self.path = path if len(path) <= MAX_SHOWN else f"{path[:MAX_SHOWN]}…"
        super().__init__(f"{self.path!r}: {refusal.text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """An entry of a folder; `size` is in bytes, 0 for folders."""

    name: str
    is_folder: bool
    size: int


def resolve_path(workspace: Path, path: str) -> Path:
    """Return `path` relative to the workspace, with links resolved. Raises PathRefused."""
    _check_name(path)
    root = workspace.resolve()
    try:
        return (root / path).resolve().relative_to(root)
    except (OSError, RuntimeError) as error:
        raise PathRefused(PathRefusal.BAD_NAME, path) from error
    except ValueError as error:
        raise PathRefused(PathRefusal.OUTSIDE, path) from error


def read_bytes(workspace: Path, path: str, *, offset: int = 0, limit: int) -> tuple[bytes, int]:
    """Return up to `limit` bytes from `offset`, and the file's size."""
    with _open_file(workspace, path) as file:
        size = os.fstat(file).st_size
        return _read_at(file, offset, limit), size


def read_text(workspace: Path, path: str, *, limit: int) -> str:
    """Return the whole file; raises PathRefused if it exceeds `limit` bytes."""
    data, size = read_bytes(workspace, path, limit=limit)
    if size > limit:
        raise PathRefused(PathRefusal.TOO_LARGE, path)
    return decode_text(data, path).removeprefix("\ufeff")


def decode_text(data: bytes, path: str) -> str:
    """Decode a whole file, keeping its byte order mark. Raises PathRefused."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PathRefused(PathRefusal.BINARY, path) from error
    if "\0" in text:
        raise PathRefused(PathRefusal.BINARY, path)
    return text


def is_binary(data: bytes) -> bool:
    """Return True unless it is UTF-8 text; a character cut off at the end is tolerated."""
    if b"\0" in data:
        return True
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start < len(data) - 3 or error.reason != "unexpected end of data"
    return False


def open_to_copy(folder: Path, source: Path) -> BinaryIO:
    """Open a whole file in `folder`, both with links resolved, whatever its name. PathRefused if it
    has become a link since or may not be read; OSError if the disk fails."""
    try:
        with _open_resolved(folder, source.relative_to(folder), str(source), os.O_PATH) as file:
            return os.fdopen(os.dup(file), "rb")
    except PathRefused as refused:
        cause = refused.__cause__
        if refused.refusal is not PathRefusal.DISK or isinstance(cause, PermissionError):
            raise
        raise cause or refused from None


def write_text(workspace: Path, path: str, text: str) -> str:
    """Write a whole file atomically; returns its path within the workspace."""
    return write_bytes(workspace, path, text.encode("utf-8", "replace"))


def write_bytes(workspace: Path, path: str, data: bytes, *, limit: int = MAX_WRITE) -> str:
    """Like `write_text`, for bytes."""
    if len(data) > limit:
        raise PathRefused(PathRefusal.TOO_LARGE, path)
    place = resolve_path(workspace, path)
    if not place.name:
        raise PathRefused(PathRefusal.NOT_A_FILE, path)
    with _disk_errors(path), _open_folder(workspace, place.parent, create=True) as folder:
        _write_atomically(folder, place.name, data, path)
    return place.as_posix()


def list_folder(workspace: Path, path: str) -> tuple[tuple[FolderEntry, ...], int]:
    """Return the first MAX_ENTRIES entries by name, and the total number."""
    place = resolve_path(workspace, path)
    with _disk_errors(path), _open_folder(workspace, place) as folder:
        with os.scandir(folder) as found:
            there = sorted((one for one in found if not _is_temporary(one.name)), key=_entry_name)
        return tuple(_entry_of_scan(one) for one in there[:MAX_ENTRIES]), len(there)


def walk(workspace: Path, path: str, *, skip: Collection[str] = ()) -> Iterator[FolderEntry]:
    """Yield regular files and folders below `path`, named relative to the workspace.

    Links are ignored; folders named in `skip` are omitted."""
    place = resolve_path(workspace, path)
    with _disk_errors(path), _open_folder(workspace, place) as top:
        for at, folders, files, folder in walk_open_folder(top):
            here = place / at
            folders[:] = sorted(name for name in folders if name not in skip)
            for name in sorted([*folders, *files]):
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if (entry := _entry_of_stat(here / name, found)) and not _is_temporary(name):
                        yield entry


_NOT_IN_PATHS = ("*", "?", "{", "}", "<", ">", "`", "://", "\\", "\n", "\0")


def is_workspace_path(path: str) -> bool:
    """Whether it can be the relative path of a file in a workspace."""
    whole = bool(path.strip()) and not path.startswith(("/", "~")) and not path.endswith("/")
    return (
        whole
        and ".." not in PurePosixPath(path).parts
        and not any(each in path for each in _NOT_IN_PATHS)
    )


def find_file(workspace: Path, name: str) -> Path | None:
    """Return where a claimed file of the workspace is; None if there is none."""
    try:
        source = (workspace / name).resolve()
        there = source.is_relative_to(workspace) and source.is_file()
    except (OSError, RuntimeError, ValueError):
        # Claims are untrusted: the name may be too long, contain NUL or lead to a link loop.
        return None
    return source if there else None


def find_unchanged(workspace: Path, names: Iterable[str], began: float) -> tuple[str, ...]:
    """Return those of the files that nobody has written since that time, in seconds."""
    found = []
    for name in names:
        source = find_file(workspace, name)
        if source is None:
            continue
        status = source.stat()
        # A copy may bring its old time of writing with it.
        if max(status.st_mtime, status.st_ctime) < began - _CLOCK_TICK:
            found.append(name)
    return tuple(found)


def find_missing(workspace: Path, names: Iterable[str]) -> set[str]:
    """The names that no file in the workspace has. Where it is too large to know, none: an
    instruction may mean another folder."""
    wanted = {PurePosixPath(name).name: name for name in names}
    seen = 0
    for _, folders, files, _ in walk_folders(workspace):
        folders[:] = [folder for folder in folders if folder not in UNSEARCHED]
        seen += len(files) + len(folders)
        if seen > _MAX_SEARCHED:
            return set()
        for name in wanted.keys() & set(files):
            del wanted[name]
        if not wanted:
            break
    return set(wanted.values())


def _entry_of_stat(path: Path, found: os.stat_result) -> FolderEntry | None:
    name = path.as_posix().encode("utf-8", "replace").decode()
    if stat.S_ISDIR(found.st_mode):
        return FolderEntry(name=name, is_folder=True, size=0)
    if stat.S_ISREG(found.st_mode):
        return FolderEntry(name=name, is_folder=False, size=found.st_size)
    return None


def _check_name(path: str) -> None:
    if len(path) > MAX_PATH or any(not character.isprintable() for character in path):
        raise PathRefused(PathRefusal.BAD_NAME, path.encode("utf-8", "replace").decode())
    if any(len(part.encode()) > os.pathconf("/", "PC_NAME_MAX") for part in path.split("/")):
        raise PathRefused(PathRefusal.BAD_NAME, path)


@contextmanager
def _open_folder(
    workspace: Path, relative_path: Path, *, create: bool = False, way: int = os.O_RDONLY
) -> Iterator[int]:
    """Yield a descriptor of the folder, opened without following links. With O_PATH as `way` it
    need not be readable, but what is in it can only be opened."""
    if create:
        workspace.mkdir(parents=True, exist_ok=True)
    at = os.open(workspace.resolve(), way | os.O_DIRECTORY)
    try:
        for part in relative_path.parts:
            made = create and _make_folder(part, at)
            deeper = os.open(part, way | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            parent = os.fstat(at)
            os.close(at)
            at = deeper
            if made:
                give_to_owner_of(at, parent)
                if user_mask() >= 0:
                    os.fchmod(at, 0o777 & ~user_mask())
        yield at
    finally:
        os.close(at)


def _make_folder(name: str, parent: int) -> bool:
    """Return False if it exists."""
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return False
    return True


@contextmanager
def _open_file(workspace: Path, path: str) -> Iterator[int]:
    with _open_resolved(workspace, resolve_path(workspace, path), path) as file:
        yield file


@contextmanager
def _open_resolved(
    workspace: Path, place: Path, path: str, way: int = os.O_RDONLY
) -> Iterator[int]:
    """`place` is relative to the workspace, with links resolved; `way` see `_open_folder`."""
    if not place.name:
        raise PathRefused(PathRefusal.NOT_A_FILE, path)
    with _disk_errors(path), _open_folder(workspace, place.parent, way=way) as folder:
        # Non-blocking, because opening a pipe without a writer would block.
        file = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise PathRefused(PathRefusal.NOT_A_FILE, path)
            yield file
        finally:
            os.close(file)


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PathRefused(
            _REFUSAL_BY_ERRNO.get(error.errno or 0, PathRefusal.DISK), path
        ) from error


def _write_atomically(folder: int, name: str, data: bytes, path: str) -> None:
    mode = 0o666 & ~max(0, user_mask())
    if _exists(folder, name):
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode):
            raise PathRefused(PathRefusal.NOT_A_FILE, path)
        # Written by a worker, it must not give its owner's rights to others.
        mode = there.st_mode & 0o777
    temporary = _TEMPORARY.format(os.urandom(6).hex())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    file = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        give_to_owner_of(file, os.fstat(folder))
        if user_mask() >= 0:
            os.fchmod(file, mode)
        _write_all(file, data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def give_to_owner_of(file: int | Path, folder: os.stat_result) -> None:
    """Let what root makes in somebody's folder be theirs, so that they and commands can use it."""
    if os.geteuid() == 0 and folder.st_uid != 0:
        os.chown(file, folder.st_uid, folder.st_gid)


def _write_all(file: int, data: bytes) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def _read_at(file: int, offset: int, limit: int) -> bytes:
    """Repeat reads, because one may return less than requested."""
    parts: list[bytes] = []
    while limit > 0 and (part := os.pread(file, min(limit, 1 << 20), offset)):
        parts.append(part)
        offset += len(part)
        limit -= len(part)
    return b"".join(parts)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _entry_name(found: os.DirEntry[str]) -> str:
    return found.name


def _entry_of_scan(found: os.DirEntry[str]) -> FolderEntry:
    """Links are not followed, so nothing behind them is disclosed."""
    is_folder = found.is_dir(follow_symlinks=False)
    return FolderEntry(
        name=found.name.encode("utf-8", "replace").decode(),
        is_folder=is_folder,
        size=0 if is_folder else found.stat(follow_symlinks=False).st_size,
    )


def _is_temporary(name: str) -> bool:
    head, tail = _TEMPORARY.split("{}")
    return name.startswith(head) and name.endswith(tail)


_REFUSAL_TEXTS = {
    PathRefusal.BAD_NAME: (
        "not a usable path: too long, or with characters no file name should have"
    ),
    PathRefusal.OUTSIDE: "outside the workspace; give a path relative to the workspace",
    PathRefusal.MISSING: "no such file or folder",
    PathRefusal.NOT_A_FILE: "not a regular file",
    PathRefusal.NOT_A_FOLDER: "not a folder",
    PathRefusal.BINARY: "not a text file",
    PathRefusal.TOO_LARGE: "too large",
    PathRefusal.DISK: "the disk refused: full, read-only or no permission",
}

_REFUSAL_BY_ERRNO = {
    errno.ENOENT: PathRefusal.MISSING,
    errno.ENOTDIR: PathRefusal.NOT_A_FOLDER,
    errno.EISDIR: PathRefusal.NOT_A_FILE,
    errno.ENXIO: PathRefusal.NOT_A_FILE,
    errno.ELOOP: PathRefusal.OUTSIDE,
    errno.ENAMETOOLONG: PathRefusal.BAD_NAME,
}
