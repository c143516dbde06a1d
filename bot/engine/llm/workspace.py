"""The folder a run may touch, and the one way to touch it: nothing here reaches outside.

A path is resolved first, then walked one component at a time without following links, so a link
swapped in between is refused instead of followed. All functions block: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

OURS = ".shiftboss"
"""The folder in it where tools keep what is too long to be read. Git and reports leave it out."""

MAX_PATH = 1_000
MAX_SHOWN = 100
MAX_WRITE = 1_000_000
MAX_ENTRIES = 500
_TEMPORARY = ".shiftboss-{}.part"


class Refusal(StrEnum):
    """Why a path was refused; `text` is what the model reads."""

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
        return _TEXTS[self]


class PathRefused(Exception):
    """The path cannot be used. `path` is as it was given, shortened."""

    def __init__(self, refusal: Refusal, path: str) -> None:
        self.refusal = refusal
        self.path = path if len(path) <= MAX_SHOWN else f"{path[:MAX_SHOWN]}…"
        super().__init__(f"{self.path!r}: {refusal.text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a folder's listing. `size` is 0 for folders."""

    name: str
    is_folder: bool
    size: int


def relative(workspace: Path, path: str) -> Path:
    """Where `path` leads, relative to the workspace, links resolved; raises PathRefused."""
    _check_name(path)
    root = workspace.resolve()
    try:
        return (root / path).resolve().relative_to(root)
    except (OSError, RuntimeError) as error:
        raise PathRefused(Refusal.BAD_NAME, path) from error
    except ValueError as error:
        raise PathRefused(Refusal.OUTSIDE, path) from error


def read_bytes(workspace: Path, path: str, *, offset: int = 0, limit: int) -> tuple[bytes, int]:
    """Up to `limit` bytes from `offset`, and the file's whole size."""
    with _opened(workspace, path) as file:
        size = os.fstat(file).st_size
        return _read_at(file, offset, limit), size


def read_text(workspace: Path, path: str, *, limit: int) -> str:
    """The whole file as text; one larger than `limit` bytes is refused."""
    data, size = read_bytes(workspace, path, limit=limit)
    if size > limit:
        raise PathRefused(Refusal.TOO_LARGE, path)
    return decoded(data, path).removeprefix("\ufeff")


