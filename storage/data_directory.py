"""Creates and locks the data directory, so that only one process uses it, keeps it private to its
user, and writes export files below it."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from storage.errors import DataDirectoryInUse, DataDirectoryUnusable
from storage.file_trees import walk_folders

log = logging.getLogger(__name__)

_LOCK_FILE = "lock"
_TEMPORARY_MARK = "briefly"
_EXPORT_FOLDER = "exports"
_PARTIAL = ".part"
_ID_FILE = "home.id"


_PRIVATE_MASK = 0o077
_masks_at_start: list[int] = []


def make_new_files_private() -> None:
    """Create new files of this process as private, unless they are given other permissions."""
    _masks_at_start.append(os.umask(_PRIVATE_MASK))


def user_mask() -> int:
    """The umask that the process started with, used for files in people's folders; -1 leaves it
    unchanged."""
    return _masks_at_start[0] if _masks_at_start else -1


def make_private(home: Path) -> None:
    """Remove all permissions but the owner's from everything in the directory. Links are not
    followed, and files with a second hard link are skipped, because it may lie elsewhere. Blocking.
    """
    home.chmod(stat.S_IRWXU)
    for folder, names, files, at in walk_folders(home):
        for name in (*names, *files):
            try:
                _make_entry_private(name, at)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("%s/%s stays open to others: %s", home / folder, name, error.strerror)


def _make_entry_private(name: str, folder: int) -> None:
    seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
    is_folder = stat.S_ISDIR(seen.st_mode)
    plain = is_folder or (stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1)
    if not plain or not stat.S_IMODE(seen.st_mode) & ~stat.S_IRWXU:
        return
    # A link put in its place meanwhile is not followed.
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        own = os.fstat(handle).st_mode & stat.S_IRWXU
        os.fchmod(handle, own | stat.S_IRWXU if is_folder else own)
    finally:
        os.close(handle)


class DataDirectoryLock:
    """Locks a data directory until `close`; also a context manager. Blocks, but briefly.

    The lock belongs to the operating system, so a killed process leaves none behind. Raises
    DataDirectoryInUse if another process holds it and DataDirectoryUnusable if it cannot be
    written. If `is_temporary`, others learn that it will be released soon.
    """

    def __init__(self, path: Path, *, is_temporary: bool = False) -> None:
        self.path = path
        self._holder_suffix = f" {_TEMPORARY_MARK}" if is_temporary else ""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirectoryUnusable(str(path), error.strerror or str(error)) from error
        try:
            self._acquire()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Release the lock. The lock file stays: removing it would race with the next holder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder, _, how = os.pread(self._lock, 32, 0).decode("ascii", "replace").partition(" ")
            raise DataDirectoryInUse(
                str(self.path), holder.strip() or "?", is_temporary=how.strip() == _TEMPORARY_MARK
            ) from error
        except OSError as error:
            raise DataDirectoryUnusable(str(self.path), error.strerror or str(error)) from error
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}{self._holder_suffix}\n".encode(), 0)
        except OSError as error:
            raise DataDirectoryUnusable(str(self.path), error.strerror or str(error)) from error


class ExportFile:
    """A file that appears at its path only on `commit`. Blocking; readable by its owner only."""

    def __init__(self, home: Path, name: str) -> None:
        self.path = home / _EXPORT_FOLDER / name
        self.relative_path = str(self.path.relative_to(home))
        # Another process may be writing the same export.
        self._partial = self.path.with_suffix(f".{secrets.token_hex(4)}{_PARTIAL}")
        self._file: TextIO | None = None

    def append_lines(self, lines: Iterable[str]) -> None:
        if self._file is None:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            opened = open(self._partial, "w", encoding="utf-8", opener=open_private)  # noqa: SIM115 - until the end
            # While it is locked, it is no leftover.
            fcntl.flock(opened, fcntl.LOCK_EX)
            self._file = opened
        self._file.writelines(f"{line}\n" for line in lines)

    def commit(self) -> int:
        """Move the finished file into place and return its size in bytes."""
        self.append_lines(())
        assert self._file is not None
        # Callers may delete the originals afterwards, so the file must survive a power cut.
        self._file.flush()
        os.fsync(self._file.fileno())
        self._partial.replace(self.path)
        fsync_path(self.path.parent)
        self._close()
        return self.path.stat().st_size

    def discard(self) -> None:
        """Delete the partial file; does nothing after `commit`."""
        self._partial.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def remove_unfinished_exports(home: Path) -> None:
    """Remove partial exports of dead processes; they may contain what was forgotten since.
    Blocking."""
    for partial in (home / _EXPORT_FOLDER).glob(f"*{_PARTIAL}"):
        try:
            handle = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial.unlink(missing_ok=True)
        except BlockingIOError:
            # Somebody is writing it.
            continue
        finally:
            os.close(handle)


def write_private_file(path: Path, body: bytes, *, mode: int = 0o600) -> None:
    """Replace a file in one step; it survives a power cut. By default readable by its owner only.
    Blocking."""
    with write_draft(path, body, mode=mode) as draft:
        draft.replace(path)
    fsync_path(path.parent)


def identify_home(home: Path) -> str:
    """Return the id that the data directory keeps for ever; all processes that share it get the
    same. Blocking."""
    path = home / _ID_FILE
    if not path.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            write_draft(path, f"{secrets.token_hex(8)}\n".encode()) as draft,
            suppress(FileExistsError),
        ):
            # Unlike a rename, this leaves the id alone that another process has just written.
            os.link(draft, path)
    return path.read_text(encoding="utf-8").strip()


@contextmanager
def write_draft(path: Path, body: bytes, *, mode: int = 0o600) -> Iterator[Path]:
    """Write the content of `path` durably into a hidden file beside it, `.NAME.….new`. The caller
    moves it into place; leftovers are deleted unless the process dies. Blocking."""
    # Another process may be writing the same file.
    draft = path.with_name(f".{path.name.lstrip('.')}.{secrets.token_hex(4)}.new")
    try:
        with open(draft, "xb", opener=open_private) as file:
            file.write(body)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def fsync_path(path: Path) -> None:
    """Make a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
