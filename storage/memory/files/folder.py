"""Files of memories in the data folder: read and written without following a link, without ever
writing over what somebody has saved meanwhile, and readable by nobody else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from storage.memory.files.exchange import exchange

MOST_BYTES = 1_000_000

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Trouble(StrEnum):
    """Why a file is let alone."""

    LINK = "link"
    FOLDER = "folder"
    LARGE = "large"
    BINARY = "binary"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Sign:
    """Two looks that see the same sign see the same file, not written to in between, whatever time
    its writer has given it."""

    inode: int
    changed: int
    size: int
    kind: int
    touched: int = field(default=0, repr=False)

    def is_moved(self, to: Sign | None) -> bool:
        """Whether it is the same file at another place."""
        return to is not None and replace(self, touched=0) == replace(to, touched=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is in a file's place: its text, or the trouble with it; neither where there is none."""

    body: str | None = None
    sign: Sign | None = None
    trouble: Trouble | None = None


NONE = Found()


class Folder:
    """Paths are relative, with `/`. Blocking. Reading never raises; what cannot be written raises
    OSError."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def signs(self, paths: Iterable[str]) -> Mapping[str, Sign | None]:
        """A cheap look at many files."""
        try:
            home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return dict.fromkeys(paths)
        try:
            return {path: _glance(home, path) for path in paths}
        finally:
            os.close(home)

    def read(self, path: str) -> Found:
        try:
            with self._in(path) as (folder, name):
                return _read(folder, name)
        except FileNotFoundError:
            return NONE
        except NotADirectoryError:
            return Found(trouble=Trouble.LINK)
        except OSError:
            return Found(trouble=Trouble.UNUSABLE)

    def write(self, path: str, body: str, seen: Sign | None) -> Sign | None:
        """Put this text into the file's place, all or nothing. None, with nothing done, where the
        file is no longer the one that was `seen`; else what it is now. What was there before lies
        aside, since somebody may still be writing to it."""
        with self._in(path, make=True) as (folder, name):
            new = _new(name)
            try:
                made = _put(folder, new, body)
                if _sign(folder, name) != seen:
                    return None
                if seen is not None:
                    _swap(folder, new, name)
                elif not _link(folder, new, name):
                    return None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
                os.fsync(folder)
            here = _sign(folder, name)
            return here if here is not None and made.is_moved(here) else made

    def beside(self, path: str) -> tuple[Found, Found]:
        """What was in the file's place before the last `write`, to be dropped once looked at; and
        what a `write` that was broken off was to put there or has taken from there."""
        return self.read(_beside(path, _old)), self.read(_beside(path, _new))

    def drop_beside(self, path: str) -> None:
        with suppress(OSError), self._in(path) as (folder, name):
            for each in (_old(name), _new(name)):
                with suppress(FileNotFoundError):
                    os.unlink(each, dir_fd=folder)

    def remove(self, path: str, seen: Sign) -> bool:
        """False, with nothing done, where it is no longer the one that was seen."""
        with suppress(FileNotFoundError, NotADirectoryError), self._in(path) as (folder, name):
            os.rename(name, _old(name), src_dir_fd=folder, dst_dir_fd=folder)
            if seen.is_moved(_sign(folder, _old(name))):
                os.unlink(_old(name), dir_fd=folder)
                return True
            if _link(folder, _old(name), name):
                os.unlink(_old(name), dir_fd=folder)
        return False

    @contextmanager
    def _in(self, path: str, *, make: bool = False) -> Generator[tuple[int, str], None, None]:
        """The folder of a file, opened step by step, and its name. Raises NotADirectoryError where
        a link or a file is in the way."""
        *folders, name = PurePosixPath(path).parts
        here = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for each in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(each, 0o700, dir_fd=here)
                inner = os.open(each, _DIRECTORY, dir_fd=here)
                os.close(here)
                here = inner
            yield here, name
        finally:
            os.close(here)


def _read(folder: int, name: str) -> Found:
    sign = _sign(folder, name)
    if sign is None:
        return NONE
    trouble = _trouble(sign)
    if trouble is not None:
        return Found(sign=sign, trouble=trouble)
    handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        # Another one may have come into its place.
        sign = _of(os.fstat(handle))
        trouble = _trouble(sign)
        data = b"" if trouble is not None else file.read(MOST_BYTES + 1)
    body = None if trouble is not None or len(data) > MOST_BYTES else _text(data)
    return Found(
        body=body, sign=sign, trouble=trouble or (Trouble.BINARY if body is None else None)
    )


def _trouble(sign: Sign) -> Trouble | None:
    match sign.kind:
        case stat.S_IFREG:
            return Trouble.LARGE if sign.size > MOST_BYTES else None
        case stat.S_IFDIR:
            return Trouble.FOLDER
        case stat.S_IFLNK:
            return Trouble.LINK
        case _:
            return Trouble.UNUSABLE


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _put(folder: int, name: str, body: str) -> Sign:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(body.encode("utf-8", "replace"))
        file.flush()
        os.fsync(handle)
        return _of(os.fstat(handle))


def _swap(folder: int, new: str, name: str) -> None:
    """The new file comes into its place, and what was there lies aside, in one step: also what was
    saved a moment ago."""
    if exchange(folder, new, name):
        os.rename(new, _old(name), src_dir_fd=folder, dst_dir_fd=folder)
        return
    with suppress(FileNotFoundError):
        os.unlink(_old(name), dir_fd=folder)
    os.link(name, _old(name), src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)


def _link(folder: int, new: str, name: str) -> bool:
    """False where somebody was quicker."""
    try:
        os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _sign(folder: int, name: str) -> Sign | None:
    try:
        return _of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _glance(home: int, path: str) -> Sign | None:
    """As `_sign`, but nothing is opened on the way: good enough to see that something is new."""
    try:
        return _sign(home, path)
    except (OSError, ValueError):
        return None


def _of(seen: os.stat_result) -> Sign:
    kind = stat.S_IFMT(seen.st_mode)
    return Sign(seen.st_ino, seen.st_mtime_ns, seen.st_size, kind, seen.st_ctime_ns)


def _beside(path: str, name: Callable[[str], str]) -> str:
    whole = PurePosixPath(path)
    return str(whole.with_name(name(whole.name)))


def _new(name: str) -> str:
    return f".{name}.new"


def _old(name: str) -> str:
    return f".{name}.old"