def decoded(data: bytes, path: str) -> str:
    """A whole file's text, with the byte order mark it may have; raises PathRefused."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PathRefused(Refusal.BINARY, path) from error
    if "\0" in text:
        raise PathRefused(Refusal.BINARY, path)
    return text


def is_binary(data: bytes) -> bool:
    """Not UTF-8 text. A character cut off at the end of `data` is forgiven."""
    if b"\0" in data:
        return True
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start < len(data) - 3 or error.reason != "unexpected end of data"
    return False


def write_text(workspace: Path, path: str, text: str) -> str:
    """Write a whole file, old or new, all or nothing; returns its path within the workspace."""
    return write_bytes(workspace, path, text.encode("utf-8", "replace"))


def write_bytes(workspace: Path, path: str, data: bytes, *, limit: int = MAX_WRITE) -> str:
    """The same for what is no text."""
    if len(data) > limit:
        raise PathRefused(Refusal.TOO_LARGE, path)
    place = relative(workspace, path)
    if not place.name:
        raise PathRefused(Refusal.NOT_A_FILE, path)
    with _disk_errors(path), _folder(workspace, place.parent, make=True) as folder:
        _replace(folder, place.name, data, path)
    return place.as_posix()


def list_folder(workspace: Path, path: str) -> tuple[tuple[Entry, ...], int]:
    """The first MAX_ENTRIES entries by name, and how many there are."""
    place = relative(workspace, path)
    with _disk_errors(path), _folder(workspace, place) as folder:
        with os.scandir(folder) as found:
            there = sorted((one for one in found if not _is_temporary(one.name)), key=_name)
        return tuple(_entry(one) for one in there[:MAX_ENTRIES]), len(there)


def walk(workspace: Path, path: str, *, skip: Collection[str] = ()) -> Iterator[Entry]:
    """All regular files and folders below, by name; `Entry.name` is relative to the workspace.
    Links are neither followed nor told. Folders called as one of `skip` are left out."""
    place = relative(workspace, path)
    with _disk_errors(path), _folder(workspace, place) as top:
        for at, folders, files, folder in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            here = place / at
            folders[:] = sorted(name for name in folders if name not in skip)
            for name in sorted([*folders, *files]):
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if (entry := _found(here / name, found)) and not _is_temporary(name):
                        yield entry


def _found(path: Path, found: os.stat_result) -> Entry | None:
    name = path.as_posix().encode("utf-8", "replace").decode()
    if stat.S_ISDIR(found.st_mode):
        return Entry(name=name, is_folder=True, size=0)
    if stat.S_ISREG(found.st_mode):
        return Entry(name=name, is_folder=False, size=found.st_size)
    return None


def _check_name(path: str) -> None:
    if len(path) > MAX_PATH or any(not character.isprintable() for character in path):
        raise PathRefused(Refusal.BAD_NAME, path.encode("utf-8", "replace").decode())
    if any(len(part.encode()) > os.pathconf("/", "PC_NAME_MAX") for part in path.split("/")):
        raise PathRefused(Refusal.BAD_NAME, path)


@contextmanager
def _folder(workspace: Path, place: Path, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder at `place`, each step taken without following a link."""
    if make:
        workspace.mkdir(parents=True, exist_ok=True)
    at = os.open(workspace.resolve(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in place.parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = deeper
        yield at
    finally:
        os.close(at)


@contextmanager
def _opened(workspace: Path, path: str) -> Iterator[int]:
    place = relative(workspace, path)
    if not place.name:
        raise PathRefused(Refusal.NOT_A_FILE, path)
    with _disk_errors(path), _folder(workspace, place.parent) as folder:
        # A pipe without a writer would block the open; a regular file does not care.
        file = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise PathRefused(Refusal.NOT_A_FILE, path)
            yield file
        finally:
            os.close(file)


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PathRefused(_ERRNO.get(error.errno or 0, Refusal.DISK), path) from error


def _replace(folder: int, name: str, data: bytes, path: str) -> None:
    mode = 0o666
    if _exists(folder, name):
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode):
            raise PathRefused(Refusal.NOT_A_FILE, path)
        mode = stat.S_IMODE(there.st_mode)
    temporary = _TEMPORARY.format(os.urandom(6).hex())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    file = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        _write_out(file, data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _write_out(file: int, data: bytes) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def _read_at(file: int, offset: int, limit: int) -> bytes:
    """Reads until `limit` or the end: one read may give less than there is."""
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


def _name(found: os.DirEntry[str]) -> str:
    return found.name


def _entry(found: os.DirEntry[str]) -> Entry:
    """Links are not followed: nothing is told of what lies behind one."""
    is_folder = found.is_dir(follow_symlinks=False)
    return Entry(
        name=found.name.encode("utf-8", "replace").decode(),
        is_folder=is_folder,
        size=0 if is_folder else found.stat(follow_symlinks=False).st_size,
    )


def _is_temporary(name: str) -> bool:
    head, tail = _TEMPORARY.split("{}")
    return name.startswith(head) and name.endswith(tail)


_TEXTS = {
    Refusal.BAD_NAME: "not a usable path: too long, or with characters no file name should have",
    Refusal.OUTSIDE: "outside the workspace; give a path relative to the workspace",
    Refusal.MISSING: "no such file or folder",
    Refusal.NOT_A_FILE: "not a regular file",
    Refusal.NOT_A_FOLDER: "not a folder",
    Refusal.BINARY: "not a text file",
    Refusal.TOO_LARGE: "too large",
    Refusal.DISK: "the disk refused: full, read-only or no permission",
}

_ERRNO = {
    errno.ENOENT: Refusal.MISSING,
    errno.ENOTDIR: Refusal.NOT_A_FOLDER,
    errno.EISDIR: Refusal.NOT_A_FILE,
    errno.ENXIO: Refusal.NOT_A_FILE,
    errno.ELOOP: Refusal.OUTSIDE,
    errno.ENAMETOOLONG: Refusal.BAD_NAME,
}
