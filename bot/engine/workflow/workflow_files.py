"""Reads and writes the files of named workflows: one folder, no links, atomically."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from storage.data_directory import fsync_path, write_draft, write_private_file
from storage.records.workflows import Diagnostic, DiagnosticSeverity

SUFFIXES = (".yaml", ".yml", ".json", ".md")
TEST_SUFFIXES = (".yaml", ".yml", ".json")
"""Of test cases, which stand in `NAME.test.yaml` beside the workflow."""
TEST_SUFFIX = ".test.yaml"
"""Of test cases that the program writes."""
MAX_BYTES = 1_000_000
MAX_FILES = 200

_TEST_ENDING = ".test"

_VALID_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_IGNORED_NAMES = {"readme"}

FileStamp: TypeAlias = tuple[int, int, int]
"""Modification time, size and inode: changes whenever the file does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    name: str
    file: str
    stamp: FileStamp


class UnreadableWorkflowFile(Exception):
    """`key` is link, not_a_file, large_file, not_utf8 or unreadable."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


def is_valid_name(name: str) -> bool:
    """Whether the name is allowed: letters of any language, digits, `-` and `_`, so that it cannot
    leave the folder.
    """
    return bool(_VALID_NAME.fullmatch(name)) and name.casefold() not in _IGNORED_NAMES


def list_files(folder: Path) -> tuple[list[WorkflowFile], int]:
    """Return the files by name, and the number of files beyond the limit. Empty if there is no
    folder."""
    found = _scan_folder(folder)
    return found[:MAX_FILES], max(0, len(found) - MAX_FILES)


def list_foreign_entries(folder: Path) -> tuple[Diagnostic, ...]:
    """The other entries of the folder, which are not read: folders, other files, and test cases
    without a workflow.
    """
    try:
        with os.scandir(folder) as each:
            entries = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in each)
    except OSError:
        return ()
    names = {each.name for each in _scan_folder(folder)}
    found: list[Diagnostic] = []
    for name, is_folder in entries[: 5 * MAX_FILES]:
        path = Path(name)
        if name.startswith(".") or path.stem.casefold() in _IGNORED_NAMES:
            continue
        if is_folder:
            code = "folder"
        elif not name.isprintable() or path.suffix.lower() not in SUFFIXES:
            code = "other_file"
        elif (tested := tested_name(name)) and tested not in names:
            code = "tests_of_none"
        else:
            continue
        shown = "".join(each if each.isprintable() else "?" for each in name)[:80]
        found.append(Diagnostic(code=code, severity=DiagnosticSeverity.WARNING, file=shown))
    return tuple(found[:MAX_FILES])


def tested_name(file: str) -> str:
    """The workflow whose test cases a file of this name holds; empty if it holds none."""
    path = Path(file)
    is_test = path.suffix.lower() in TEST_SUFFIXES and path.stem.lower().endswith(_TEST_ENDING)
    return path.stem[: -len(_TEST_ENDING)] if is_test else ""


def find_tests(folder: Path, name: str) -> str:
    """The name of the file with a workflow's test cases; empty if there is none."""
    for suffix in TEST_SUFFIXES:
        path = folder / f"{name}{_TEST_ENDING}{suffix}"
        if path.exists() or path.is_symlink():
            return path.name
    return ""


def read_file(path: Path) -> str:
    """Read without following links or blocking on pipes. Raises UnreadableWorkflowFile."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise UnreadableWorkflowFile("link") from error
        raise UnreadableWorkflowFile("unreadable", why=error.strerror or "?") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        # A folder could not even be opened as a file.
        os.close(file)
        raise UnreadableWorkflowFile("not_a_file")
    with os.fdopen(file, "rb") as opened:
        try:
            data = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise UnreadableWorkflowFile("unreadable", why=error.strerror or "?") from error
    return decode_text(data)


def decode_text(data: bytes) -> str:
    """Raises UnreadableWorkflowFile."""
    if len(data) > MAX_BYTES:
        raise UnreadableWorkflowFile("large_file", most=MAX_BYTES // 1_000)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableWorkflowFile("not_utf8", at=error.start) from error


def write_file(
    folder: Path,
    name: str,
    text: str,
    *,
    replace: bool,
    check: Callable[[], None] = lambda: None,
) -> str:
    """Write atomically and return the file's name. `check` is called at the last moment; what it
    raises leaves everything as it is.

    Raises FileExistsError if another file of that name exists and `replace` is False. Other files
    of the name, and what a crash has left of a write, are deleted after it: one caller at a time.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
    file = f"{name}{suffix_for(text)}"
    others = [each for each in files_named(folder, name) if each != file]
    if others and not replace:
        raise FileExistsError(others[0])
    data = written_text(text).encode()
    with write_draft(folder / file, data) as draft:
        # Somebody's editor may have saved the file while this was written.
        check()
        _put_in_place(draft, folder / file, data, replace=replace)
    for other in (*(folder / each for each in others), *folder.glob(f".{name}.*.new")):
        other.unlink(missing_ok=True)
    fsync_path(folder)
    return file


def written_text(text: str) -> str:
    """The text as `write_file` stores it."""
    return f"{text.rstrip()}\n"


def write_text(path: Path, text: str) -> None:
    """Write a file of the folder atomically, replacing any other."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(path, written_text(text).encode())


def _put_in_place(new: Path, place: Path, data: bytes, *, replace: bool) -> None:
    if replace:
        new.replace(place)
        return
    try:
        # Unlike a rename, a link fails if the file exists by now.
        os.link(new, place)
    except FileExistsError:
        # Repeating the same save is no conflict.
        if place.is_symlink() or not place.is_file() or place.read_bytes() != data:
            raise


def delete_files(folder: Path, name: str) -> bool:
    """Return False if there was no file."""
    files = files_named(folder, name)
    for file in files:
        (folder / file).unlink(missing_ok=True)
    return bool(files)


def suffix_for(text: str) -> str:
    """Guess the format from the content."""
    first = text.lstrip("\ufeff \t\r\n")
    if first.startswith("{"):
        return ".json"
    return ".md" if first.startswith(("#", "```")) or "\n```" in first else ".yaml"


def files_named(folder: Path, name: str) -> list[str]:
    """The files with this name; the one in effect first."""
    return [each.file for each in _scan_folder(folder) if each.name == name]


def _scan_folder(folder: Path) -> list[WorkflowFile]:
    try:
        with os.scandir(folder) as each:
            found = list(filter(None, map(_workflow_file, each)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(
        found, key=lambda each: (each.name, SUFFIXES.index(Path(each.file).suffix.lower()))
    )


def _workflow_file(one: os.DirEntry[str]) -> WorkflowFile | None:
    path = Path(one.name)
    is_hidden = one.name.startswith(".") or path.stem.casefold() in _IGNORED_NAMES
    is_foreign = path.suffix.lower() not in SUFFIXES or not one.name.isprintable()
    if is_hidden or is_foreign or tested_name(one.name) or one.is_dir(follow_symlinks=False):
        return None
    try:
        info = one.stat(follow_symlinks=False)
    except OSError:
        return None
    stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
    return WorkflowFile(name=path.stem, file=one.name, stamp=stamp)
