"""Walks and deletes folders that workers have written to, whatever they have put there.

A worker may nest folders deeper than recursion, open files or a path's length allow, and take the
rights away from its own folders. Links below the top are never followed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

MAX_DEPTH = 64
"""Folders nested deeper are neither looked into nor backed up."""
_MAX_PATH_BYTES = 3_000


def walk_folders(
    top: Path, *, on_too_deep: Callable[[PurePosixPath], None] | None = None
) -> Iterator[tuple[PurePosixPath, list[str], list[str], int]]:
    """Yield each folder from the top: its path relative to `top`, the names of its folders and of
    everything else, and a handle for `dir_fd`. Blocking.

    As with `os.fwalk`, folders that the caller removes from the list are left out. Unreadable
    entries are skipped. `on_too_deep` gets each folder at the limit that has folders in it.
    """
    try:
        handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        yield from walk_open_folder(handle, on_too_deep=on_too_deep)
    finally:
        os.close(handle)


def walk_open_folder(
    top: int, *, on_too_deep: Callable[[PurePosixPath], None] | None = None
) -> Iterator[tuple[PurePosixPath, list[str], list[str], int]]:
    """The same for a folder that the caller has opened, and closes."""
    for at, folders, files, here in os.fwalk(".", dir_fd=top):
        inside = PurePosixPath(at)
        yield inside, folders, files, here
        is_deep = len(inside.parts) >= MAX_DEPTH or len(os.fsencode(at)) > _MAX_PATH_BYTES
        if is_deep and folders:
            if on_too_deep:
                on_too_deep(inside)
            folders.clear()


def delete_tree(folder: Path) -> bool:
    """Delete a folder, however deep, also where rights are missing. Returns whether something was
    deleted and nothing is left. Blocking."""
    if folder.is_symlink() or not folder.exists():
        return False
    path = str(folder.absolute())
    # Folders only: a file may have a second name elsewhere, which shares its rights.
    locked = ("-type", "d", "!", "-perm", "-u=rwx")
    unlock = ["find", path, *locked, "-exec", "chmod", "u+rwx", "--", "{}", ";"]
    # `shutil.rmtree` of Python 3.11 ends with RecursionError at about a thousand levels.
    for command in (unlock, ["rm", "-rf", "--", path]):
        subprocess.run(  # noqa: S603 - fixed programs, and a path of ours
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    return not os.path.lexists(folder)
