"""Reads and writes private memory files: follows no link and never overwrites concurrent edits."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

_RENAME_EXCHANGE = 2


def exchange_files(folder: int, one: str, other: str) -> bool:
    """Swap two files in one step. False, with nothing done, if the system or file system cannot.
    Raises OSError."""
    call = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(one), folder, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error == 2:  # noqa: PLR2004 - ENOENT: one of them has gone
        raise FileNotFoundError(error, os.strerror(error), other)
    return False


@cache
def _renameat2() -> Any:
    """None if the C library lacks the call."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call


MAX_FILE_BYTES = 1_000_000

_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileProblem(StrEnum):
    """Why a file cannot be synced."""

    LINK = "link"
    FOLDER = "folder"
    LARGE = "large"
    BINARY = "binary"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class FileSignature:
    """Two equal signatures mean the same file with no write in between, even if its writer set the
    times."""

    inode: int
    modified_ns: int
    size: int
    kind: int
    metadata_changed_ns: int = field(default=0, repr=False)

    def is_same_file(self, other: FileSignature | None) -> bool:
        """Whether it is the same file, possibly renamed."""
        return other is not None and replace(self, metadata_changed_ns=0) == replace(
            other, metadata_changed_ns=0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """A file's text or its problem; neither if there is no file."""

    body: str | None = None
    signature: FileSignature | None = None
    problem: FileProblem | None = None


NO_FILE = FileContent()


class MarkdownFolder:
    """Paths are relative, with `/`. Blocking. Reading never raises; a failed write raises
    OSError."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def get_signatures(self, paths: Iterable[str]) -> Mapping[str, FileSignature | None]:
        """Stat many files without opening them."""
        try:
            home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return dict.fromkeys(paths)
        try:
            return {path: _peek_signature(home, path) for path in paths}
        finally:
            os.close(home)

    def read(self, path: str) -> FileContent:
        try:
            with self._open_parent(path) as (folder, name):
                return _read_content(folder, name)
        except FileNotFoundError:
            return NO_FILE
        except NotADirectoryError:
            return FileContent(problem=FileProblem.LINK)
        except OSError:
            return FileContent(problem=FileProblem.UNUSABLE)

    def write(self, path: str, body: str, expected: FileSignature | None) -> FileSignature | None:
        """Replace the file atomically and return its new signature.

        None, with nothing done, if the file no longer matches `expected`. The previous version is
        retained beside it, since an editor may still be writing to it.
        """
        with self._open_parent(path, make=True) as (folder, name):
            new = _new_name(name)
            try:
                made = _create_file(folder, new, body)
                if _get_signature(folder, name) != expected:
                    return None
                if expected is not None:
                    _replace_file(folder, new, name)
                elif not _link(folder, new, name):
                    return None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
                os.fsync(folder)
            here = _get_signature(folder, name)
            return here if here is not None and made.is_same_file(here) else made

    def read_leftovers(self, path: str) -> tuple[FileContent, FileContent]:
        """The version before the last `write`, to be deleted once read, and the temporary file of
        an interrupted `write`."""
        return self.read(_sibling_path(path, _old_name)), self.read(_sibling_path(path, _new_name))

    def delete_leftovers(self, path: str) -> None:
        with suppress(OSError), self._open_parent(path) as (folder, name):
            for each in (_old_name(name), _new_name(name)):
                with suppress(FileNotFoundError):
                    os.unlink(each, dir_fd=folder)

    def delete(self, path: str, expected: FileSignature) -> bool:
        """False, with nothing done, if the file no longer matches `expected`."""
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._open_parent(path) as (folder, name),
        ):
            os.rename(name, _old_name(name), src_dir_fd=folder, dst_dir_fd=folder)
            if expected.is_same_file(_get_signature(folder, _old_name(name))):
                os.unlink(_old_name(name), dir_fd=folder)
                return True
            if _link(folder, _old_name(name), name):
                os.unlink(_old_name(name), dir_fd=folder)
        return False

    @contextmanager
    def _open_parent(
        self, path: str, *, make: bool = False
    ) -> Generator[tuple[int, str], None, None]:
        """Open the file's folder step by step; returns it and the file's name. Raises
        NotADirectoryError if a link or a file is in the way."""
        *folders, name = PurePosixPath(path).parts
        here = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for each in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(each, 0o700, dir_fd=here)
                inner = os.open(each, _DIRECTORY_FLAGS, dir_fd=here)
                os.close(here)
                here = inner
            yield here, name
        finally:
            os.close(here)


def _read_content(folder: int, name: str) -> FileContent:
    sign = _get_signature(folder, name)
    if sign is None:
        return NO_FILE
    trouble = _file_problem(sign)
    if trouble is not None:
        return FileContent(signature=sign, problem=trouble)
    handle = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        # The file may have been replaced since.
        sign = _signature_from_stat(os.fstat(handle))
        trouble = _file_problem(sign)
        data = b"" if trouble is not None else file.read(MAX_FILE_BYTES + 1)
    body = None if trouble is not None or len(data) > MAX_FILE_BYTES else _decode(data)
    return FileContent(
        body=body, signature=sign, problem=trouble or (FileProblem.BINARY if body is None else None)
    )


def _file_problem(signature: FileSignature) -> FileProblem | None:
    match signature.kind:
        case stat.S_IFREG:
            return FileProblem.LARGE if signature.size > MAX_FILE_BYTES else None
        case stat.S_IFDIR:
            return FileProblem.FOLDER
        case stat.S_IFLNK:
            return FileProblem.LINK
        case _:
            return FileProblem.UNUSABLE


def _decode(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _create_file(folder: int, name: str, body: str) -> FileSignature:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE_FLAGS, 0o600, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(body.encode("utf-8", "replace"))
        file.flush()
        os.fsync(handle)
        return _signature_from_stat(os.fstat(handle))


def _replace_file(folder: int, new: str, name: str) -> None:
    """Put the new file in place and set the old one aside in one step, even if it was saved just
    now."""
    if exchange_files(folder, new, name):
        os.rename(new, _old_name(name), src_dir_fd=folder, dst_dir_fd=folder)
        return
    with suppress(FileNotFoundError):
        os.unlink(_old_name(name), dir_fd=folder)
    os.link(name, _old_name(name), src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)


def _link(folder: int, new: str, name: str) -> bool:
    """False if the name was taken meanwhile."""
    try:
        os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _get_signature(folder: int, name: str) -> FileSignature | None:
    try:
        return _signature_from_stat(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _peek_signature(home: int, path: str) -> FileSignature | None:
    """Like `_get_signature`, without opening anything: good enough to detect changes."""
    try:
        return _get_signature(home, path)
    except (OSError, ValueError):
        return None


def _signature_from_stat(seen: os.stat_result) -> FileSignature:
    kind = stat.S_IFMT(seen.st_mode)
    return FileSignature(seen.st_ino, seen.st_mtime_ns, seen.st_size, kind, seen.st_ctime_ns)


def _sibling_path(path: str, name: Callable[[str], str]) -> str:
    whole = PurePosixPath(path)
    return str(whole.with_name(name(whole.name)))


def _new_name(name: str) -> str:
    return f".{name}.new"


def _old_name(name: str) -> str:
    return f".{name}.old"
